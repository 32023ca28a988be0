package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// Two readers share a znode. Each lease's Grant says when it was granted, and
// its end has the same Grant, by which an observer tells the leases apart.
func TestGrantSaysWhen(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var granted, released []recipes.Grant
		c := w.Connect("a", recipes.WithObserver(recipes.Observer{
			AcquireEnd: func(_ context.Context, _ recipes.Acquire, r recipes.AcquireResult) {
				granted = append(granted, r.Grant)
			},
			Released: func(_ context.Context, r recipes.Release) {
				released = append(released, r.Grant)
				if held := time.Since(r.Grant.At); held != r.Held {
					t.Errorf("held for %v, and granted %v ago", r.Held, held)
				}
			},
		}))
		lock, err := rwlock.New(c, "/lock")
		if err != nil {
			t.Fatal(err)
		}
		first := bubble.Acquire(t, t.Context(), lock.Reader())
		time.Sleep(time.Second)
		second := bubble.Acquire(t, t.Context(), lock.Reader())
		bubble.Release(t, first)
		bubble.Release(t, second)
		if len(granted) != 2 || len(released) != 2 || granted[0] != released[0] || granted[1] != released[1] {
			t.Fatalf("granted %+v, released %+v", granted, released)
		}
		if between := granted[1].At.Sub(granted[0].At); between < time.Second || between > 2*time.Second {
			t.Errorf("the second was granted %v after the first", between)
		}
	})
}
