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

// load is shared by the goroutines of one measurement.
type load struct {
	locks  []*contested
	begin  time.Time
	ends   context.Context // when it ends, no cycle starts and no goroutine waits
	cancel context.CancelFunc

	failing sync.Once
	failed  error // why the load ended early; read after all goroutines have returned
}

var errTimeIsUp = errors.New("measurement has ended")

// measure takes the locks below root for the requested time. The first cycle of
// each lock creates its directory and is not counted.
func (b *bench) measure(ctx context.Context, c *framework.Client, root string, requests *atomic.Int64) (figures, error) {
	l := load{locks: make([]*contested, b.locks)}
	for i := range l.locks {
		a, err := b.recipe.value().make(b, c, fmt.Sprintf("%s/%d", root, i))
		if err != nil {
			return figures{}, usage("%w", err)
		}
		l.locks[i] = &contested{Acquirer: a, atOnce: b.atOnce()}
		if _, err := l.locks[i].cycle(ctx); err != nil {
			return figures{}, notAcquired(err)
		}
	}
	l.ends, l.cancel = context.WithTimeoutCause(ctx, b.duration, errTimeIsUp)
	defer l.cancel()

	before := requests.Load()
	l.begin = time.Now()
	stats := make([]cycleStats, b.goroutines)
	var workers sync.WaitGroup
	for i := range stats {
		workers.Go(func() { l.work(i, &stats[i], len(stats)) })
	}
	workers.Wait()
	if err := cmp.Or(l.failed, context.Cause(ctx)); err != nil {
		return figures{}, notAcquired(err)
	}
	var all cycleStats
	for i := range stats {
		all.add(&stats[i])
	}
	if all.cycles == 0 {
		return figures{}, failed(fmt.Errorf("timed out: no cycle ended within %v", b.duration))
	}
	const perMicrosecond = float64(time.Microsecond)
	return figures{
		Recipe: b.recipe.String(), Goroutines: b.goroutines, Locks: b.locks, Grants: all.cycles,
		PerSecond:        round(float64(all.cycles) / all.last.Seconds()),
		P50:              round(float64(all.times.quantile(0.50)) / perMicrosecond),
		P99:              round(float64(all.times.quantile(0.99)) / perMicrosecond),
		RequestsPerGrant: round(float64(requests.Load()-before) / float64(all.cycles)),
	}, nil
}

// work takes every of-th lock in turn, starting with its own, until the load
// ends.
func (l *load) work(me int, t *cycleStats, of int) {
	for at := me % len(l.locks); l.ends.Err() == nil; at = (at + of) % len(l.locks) {
		took, err := l.locks[at].cycle(l.ends)
		if errors.Is(err, errTimeIsUp) {
			return
		} else if err != nil {
			l.failing.Do(func() { l.failed = err })
			l.cancel()
			return
		}
		t.count(took, time.Since(l.begin))
	}
}

// cycle acquires the lock and releases it. When cycle returns the lock is
// released, even if ctx has ended.
func (c *contested) cycle(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	lease, err := c.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	inside := c.inside.Add(1)
	c.inside.Add(-1)
	if err := release(lease); err != nil {
		return 0, err
	}
	if inside > c.atOnce {
		return 0, fmt.Errorf("%s: %d holders at once, but only %d are allowed", c.Path(), inside, c.atOnce)
	}
	return time.Since(began), nil
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
	slots := make(chan struct{}, 64)
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
