package recipes_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestReentry calls Acquire with various contexts while a lease on the lock is
// held. want is nil if it re-enters at once, errWaits if it waits in line.
// Known failures elsewhere: Curator, ports of Curator to Go.
func TestReentry(t *testing.T) {
	errWaits := errors.New("it waits in line")
	type scene struct {
		t     *testing.T
		w     *bubble.World
		c     *framework.Client
		m     *locks.Mutex
		outer *recipes.Lease
	}
	tests := []struct {
		story string
		ctx   func(s scene) context.Context
		mutex func(s scene) recipes.Acquirer // nil: the same
		want  error
	}{
		{
			story: "the lease's context",
			ctx:   func(s scene) context.Context { return s.outer.Context() },
		},
		{
			story: "another value of the same lock",
			ctx:   func(s scene) context.Context { return s.outer.Context() },
			mutex: func(s scene) recipes.Acquirer { return mutexOf(s.t, s.c) },
		},
		{
			story: "a context derived from it",
			ctx: func(s scene) context.Context {
				ctx, cancel := context.WithTimeout(s.outer.Context(), time.Hour)
				s.t.Cleanup(cancel)
				return ctx
			},
		},
		{
			story: "a context bound to it",
			ctx: func(s scene) context.Context {
				ctx, cancel := s.outer.Bind(s.t.Context())
				s.t.Cleanup(cancel)
				return ctx
			},
		},
		{
			story: "a context bound to it and then to a lease on another lock",
			ctx: func(s scene) context.Context {
				other, err := locks.NewMutex(s.c, "/app/other")
				if err != nil {
					s.t.Fatal(err)
				}
				l := bubble.Acquire(s.t, s.outer.Context(), other)
				s.t.Cleanup(func() { bubble.Release(s.t, l) })
				return l.Context()
			},
		},
		{
			story: "another goroutine's context",
			ctx:   func(s scene) context.Context { return s.t.Context() },
			want:  errWaits,
		},
		{
			story: "the context that the lease was acquired with",
			ctx:   func(s scene) context.Context { return context.Background() },
			want:  errWaits,
		},
		{
			story: "another client's lock at the same path",
			ctx:   func(s scene) context.Context { return s.outer.Context() },
			mutex: func(s scene) recipes.Acquirer { return mutexOf(s.t, s.w.Connect("another")) },
			want:  errWaits,
		},
		{
			story: "a released lease's context",
			ctx: func(s scene) context.Context {
				inner := bubble.Acquire(s.t, s.outer.Context(), s.m)
				bubble.Release(s.t, inner)
				return context.WithoutCancel(inner.Context())
			},
			want: nil, // the context carries outer too
		},
		{
			story: "a context that carries released leases only",
			ctx: func(s scene) context.Context {
				inner := bubble.Acquire(s.t, s.outer.Context(), s.m) // still holds
				s.t.Cleanup(func() { bubble.Release(s.t, inner) })
				bubble.Release(s.t, s.outer)
				return context.WithoutCancel(s.outer.Context())
			},
			want: errWaits,
		},
		{
			story: "a released lease's context, not detached",
			ctx: func(s scene) context.Context {
				bubble.Release(s.t, s.outer)
				return s.outer.Context()
			},
			want: recipes.ErrReleased,
		},
		{
			story: "a lost lease's context",
			ctx: func(s scene) context.Context {
				s.w.Expire(s.c)
				bubble.Lost(s.t, s.outer)
				return s.outer.Context()
			},
			want: recipes.ErrNotHeld,
		},
		{
			story: "a lost lease's values",
			ctx: func(s scene) context.Context {
				s.w.Expire(s.c)
				bubble.Lost(s.t, s.outer)
				return context.WithoutCancel(s.outer.Context())
			},
			want: framework.ErrSessionLost,
		},
		{
			story: "a canceled context that carries it",
			ctx: func(s scene) context.Context {
				ctx, cancel := context.WithCancel(s.outer.Context())
				cancel()
				return ctx
			},
			want: context.Canceled,
		},
	}
	for _, test := range tests {
		t.Run(test.story, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.Connect("a")
				s := scene{t: t, w: w, c: c, m: mutexOf(t, c)}
				s.outer = bubble.Acquire(t, t.Context(), s.m)
				ctx := test.ctx(s)
				var m recipes.Acquirer = s.m
				if test.mutex != nil {
					m = test.mutex(s)
				}
				wait, cancel := context.WithTimeoutCause(ctx, time.Second, errWaits)
				defer cancel()
				w.ResetRequests()
				l, err := m.Acquire(wait)
				if (err == nil) != (test.want == nil) {
					t.Fatalf("Acquire: %v, want %v", err, test.want)
				}
				bubble.WantErr(t, err, test.want)
				if err == nil {
					if got := bubble.Without(w.Requests(), testutil.OpSync); len(got) > 0 {
						t.Errorf("requests: %v", got)
					}
					if l.Path() != s.outer.Path() || l.Token() != s.outer.Token() || !l.Held() {
						t.Errorf("got %s %v, want the outer's %s %v", l.Path(), l.Token(), s.outer.Path(), s.outer.Token())
					}
					bubble.Release(t, l)
				}
				if s.outer.Held() {
					bubble.Release(t, s.outer)
				}
			})
		})
	}
}

