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

// A quantile is within a bucket of the exact one, also over several processes.
func TestQuantile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var counted, other Times
	if got := counted.Quantile(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	var all []time.Duration
	for i := range 10_000 {
		d := time.Duration(random.Int64N(1 << (1 + random.IntN(40))))
		all = append(all, d)
		if i%2 == 0 {
			counted.count(d)
		} else {
			other.count(d)
		}
	}
	counted.Add(&other)
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

// Each lock is used, by as many goroutines as there are; the first error ends
// all; and a load ends after its cycles.
func TestLoad(t *testing.T) {
	for _, test := range []struct{ goroutines, locks int }{{1, 1}, {3, 5}, {8, 2}, {4, 16}} {
		var mu sync.Mutex
		used := map[int]int{}
		var times Times
		n, took, err := Load{Goroutines: test.goroutines, Locks: test.locks, Cycles: 10_000, Times: &times}.Run(t.Context(), func(_ context.Context, goroutine, lock int) error {
			mu.Lock()
			defer mu.Unlock()
			used[lock]++
			if test.goroutines%test.locks == 0 && lock != goroutine%test.locks {
				t.Errorf("%+v: goroutine %d uses lock %d", test, goroutine, lock)
			}
			return nil
		})
		counted := int64(0)
		for _, n := range times {
			counted += n
		}
		if err != nil || n != 10_000 || counted != n || took <= 0 {
			t.Errorf("%+v: %d cycles, %d timed, in %v, %v", test, n, counted, took, err)
		}
		if test.goroutines == 1 && len(used) != test.locks {
			t.Errorf("%+v: %d locks are used", test, len(used))
		}
	}
	bad := errors.New("bad")
	if _, _, err := (Load{Goroutines: 4, Locks: 1}).Run(t.Context(), func(context.Context, int, int) error { return bad }); !errors.Is(err, bad) {
		t.Errorf("%v", err)
	}
}
