package cycles

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// A quantile is within a bucket of the exact one.
func TestQuantile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var counted Times
	if got := counted.Quantile(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(random.Int64N(1 << (1 + random.IntN(40))))
		all = append(all, d)
		counted.count(d)
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.99, 1} {
		want, got := all[max(int(q*float64(len(all)))-1, 0)], counted.Quantile(q)
		if diff := got - want; max(diff, -diff) > want/50+1 {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
	counted.count(-1)
	counted.count(1<<63 - 1) // the longest of all
}

// Each goroutine takes its locks in turn, as those of other processes do; the
// first error ends all; and a load ends after its cycles.
func TestLoad(t *testing.T) {
	for _, l := range []Load{
		{Goroutines: 1, Locks: 1},
		{Goroutines: 3, Locks: 5},
		{Goroutines: 8, Locks: 2},
		{Goroutines: 4, Locks: 16},
		{Processes: 2, Goroutines: 1, Locks: 2},
		{Processes: 3, Goroutines: 4, Locks: 2},
	} {
		var mu sync.Mutex
		ran := make([]int, max(l.Processes, 1)*l.Goroutines) // cycles of each goroutine
		l.Cycles, l.Times = 10_000, new(Times)
		n, took, err := l.Run(t.Context(), func(_ context.Context, goroutine, lock int) error {
			mu.Lock()
			defer mu.Unlock()
			if want := (goroutine%l.Goroutines + ran[goroutine]*l.Goroutines) % l.Locks; lock != want {
				t.Errorf("%+v: cycle %d of goroutine %d uses lock %d, want %d", l, ran[goroutine], goroutine, lock, want)
			}
			ran[goroutine]++
			return nil
		})
		counted := int64(0)
		for _, n := range l.Times {
			counted += n
		}
		if err != nil || n != l.Cycles || counted != n || took <= 0 {
			t.Errorf("%+v: %d cycles, %d timed, in %v, %v", l, n, counted, took, err)
		}
	}
	bad := errors.New("bad")
	if _, _, err := (Load{Goroutines: 4, Locks: 1}).Run(t.Context(), func(context.Context, int, int) error { return bad }); !errors.Is(err, bad) {
		t.Errorf("%v", err)
	}
}
