package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// Do tells a loss once, and in one line, whatever the work returns. The usual
// context.Cause(ctx) made an error of two lines, each of which told the loss.
// If the work has called no Release, the error names none: it said that the
// release had failed.
func TestDoTellsALossOnce(t *testing.T) {
	lose := map[string]func(*bubble.World, *framework.Client, *recipes.Lease){
		"the session expires": func(w *bubble.World, c *framework.Client, _ *recipes.Lease) { w.Expire(c) },
		"nobody answers":      func(w *bubble.World, _ *framework.Client, _ *recipes.Lease) { w.ClientNet("a").Cut() },
		"a znode is deleted": func(w *bubble.World, _ *framework.Client, l *recipes.Lease) {
			_ = w.ConnectNext().Delete(w.T.(*testing.T).Context(), l.Path(), -1)
		},
		"the client is closed": func(_ *bubble.World, c *framework.Client, _ *recipes.Lease) { _ = c.Close() },
		"the time is over":     func(*bubble.World, *framework.Client, *recipes.Lease) {},
	}
	work := map[string]func(context.Context, *framework.Client, *recipes.Lease) error{
		"nothing":             func(context.Context, *framework.Client, *recipes.Lease) error { return nil },
		"the context's error": func(ctx context.Context, _ *framework.Client, _ *recipes.Lease) error { return ctx.Err() },
		"the cause":           func(ctx context.Context, _ *framework.Client, _ *recipes.Lease) error { return context.Cause(ctx) },
		"the cause, and what was done": func(ctx context.Context, _ *framework.Client, _ *recipes.Lease) error {
			return fmt.Errorf("write the report: %w", context.Cause(ctx))
		},
		"the lease's error": func(_ context.Context, _ *framework.Client, l *recipes.Lease) error { return l.Err() },
		"of a guarded write": func(ctx context.Context, _ *framework.Client, l *recipes.Lease) error {
			_, err := l.Multi(ctx)
			return err
		},
		"of a request": func(ctx context.Context, c *framework.Client, _ *recipes.Lease) error { return c.Sync(ctx, "/") },
		"of a Do on the lease": func(ctx context.Context, _ *framework.Client, l *recipes.Lease) error {
			return l.Do(ctx, func(ctx context.Context, _ *recipes.Lease) error { return context.Cause(ctx) })
		},
		"of several lines": func(_ context.Context, _ *framework.Client, _ *recipes.Lease) error {
			return errors.Join(errors.New("step one"), errors.New("step two"))
		},
		"of the release itself": func(ctx context.Context, _ *framework.Client, l *recipes.Lease) error {
			return l.Release(context.WithoutCancel(ctx))
		},
	}
	for why, lose := range lose {
		for what, work := range work {
			t.Run(why+"/"+what, func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					c := w.Connect("a")
					hold := recipes.WithMaxHold(time.Minute)
					two, err := semaphore.New(c, "/two", 2, hold)
					if err != nil {
						t.Fatal(err)
					}
					both, err := locks.All(mutexOf(t, c, hold), two)
					if err != nil {
						t.Fatal(err)
					}
					for name, a := range map[string]recipes.Acquirer{"a mutex": mutexOf(t, c, hold), "two permits": two.Permits(2), "both": both} {
						if c.State() == framework.Closed {
							continue
						}
						w.ClientNet("a").Heal()
						var loss error
						err := recipes.Do(t.Context(), a, func(ctx context.Context, l *recipes.Lease) error {
							lose(w, c, l)
							bubble.Lost(t, l)
							loss = l.Err()
							return work(ctx, c, l)
						})
						bubble.WantErr(t, err, recipes.ErrNotHeld, loss)
						if text := err.Error(); strings.Contains(text, "\n") || strings.Count(text, loss.Error()) != 1 {
							t.Errorf("%s: %q, want %q once", name, text, loss)
						}
						if released := strings.Contains(err.Error(), "release"); released != (what == "of the release itself") {
							t.Errorf("%s: %q says that a release has failed: %v", name, err, released)
						}
					}
				})
			})
		}
	}
}
