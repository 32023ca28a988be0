package recipes_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// listContext is a context that cannot be compared with another one.
type listContext struct {
	context.Context
	values []any
}

// Whatever context AcquireStart returns, the caller's cancellation, its cause
// and its leases stay. An observer's own cancellation ended no wait, but its
// cause used to be in the error of the caller's; and a context that cannot be
// compared made Acquire panic.
func TestTheCallersContextStays(t *testing.T) {
	ended, end := context.WithCancelCause(context.Background())
	end(errors.New("the observer's"))
	for name, returned := range map[string]func(ctx context.Context) context.Context{
		"nothing": func(context.Context) context.Context { return nil },
		"a nil pointer": func(context.Context) context.Context {
			var none *listContext
			return none
		},
		"the same":   func(ctx context.Context) context.Context { return ctx },
		"background": func(context.Context) context.Context { return context.Background() },
		"an ended one": func(context.Context) context.Context {
			return context.WithValue(ended, tag{}, "value")
		},
		"one that ends": func(ctx context.Context) context.Context {
			ctx, end := context.WithTimeoutCause(ctx, time.Second, errors.New("the observer's"))
			context.AfterFunc(ctx, end)
			return ctx
		},
		"one that never ends": context.WithoutCancel,
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.Connect("a", framework.Together(
					framework.WithObserver(framework.Observer{
						RequestStart: func(ctx context.Context, _ framework.Request) context.Context { return returned(ctx) },
					}),
					recipes.WithObserver(recipes.Observer{
						AcquireStart: func(ctx context.Context, _ recipes.Acquire) context.Context { return returned(ctx) },
					}),
				))
				m, err := locks.NewMutex(c, "/lock")
				if err != nil {
					t.Fatal(err)
				}
				l := bubble.Acquire(t, listContext{t.Context(), []any{1}}, m)
				inner := bubble.Acquire(t, listContext{l.Context(), []any{2}}, m) // re-enters
				if l.Context().Err() != nil || l.Context().Value(tag{}) != nil {
					t.Errorf("the lease's context: %v, with %v", l.Context().Err(), l.Context().Value(tag{}))
				}

				tired := errors.New("tired of waiting")
				caller, cancel := context.WithCancelCause(t.Context())
				waiting := bubble.Acquiring(caller, m)
				time.Sleep(2 * time.Second)
				bubble.Pending(t, waiting)
				cancel(tired)
				began := time.Now()
				err = bubble.Await(t, "the canceled Acquire", waiting).Err
				if bubble.WantErr(t, err, context.Canceled, tired); time.Since(began) > 0 {
					t.Errorf("it took %v", time.Since(began))
				}

				began = time.Now()
				_, err = recipes.Within(m, 3*time.Second).Acquire(t.Context())
				if bubble.WantErr(t, err, context.DeadlineExceeded); time.Since(began) != 3*time.Second {
					t.Errorf("it took %v", time.Since(began))
				}
				bubble.Release(t, inner, l)
			})
		})
	}
}

// The leases and the owner that count are those of the caller's context. An
// observer may return a context that carries a lease, for instance that of the
// request whose work it observes. A stranger was then granted a held mutex by
// re-entry, and the caller's own lease was hidden, so that it waited for
// itself.
func TestAnObserversContextDecidesNothingAboutReentry(t *testing.T) {
	for _, by := range []string{"a lease", "an owner"} {
		t.Run(by, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				returned := context.Background()
				c := w.Connect("a", recipes.WithObserver(recipes.Observer{
					AcquireStart: func(context.Context, recipes.Acquire) context.Context { return returned },
				}))
				m, other := mutexAt(t, c, "/lock"), mutexAt(t, c, "/other")
				outside := t.Context() // of the holder
				if by == "an owner" {
					outside = recipes.WithOwner(outside, recipes.NewOwner())
				}
				carrying := func(l *recipes.Lease) context.Context {
					if by == "an owner" {
						return outside
					}
					return l.Context()
				}
				l := bubble.Acquire(t, outside, m)

				returned = carrying(l)
				stranger := bubble.Acquiring(t.Context(), m)
				bubble.Pending(t, stranger)
				if _, err := m.TryAcquire(t.Context()); !errors.Is(err, recipes.ErrBusy) {
					t.Errorf("a stranger that tries: %v", err)
				}

				returned = recipes.WithOwner(bubble.Acquire(t, t.Context(), other).Context(), recipes.NewOwner())
				inner := bubble.Acquire(t, carrying(l), m)
				bubble.Release(t, inner, l)
				bubble.Release(t, bubble.Granted(t, stranger).Lease)
			})
		})
	}
}