// Nested leases can be released in any order. The last release removes the
// znode.
func TestNestedLeasesAreReleasedInAnyOrder(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		orders := [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {2, 0, 1}}
		for _, order := range orders {
			outer := bubble.Acquire(t, t.Context(), m)
			middle := bubble.Acquire(t, outer.Context(), m)
			leases := []*recipes.Lease{outer, middle, bubble.Acquire(t, middle.Context(), m)}
			for i, lease := range order {
				if !w.Exists(outer.Path()) {
					t.Errorf("order %v: the znode was removed before release %d", order, i)
				}
				if !leases[lease].Held() {
					t.Errorf("order %v: lease %d is not held before release %d", order, lease, i)
				}
				bubble.Release(t, leases[lease])
				bubble.Release(t, leases[lease]) // again: no effect
				if leases[lease].Held() || leases[lease].Context().Err() == nil {
					t.Errorf("order %v: lease %d is held after its release", order, lease)
				}
				bubble.WantErr(t, leases[lease].Err(), recipes.ErrReleased)
				bubble.WantErr(t, context.Cause(leases[lease].Context()), recipes.ErrReleased)
			}
			if w.Exists(outer.Path()) {
				t.Errorf("order %v: the znode exists after the last release", order)
			}
			for i, l := range leases {
				select {
				case <-l.Lost():
					t.Errorf("order %v: Lost of lease %d is closed", order, i)
				default:
				}
			}
		}
		w.NothingLeft(lockPath)
	})
}

// A released nested lease is not affected by a later loss.
func TestReleasedNestedLeaseIsNotLost(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		m := mutexOf(t, c)
		outer := bubble.Acquire(t, t.Context(), m)
		inner := bubble.Acquire(t, outer.Context(), m)
		held := bubble.Acquire(t, outer.Context(), m)
		bubble.Release(t, inner)
		w.Expire(c)
		bubble.Lost(t, outer)
		bubble.Lost(t, held)
		bubble.WantErr(t, inner.Err(), recipes.ErrReleased)
		bubble.Release(t, inner)
		bubble.WantErr(t, held.Release(t.Context()), recipes.ErrNotHeld)
		bubble.WantErr(t, outer.Release(t.Context()), recipes.ErrNotHeld)
		w.NothingLeft(lockPath)
	})
}

// Two goroutines under one outer lease exclude each other on an inner lock.
func TestSiblingsUnderOneLeaseExcludeEachOther(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		outer := bubble.Acquire(t, t.Context(), mutexOf(t, c))
		other, err := locks.NewMutex(c, "/app/other")
		if err != nil {
			t.Fatal(err)
		}
		one := bubble.Acquire(t, outer.Context(), other)
		two := bubble.Acquiring(outer.Context(), other)
		time.Sleep(time.Second)
		bubble.Pending(t, two)
		bubble.Release(t, one)
		bubble.Release(t, bubble.Granted(t, two).Lease)
		bubble.Release(t, outer)
		w.NothingLeft(lockPath)
	})
}

