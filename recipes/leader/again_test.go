package leader_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
)

// A Run whose function panics leaves no health check behind that is still under
// way, and the Election can run again.
func TestARunAfterAPanic(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		var checks atomic.Int32 // under way
		check := func(context.Context) error {
			checks.Add(1)
			defer checks.Add(-1)
			time.Sleep(time.Second)
			return nil
		}
		e := w.candidate(w.Connect("a"), "a", leader.WithHealthCheck(time.Minute, check))
		for range 2 {
			func() {
				defer func() {
					if recover() == nil || checks.Load() != 0 {
						t.Errorf("%d checks under way", checks.Load())
					}
				}()
				_ = e.Run(t.Context(), func(context.Context, *recipes.Lease) error {
					time.Sleep(time.Second / 2)
					panic("a term")
				})
			}()
		}
		if err := e.Run(t.Context(), func(context.Context, *recipes.Lease) error { return leader.ErrStop }); err != nil {
			t.Error(err)
		}
	})
}
