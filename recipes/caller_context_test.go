package recipes_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// ownContext is a context of the caller's own type, with a function that is
// called at each call of its methods.
type ownContext struct {
	context.Context
	called func()
}

func (c ownContext) Done() <-chan struct{} {
	c.called()
	return c.Context.Done()
}

func (c ownContext) Err() error {
	c.called()
	return c.Context.Err()
}

func (c ownContext) Value(key any) any {
	c.called()
	return c.Context.Value(key)
}

func (c ownContext) Deadline() (time.Time, bool) {
	c.called()
	return c.Context.Deadline()
}

// balance is what an observer counts that asks no context for anything.
type balance struct{ waiting, held atomic.Int32 }

func (b *balance) observer() framework.Option {
	return framework.Together(
		framework.WithObserver(framework.Observer{
			RequestEnd: func(context.Context, framework.Request, framework.RequestResult) {},
		}),
		recipes.WithObserver(recipes.Observer{
			AcquireStart: func(ctx context.Context, _ recipes.Acquire) context.Context {
				b.waiting.Add(1)
				return ctx
			},
			AcquireEnd: func(_ context.Context, _ recipes.Acquire, r recipes.AcquireResult) {
				b.waiting.Add(-1)
				if r.Err == nil {
					b.held.Add(1)
				}
			},
			Released: func(context.Context, recipes.Release) { b.held.Add(-1) },
			Lost:     func(context.Context, recipes.Loss) { b.held.Add(-1) },
		}),
	)
}

// failing runs a scenario for each way in which a method of a context can fail,
// with and without observers: fail is called at the nth call of its methods. It
// ends when calls, which the scenario returns, is less than nth.
func failing(t *testing.T, scenario func(t *testing.T, w *bubble.World, c *framework.Client, nth int32, fail func()) (calls int32)) {
	t.Helper()
	for how, fail := range map[string]func(){"panics": func() { panic("the caller's context") }, "exits": runtime.Goexit} {
		for _, observed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, observed %v", how, observed), func(t *testing.T) {
				for nth, more := int32(1), true; more && !t.Failed(); nth++ {
					bubble.Run(t, func(t *testing.T, w *bubble.World) {
						var b balance
						var opts []framework.Option
						if observed {
							opts = append(opts, b.observer())
						}
						calls := scenario(t, w, w.Connect("a", opts...), nth, fail)
						if b.waiting.Load() != 0 || b.held.Load() != 0 {
							t.Errorf("%d waiting and %d held by the events", b.waiting.Load(), b.held.Load())
						}
						if t.Failed() {
							t.Logf("it failed at call %d of %d", nth, calls)
						}
						more = calls >= nth
					})
				}
			})
		}
	}
}

// inGoroutine calls fn, which may panic or end its goroutine.
func inGoroutine(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		fn()
	}()
	bubble.Await(t, "the caller", done)
}

// A caller whose context panics or ends the goroutine, at whichever call of its
// methods, keeps no lock. If that was between the grant and the return of
// Acquire, or before Do called its function, the lock used to be held by nobody
// for as long as the session lived.
func TestAContextThatFailsKeepsNoLock(t *testing.T) {
	ok := func(a recipes.Acquirer, err error) recipes.Acquirer {
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for name, kind := range map[string]func(c *framework.Client) recipes.Acquirer{
		"mutex":   func(c *framework.Client) recipes.Acquirer { return ok(locks.NewMutex(c, "/l")) },
		"several": func(c *framework.Client) recipes.Acquirer { return allOf(t, c) },
		"permits": func(c *framework.Client) recipes.Acquirer {
			s, err := semaphore.New(c, "/s", 2)
			return ok(s.Permits(2), err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			failing(t, func(t *testing.T, w *bubble.World, c *framework.Client, nth int32, fail func()) int32 {
				var calls atomic.Int32
				ctx := ownContext{t.Context(), func() {
					if calls.Add(1) == nth {
						fail()
					}
				}}
				inGoroutine(t, func() {
					_ = recipes.Do(ctx, kind(c), func(context.Context, *recipes.Lease) error { return nil })
				})
				bubble.Release(t, bubble.Granted(t, bubble.Acquiring(t.Context(), kind(w.Connect("b")))).Lease)
				return calls.Load()
			})
		})
	}
}

// A caller whose context fails when it has ended leaves the local queue. It
// used to stay there, and was granted the lock when its turn came.
func TestAContextThatFailsAtItsEndLeavesTheQueue(t *testing.T) {
	failing(t, func(t *testing.T, w *bubble.World, c *framework.Client, nth int32, fail func()) int32 {
		held := bubble.Acquire(t, t.Context(), mutexAt(t, c, "/l"))
		caller, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var calls atomic.Int32
		ctx := ownContext{caller, func() {
			if caller.Err() != nil && calls.Add(1) == nth {
				fail()
			}
		}}
		inGoroutine(t, func() { _, _ = mutexAt(t, c, "/l").Acquire(ctx) })
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, bubble.Acquiring(t.Context(), mutexAt(t, w.Connect("b"), "/l"))).Lease)
		return calls.Load()
	})
}

// A release without a context is a bug of the caller, which panics. With an
// observer of requests it did so with the lock's mutex held: no caller of that
// lock in the process went on, and neither did Close.
func TestAReleaseWithoutAContextKeepsNoLock(t *testing.T) {
	for _, observed := range []bool{false, true} {
		t.Run(fmt.Sprintf("observed %v", observed), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				var b balance
				var opts []framework.Option
				if observed {
					opts = append(opts, b.observer())
				}
				c := w.Connect("a", opts...)
				l := bubble.Acquire(t, t.Context(), mutexAt(t, c, "/l"))
				inGoroutine(t, func() {
					_ = l.Release(nil) //nolint:staticcheck // a bug of the caller; it returns if the znode is gone before it waits
				})
				bubble.Release(t, bubble.Granted(t, bubble.Acquiring(t.Context(), mutexAt(t, w.Connect("b"), "/l"))).Lease)
				bubble.Release(t, bubble.Granted(t, bubble.Acquiring(t.Context(), mutexAt(t, c, "/l"))).Lease)
			})
		})
	}
}