func TestOwnersReenter(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		mine, other := recipes.NewOwner(), recipes.NewOwner()
		ctx := recipes.WithOwner(t.Context(), mine)
		outer := bubble.Acquire(t, ctx, m)
		if l, ok := m.Held(ctx); !ok || l != outer {
			t.Errorf("Held: %v, %v", l, ok)
		}
		inner := bubble.Acquire(t, ctx, m)
		bubble.Release(t, outer) // the owner still has the inner one
		again := bubble.Acquire(t, ctx, m)
		waiting := bubble.Acquiring(recipes.WithOwner(t.Context(), other), m)
		bubble.Pending(t, waiting)
		if _, ok := m.Held(recipes.WithOwner(t.Context(), other)); ok {
			t.Error("held by an owner that waits")
		}
		bubble.Release(t, inner)
		bubble.Pending(t, waiting)
		bubble.Release(t, again)
		bubble.Release(t, bubble.Granted(t, waiting).Lease)
		if _, ok := m.Held(ctx); ok {
			t.Error("held after the last release")
		}
		bubble.Release(t, bubble.Acquire(t, ctx, m))
		w.NothingLeft(lockPath)
	})
}

// After a loss an owner's Acquire fails until the owner has released the lost
// lease.
func TestOwnerLearnsOfItsLoss(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		m := mutexOf(t, c)
		ctx := recipes.WithOwner(t.Context(), recipes.NewOwner())
		l := bubble.Acquire(t, ctx, m)
		w.Expire(c)
		bubble.Lost(t, l)
		if err := c.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := m.Acquire(ctx)
		bubble.WantErr(t, err, recipes.ErrNotHeld, framework.ErrSessionLost)
		_, err = m.TryAcquire(ctx)
		bubble.WantErr(t, err, recipes.ErrNotHeld)
		bubble.WantErr(t, l.Release(ctx), recipes.ErrNotHeld)
		bubble.Release(t, bubble.Acquire(t, ctx, m))
		w.NothingLeft(lockPath)
	})
}

// A timeout of the wait does not end the lease's context, which keeps the
// values.
func TestLeaseContextOutlivesTheWait(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		type key struct{}
		m := mutexOf(t, w.Connect("a"))
		wait, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Second)
		l := bubble.Acquire(t, wait, m)
		bound, unbind := l.Bind(wait)
		defer unbind()
		cancel()
		synctest.Wait()
		if l.Context().Err() != nil || l.Context().Value(key{}) != "value" {
			t.Errorf("context: %v, value %v", l.Context().Err(), l.Context().Value(key{}))
		}
		if bound.Err() == nil {
			t.Error("a bound context outlives its parent")
		}
		if got, ok := m.Held(l.Context()); !ok || got != l {
			t.Errorf("Held: %v, %v", got, ok)
		}
		if _, ok := m.Held(t.Context()); ok {
			t.Error("held by a context without a lease")
		}
		bound, unbind = l.Bind(t.Context())
		defer unbind()
		bubble.Release(t, l)
		synctest.Wait()
		bubble.WantErr(t, context.Cause(bound), recipes.ErrReleased)
		late, unbind := l.Bind(t.Context())
		defer unbind()
		bubble.WantErr(t, context.Cause(late), recipes.ErrReleased)
		w.NothingLeft(lockPath)
	})
}

func TestErrorsNameWhatWasDone(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		told := error(nil)
		c := w.Connect("a", recipes.WithObserver(recipes.Observer{
			AcquireEnd: func(_ context.Context, _ recipes.Acquire, r recipes.AcquireResult) { told = r.Err },
		}))
		l := bubble.Acquire(t, t.Context(), mutexOf(t, c))
		for _, other := range []*framework.Client{c, w.Connect("b")} { // with an observer, and without
			_, err := mutexOf(t, other).TryAcquire(t.Context())
			if want := "locks: acquire /app/lock: lock is busy"; err == nil || err.Error() != want || told == nil || told.Error() != want {
				t.Errorf("error %q, told %q, want %q", err, told, want)
			}
		}
		w.Expire(c)
		bubble.Lost(t, l)
		err := l.Release(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), "recipes: release /app/lock: not held: session lost") {
			t.Errorf("error %q", err)
		}
	})
}

// An owner keeps nothing of the leases that were released.
func TestOwnerKeepsNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, owner := w.Connect("a"), recipes.NewOwner()
		ctx := recipes.WithOwner(t.Context(), owner)
		l := bubble.Acquire(t, ctx, mutexOf(t, c))
		bubble.Release(t, recipes.Join(ctx, l), l)
		if err := c.Close(); err != nil { // so that nothing runs that Count looks at
			t.Error(err)
		}
		if n := w.Count(owner); n["recipes.Owner.leases"] != 0 || n["*recipes.Owner"] != 1 {
			t.Errorf("%d leases are kept by %d owners", n["recipes.Owner.leases"], n["*recipes.Owner"])
		}
	})
}
