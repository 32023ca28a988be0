package measure

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Load is a number of goroutines of one process that run cycles with no pause
// in between. Goroutine i uses lock i modulo Locks.
type Load struct {
	Goroutines, Locks int

	// The load ends after this time, or after so many cycles, if not 0.
	For    time.Duration
	Cycles int64
}

// Run runs the load. It returns how many cycles ended and how long that took,
// or the first error of a cycle. It passes cycle the numbers of the goroutine
// and of its lock.
func (l Load) Run(ctx context.Context, cycle func(ctx context.Context, goroutine, lock int) error) (cycles int64, took time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var begun, ended atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for i := range l.Goroutines {
		all.Go(func() {
			done := int64(0)
			defer func() { ended.Add(done) }()
			for ctx.Err() == nil && (l.For == 0 || time.Since(began) < l.For) && (l.Cycles == 0 || begun.Add(1) <= l.Cycles) {
				if err := cycle(ctx, i, i%l.Locks); err != nil {
					cancel(err)
					return
				}
				done++
			}
		})
	}
	all.Wait()
	return ended.Load(), time.Since(began), context.Cause(ctx)
}

// Cycle acquires and releases a lock.
func Cycle(ctx context.Context, a recipes.Acquirer) error {
	lease, err := a.Acquire(ctx)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

// bareName is a contender's znode without its sequence number: as long as ours.
const bareName = "/_c_00000000-0000-0000-0000-000000000000-lock-"

// BareCycle sends what a cycle of a lock in dir cannot do without, each request
// after the answer to the one before: a create, a list and a delete.
func BareCycle(conn *zk.Conn, dir string) error {
	path, err := BareJoin(conn, dir)
	if err != nil {
		return err
	}
	return conn.Delete(path, -1)
}

// BareJoin creates a contender's znode in dir, lists dir and returns the znode's
// path.
func BareJoin(conn *zk.Conn, dir string) (path string, err error) {
	path, err = conn.Create(dir+bareName, nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	if err != nil {
		return "", err
	}
	_, _, err = conn.Children(dir)
	return path, err
}
