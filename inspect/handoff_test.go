package inspect_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Goroutines that hold two locks briefly, and independently of each other, are
// no deadlock, although those of a process hand one znode off for seconds while
// another process waits. With a pause of 5s that looked like a deadlock.
func TestHandoffsAreNoDeadlock(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		ctx, stop := context.WithCancel(t.Context())
		var users sync.WaitGroup
		defer users.Wait()
		defer stop()
		for i, c := range []*framework.Client{w.Connect("a"), w.Connect("b")} {
			for j, path := range []string{"/locks/x", "/locks/y"} {
				m := mutex(t, c, path)
				for range 2 {
					users.Go(func() {
						time.Sleep(time.Duration(i^j) * 100 * time.Millisecond) // a is first at x, and b at y
						for ctx.Err() == nil {
							_ = recipes.Do(ctx, m, func(context.Context, *recipes.Lease) error {
								time.Sleep(600 * time.Millisecond)
								return nil
							})
						}
					})
				}
			}
		}
		observer := w.Connect("observer")
		for range 30 {
			time.Sleep(1100 * time.Millisecond)
			d, err := inspect.FindDeadlocks(t.Context(), observer, "/locks")
			if err != nil {
				t.Fatal(err)
			}
			if len(d.Cycles) > 0 {
				t.Fatalf("a deadlock: %v", d.Cycles[0])
			}
		}
	})
}
