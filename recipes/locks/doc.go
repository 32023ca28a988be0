// Package locks has the exclusive lock, [Mutex]; [All], which takes several
// acquirers of any kind as one; and [Keyed], a lock for each key.
//
//	m, err := locks.NewMutex(client, "/app/lock")
//	...
//	err = recipes.Do(ctx, m, func(ctx context.Context, l *recipes.Lease) error {
//		return work(ctx) // ctx ends when the lock is lost
//	})
package locks
