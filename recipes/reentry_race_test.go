package recipes_test

import (
	"context"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// A hooked context calls a function when it is asked.
type hooked struct {
	context.Context
	onErr   func()
	onValue func(key any)
}

func (h *hooked) Err() error {
	if h.onErr != nil {
		h.onErr()
	}
	return h.Context.Err()
}

func (h *hooked) Value(key any) any {
	if h.onValue != nil {
		h.onValue(key)
	}
	return h.Context.Value(key)
}

// The inner of two leases is released while an Acquire is about to re-enter it.
// It re-enters the outer one instead of waiting for it.
func TestReentryOfALeaseThatIsReleasedMeanwhile(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		outer := bubble.Acquire(t, t.Context(), m)
		inner := bubble.Acquire(t, outer.Context(), m)
		released := false
		// Like a context that was bound to inner, but that does not end with it.
		ctx := &hooked{Context: context.WithoutCancel(inner.Context()), onErr: func() {
			if !released {
				released = true
				bubble.Release(t, inner)
			}
		}}
		w.ResetRequests()
		again := bubble.Acquire(t, ctx, m)
		if !released || again.Path() != outer.Path() || w.Total() != 0 {
			t.Errorf("released %v, acquired %s with %d requests, want %s", released, again.Path(), w.Total(), outer.Path())
		}
		bubble.Release(t, outer, again)
		w.NothingLeft(lockPath)
	})
}

// An owner acquires a lock, on another goroutine, while an Acquire of its finds
// out whether the owner holds that, or just after. It re-enters the lease
// instead of waiting for it.
func TestReentryOfALockThatIsAcquiredMeanwhile(t *testing.T) {
	for look := 1; look <= 2; look++ {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			m := mutexOf(t, w.Connect("a"))
			owned := recipes.WithOwner(t.Context(), recipes.NewOwner())
			var meanwhile *recipes.Lease
			asked := 0
			ctx := &hooked{Context: owned, onValue: func(key any) {
				if !recipes.IsOwnerKey(key) {
					return
				}
				if asked++; asked == look {
					meanwhile = bubble.Acquire(t, owned, m)
				}
			}}
			again := bubble.Acquire(t, ctx, m)
			if meanwhile == nil || again.Path() != meanwhile.Path() {
				t.Fatal("it has not re-entered the lock")
			}
			bubble.Release(t, meanwhile, again)
			w.NothingLeft(lockPath)
		})
	}
}

// The same with a lease on a lock that conflicts: the Acquire fails, as the
// outer one is still held.
func TestAConflictingLeaseIsReleasedMeanwhile(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		var inner *recipes.Lease
		released := false
		conflicts := func(mine, theirs string) bool {
			if inner != nil && !released {
				released = true
				bubble.Release(t, inner)
			}
			return sameLetter(mine, theirs)
		}
		line := func(name string) *recipes.Line {
			l, err := recipes.NewLine(c, path, "letter.v1", name, conflicts)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		conflicting := line("a2")
		outer := bubble.Acquire(t, t.Context(), line("a1"))
		inner = bubble.Acquire(t, outer.Context(), line("a1"))
		g := bubble.Await(t, "Acquire to return", bubble.Acquiring(context.WithoutCancel(inner.Context()), conflicting))
		bubble.WantErr(t, g.Err, recipes.ErrDeadlock)
		if !released {
			t.Error("nobody asked whether they conflict")
		}
		bubble.Release(t, outer)
		w.Empty(path)
	})
}
