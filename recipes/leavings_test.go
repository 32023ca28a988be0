package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// What a client notes of a znode that leaves, it forgets when that is gone:
// after releases, asynchronous or not, of leases that follow each other and of
// such that overlap, and after Acquires that were given up.
func TestNothingOfAReleaseStays(t *testing.T) {
	for name, make := range everyRecipe {
		t.Run(name, func(t *testing.T) {
			for _, opts := range [][]recipes.ZnodeOption{nil, {recipes.WithAsyncRelease()}} {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					c := w.Connect("a", framework.WithBatching(false))
					mine, err := make(c, opts...)
					if err != nil {
						t.Fatal(err)
					}
					theirs, err := make(w.Connect("b"))
					if err != nil {
						t.Fatal(err)
					}
					w.Latency(time.Millisecond)
					cycle := func() {
						bubble.Release(t, bubble.Acquire(t, t.Context(), mine))
						ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
						defer cancel()
						other := bubble.Acquire(t, t.Context(), theirs)
						if l, err := mine.Acquire(ctx); err == nil { // a reader
							defer bubble.Release(t, l)
						}
						next := bubble.Acquiring(t.Context(), mine)
						time.Sleep(5 * time.Millisecond)
						bubble.Release(t, other)
						bubble.Release(t, bubble.Granted(t, next).Lease)
					}
					count := func() bubble.Census {
						time.Sleep(2 * time.Minute) // until what runs in the background has ended
						return w.Count(c)
					}
					cycle()
					before := count()
					cycles := bubble.Few(8, 20)
					for range cycles {
						cycle()
					}
					for _, grown := range count().Grown(before, cycles/2) {
						t.Error(grown)
					}
				})
			}
		})
	}
}
