package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// contested is a lock under load.
type contested struct {
	recipes.Acquirer
	atOnce int32 // how many may hold it at once
	inside atomic.Int32
}

// load is shared by the goroutines of one process.
type load struct {
	locks  []*contested
	begin  time.Time
	ends   context.Context // when it ends, no cycle starts and no goroutine waits
	cancel context.CancelFunc

	failing sync.Once
	failed  error // why the load ended early; read after all goroutines have returned
}

// atOnce bounds what is done concurrently before and after a measurement, and
// how many counts are kept apart.
const atOnce = 64

var errTimeIsUp = errors.New("measurement has ended")

// contest makes the locks below root.
func (b *bench) contest(c *framework.Client, root string) (*load, error) {
	l := &load{locks: make([]*contested, b.locks)}
	for i := range l.locks {
		a, err := b.recipe.value().make(b, c, fmt.Sprintf("%s/%d", root, i))
		if err != nil {
			return nil, usage("%w", err)
		}
		l.locks[i] = &contested{Acquirer: a, atOnce: b.atOnce()}
	}
	return l, nil
}

// warmUp runs one cycle of each lock, which creates its directory.
func (l *load) warmUp(ctx context.Context) error {
	errs := make([]error, min(len(l.locks), atOnce))
	var workers sync.WaitGroup
	for i := range errs {
		workers.Go(func() {
			for at := i; at < len(l.locks) && errs[i] == nil; at += len(errs) {
				_, _, errs[i] = l.locks[at].cycle(ctx)
			}
		})
	}
	workers.Wait()
	if err := errors.Join(errs...); err != nil {
		return notAcquired(err)
	}
	return nil
}

// run takes the locks in so many goroutines, for a duration.
func (l *load) run(ctx context.Context, goroutines int, duration time.Duration) (cycleStats, error) {
	l.ends, l.cancel = context.WithTimeoutCause(ctx, duration, errTimeIsUp)
	defer l.cancel()
	l.begin = time.Now()
	stats := make([]sharedStats, min(goroutines, atOnce))
	var workers sync.WaitGroup
	for i := range goroutines {
		workers.Go(func() { l.work(i, &stats[i%len(stats)], goroutines) })
	}
	workers.Wait()
	var all cycleStats
	if err := cmp.Or(l.failed, context.Cause(ctx)); err != nil {
		return all, notAcquired(err)
	}
	for i := range stats {
		all.add(&stats[i].stats)
	}
	return all, nil
}

// work takes every of-th lock in turn, starting with its own, until the load
// ends.
func (l *load) work(me int, t *sharedStats, of int) {
	for at := me % len(l.locks); l.ends.Err() == nil; at = (at + of) % len(l.locks) {
		waited, took, err := l.locks[at].cycle(l.ends)
		if errors.Is(err, errTimeIsUp) {
			return
		} else if err != nil {
			l.failing.Do(func() { l.failed = err })
			l.cancel()
			return
		}
		t.count(waited, took, time.Since(l.begin))
	}
}

// cycle acquires the lock and releases it, and returns how long it waited and
// how long the cycle took. When cycle returns the lock is released, even if ctx
// has ended.
func (c *contested) cycle(ctx context.Context) (waited, took time.Duration, err error) {
	began := time.Now()
	lease, err := c.Acquire(ctx)
	if err != nil {
		return 0, 0, err
	}
	waited = time.Since(began)
	inside := c.inside.Add(1)
	c.inside.Add(-1)
	if err := release(lease); err != nil {
		return 0, 0, err
	}
	if inside > c.atOnce {
		return 0, 0, fmt.Errorf("%s: %d holders at once, but only %d are allowed", c.Path(), inside, c.atOnce)
	}
	return waited, time.Since(began), nil
}

func benchRoot() string { return "/zkr-bench-" + strings.ToLower(rand.Text()) }

// tidy deletes root and everything below it. It uses its own client, since the
// one of the measurement is closed, which has released everything it held.
func (b *bench) tidy(root string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second+time.Duration(b.locks)*10*time.Millisecond)
	defer cancel()
	c, err := b.to.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	slots := make(chan struct{}, atOnce)
	return remove(ctx, c, root, slots)
}

// remove deletes a znode and everything below it. It deletes as many children
// concurrently as slots has room for.
func remove(ctx context.Context, c *framework.Client, path string, slots chan struct{}) error {
	names, _, err := c.Children(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	} else if err != nil {
		return err
	}
	errs := make([]error, len(names))
	var removing sync.WaitGroup
	for i, name := range names {
		below := path + "/" + name
		select {
		case slots <- struct{}{}:
			removing.Go(func() {
				defer func() { <-slots }()
				errs[i] = remove(ctx, c, below, slots)
			})
		default:
			errs[i] = remove(ctx, c, below, slots)
		}
	}
	removing.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := c.Delete(ctx, path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	return nil
}
