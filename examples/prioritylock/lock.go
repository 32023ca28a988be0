package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// Lock is an exclusive lock with priorities. When the holder releases it, the
// contender with the highest priority gets it next; of equal ones, the first
// that came. Nobody is interrupted, and a low priority may wait forever.
//
//	<path>/waiting    a line without conflicts: it says who wants the lock
//	<path>/holder     a mutex: it alone says who holds
//
// A contender tries the mutex while nobody in the line goes before it, and
// never waits in the mutex's own line. So at worst an outdated look at the line
// lets a contender in too early, never at the same time as another one.
//
// The obvious way is wrong: to sort a lock's line by priority, as one can with
// a lock that lets its user decide who is first. Such a lock is granted to the
// first, and its line does not tell a holder from a waiter. A contender with
// priority 3 is first, and holds. One with priority 5 comes, is sorted before
// it, is first, and holds as well. Any order in which a contender may pass a
// holder has this fault.
//
// Each change wakes all who wait, and each of them lists the line and reads the
// znodes in it. That is good enough for tens of contenders.
type Lock struct {
	client   *framework.Client
	path     string
	priority int
	waiting  *recipes.Line
	holder   *locks.Mutex
}

var _ recipes.Acquirer = (*Lock)(nil)

// NewLock returns the lock at path for a contender with the given priority.
func NewLock(c *framework.Client, path string, priority int) (*Lock, error) {
	never := func(_, _ string) bool { return false }
	waiting, err := recipes.NewLine(c, path+"/waiting", "priority.v1", strconv.Itoa(priority), never)
	if err != nil {
		return nil, err
	}
	holder, err := locks.NewMutex(c, path+"/holder")
	if err != nil {
		return nil, err
	}
	return &Lock{c, path, priority, waiting, holder}, nil
}

// Path returns the path of the lock.
func (l *Lock) Path() string { return l.path }

// Waiting lists those who want the lock, in the order in which they came. A
// participant's Name is its priority.
func (l *Lock) Waiting(ctx context.Context) ([]recipes.Participant, error) {
	return l.waiting.Participants(ctx)
}

// TryAcquire acquires the lock if nobody holds it and nobody with this priority
// or a higher one waits. Otherwise it fails with ErrBusy.
func (l *Lock) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	if _, held := l.holder.Held(ctx); held {
		return l.holder.Acquire(ctx) // a re-entry waits for nobody
	}
	return l.try(ctx, "")
}

// Acquire waits until nobody holds the lock and nobody who waits goes before
// this contender. A lost session costs it its place among equals, not the call.
func (l *Lock) Acquire(ctx context.Context) (*recipes.Lease, error) {
	if _, held := l.holder.Held(ctx); held {
		return l.holder.Acquire(ctx)
	}
	for {
		lease, err := l.acquire(ctx)
		if !errors.Is(err, errPlaceLost) {
			return lease, err
		}
	}
}

var errPlaceLost = errors.New("place in line lost")

// acquire stands in line once.
func (l *Lock) acquire(ctx context.Context) (*recipes.Lease, error) {
	place, err := l.waiting.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer place.Release(ctx) //nolint:errcheck // it goes on if ctx has ended, and a place that was lost is gone
	watching, stop := context.WithCancel(ctx)
	defer stop()
	waiting, err := l.client.WatchChildren(watching, l.waiting.Path())
	if err != nil {
		return nil, err
	}
	holder, err := l.client.WatchChildren(watching, l.holder.Path())
	if err != nil {
		return nil, err
	}
	for {
		lease, err := l.try(ctx, place.Path())
		if !errors.Is(err, recipes.ErrBusy) {
			return lease, err
		}
		var change framework.Children
		select {
		case change = <-waiting:
		case change = <-holder:
		case <-place.Lost():
			return nil, errPlaceLost
		case <-ctx.Done():
		}
		if change.Err != nil {
			return nil, change.Err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("wait for %s: %w: %w", l.path, ctx.Err(), context.Cause(ctx))
		}
	}
}

// try acquires the mutex if nobody in line goes before the contender whose
// znode is at own. It looks at the line again once it has the mutex: who came
// before that has been seen by now.
func (l *Lock) try(ctx context.Context, own string) (*recipes.Lease, error) {
	if err := l.first(ctx, own); err != nil {
		return nil, err
	}
	lease, err := l.holder.TryAcquire(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.first(ctx, own); err != nil {
		return nil, errors.Join(err, lease.Release(ctx))
	}
	return lease, nil
}

// first fails with ErrBusy if somebody in line goes before the contender whose
// znode is at own.
func (l *Lock) first(ctx context.Context, own string) error {
	all, err := l.waiting.Participants(ctx)
	if err != nil {
		return err
	}
	ahead := true // of own in line
	for _, p := range all {
		if p.Path == own {
			ahead = false
			continue
		}
		if priority, _ := strconv.Atoi(p.Name); priority > l.priority || priority == l.priority && ahead {
			return recipes.ErrBusy
		}
	}
	if ahead && own != "" {
		return recipes.ErrBusy // it is not in line: its session has ended
	}
	return nil
}
