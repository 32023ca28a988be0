// Package cycles is the load generator of zkr bench, of bench/ and of this
// module's benchmarks: goroutines that acquire and release locks, with no pause
// in between.
package cycles

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Load is a number of goroutines that run cycles. Goroutine i begins with lock
// i modulo Locks, and then takes every Goroutines-th in turn. So it stays with
// one lock if Goroutines is a multiple of Locks.
type Load struct {
	Goroutines, Locks int
	Processes         int // each has so many goroutines, which take the same locks; 0 means 1

	// The load ends after this time, or after so many cycles, if not 0. A cycle
	// that has begun is completed.
	For    time.Duration
	Cycles int64

	Times *Times // counts how long each cycle took, if not nil
}

// Run runs the load. It returns how many cycles ended and how long that took,
// or the first error of a cycle. It passes cycle the numbers of the goroutine
// and of its lock. Goroutine i belongs to process i / Goroutines.
func (l Load) Run(ctx context.Context, cycle func(ctx context.Context, goroutine, lock int) error) (cycles int64, took time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var begun, ended atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for i := range max(l.Processes, 1) * l.Goroutines {
		all.Go(func() {
			done := int64(0)
			defer func() { ended.Add(done) }()
			for at := i % l.Goroutines % l.Locks; ctx.Err() == nil && (l.For == 0 || time.Since(began) < l.For) && (l.Cycles == 0 || begun.Add(1) <= l.Cycles); at = (at + l.Goroutines) % l.Locks {
				var from time.Time
				if l.Times != nil {
					from = time.Now()
				}
				if err := cycle(ctx, i, at); err != nil {
					cancel(err)
					return
				}
				done++
				if l.Times != nil {
					l.Times.count(time.Since(from))
				}
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

// Times counts durations in buckets, which are each 1.1 % wide: single
// durations would be too many to keep.
type Times [64 * perDouble]int64

const perDouble = 64 // buckets between a duration and its double

func (t *Times) count(d time.Duration) {
	atomic.AddInt64(&t[int(perDouble*math.Log2(float64(max(d, 1))))], 1)
}

// Quantile returns the duration that the fraction q of those counted does not
// exceed, and 0 if there are none.
func (t *Times) Quantile(q float64) time.Duration {
	var all int64
	for _, n := range t {
		all += n
	}
	rank := max(int64(math.Ceil(q*float64(all))), 1)
	for i, n := range t {
		if rank -= n; rank <= 0 {
			return time.Duration(math.Exp2((float64(i) + 0.5) / perDouble))
		}
	}
	return 0
}
