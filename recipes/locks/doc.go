// Package locks has the exclusive lock.
//
//	m, err := locks.NewMutex(client, "/app/lock")
//	...
//	err = recipes.Do(ctx, m, func(ctx context.Context, l *recipes.Lease) error {
//		return work(ctx) // ctx ends when the lock is lost
//	})
package locks
