package locks_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A guard would pass for as long as the znode stands, so a znode that has given out
// one serves nobody else; and what the guard of a lease that is over gives never
// passes, whoever has the znode.
func TestAGuardEndsWithItsLease(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		m := mutexOf(t, c)
		l := bubble.Acquire(t, t.Context(), m)
		waiting := queued(m, 2)
		guarded := l.Guard(set("/app", "late"))
		second := next(t, l, waiting[0])
		if second.Path() == l.Path() {
			t.Error("handed over")
		}
		if _, err := c.Multi(t.Context(), guarded...); !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("guarded write: %v", err)
		}
		third := next(t, second, waiting[1])
		if third.Path() != second.Path() {
			t.Error("not handed over")
		}
		if _, err := c.Multi(t.Context(), second.Guard(set("/app", "late"))...); !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("write under the guard of a lease that was released: %v", err)
		}
		_, err := second.Multi(t.Context(), set("/app", "late"))
		bubble.WantErr(t, err, recipes.ErrNotHeld)
		if !third.Held() {
			t.Error("lost by another's guard")
		}
		bubble.Release(t, third)
	})
}

// A guarded write of one's own keeps the znode only until its outcome is known.
func TestAGuardedWriteKeepsItsZnode(t *testing.T) {
	for _, test := range []struct {
		name   string
		action testutil.Action
		handed bool
	}{
		{"answered", testutil.Pass(), true},
		{"its answer lost", testutil.DropAfter(), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				m := mutexOf(t, w.Connect("a"))
				l := bubble.Acquire(t, t.Context(), m)
				waiting := queued(m, 1)[0]
				w.Once(testutil.OpMulti, "", test.action)
				_, err := l.Multi(t.Context(), set("/app", "mine"))
				if framework.MaybeApplied(err) == test.handed {
					t.Errorf("the write: %v", err)
				}
				time.Sleep(time.Second)
				then := next(t, l, waiting)
				if handed := then.Path() == l.Path(); handed != test.handed {
					t.Errorf("handed over: %v", handed)
				}
				bubble.Release(t, then)
				w.Empty(lockPath)
			})
		})
	}
}

// The guard of a lease that was lost never passes, though its znode stands until it
// is released.
func TestTheGuardOfALostLease(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		l := bubble.Acquire(t, t.Context(), mutexOf(t, c, recipes.WithMaxHold(time.Second)))
		bubble.Lost(t, l)
		w.InLine(lockPath, 1)
		if _, err := c.Multi(t.Context(), l.Guard(set("/app", "late"))...); !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("guarded write: %v", err)
		}
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrMaxHold)
		w.Empty(lockPath)
	})
}

// A guard that was given out is not taken back by a write whose outcome is known.
func TestAGuardOutlivesAGuardedWrite(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		l := bubble.Acquire(t, t.Context(), m)
		l.Guard()
		if _, err := l.Multi(t.Context(), set("/app", "mine")); err != nil {
			t.Fatal(err)
		}
		then := next(t, l, queued(m, 1)[0])
		if then.Path() == l.Path() {
			t.Error("handed over")
		}
		bubble.Release(t, then)
	})
}

// Nor does it go to anybody while the write is under way.
func TestAWriteUnderWayKeepsItsZnode(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		l := bubble.Acquire(t, t.Context(), m)
		waiting := queued(m, 1)[0]
		answer := make(chan struct{})
		w.Once(testutil.OpMulti, "", testutil.HoldReply(answer))
		written := make(chan error, 1)
		go func() {
			_, err := l.Multi(context.Background(), set("/app", "mine"))
			written <- err
		}()
		synctest.Wait()
		released := make(chan error, 1)
		go func() { released <- l.Release(context.Background()) }()
		synctest.Wait()
		close(answer)
		if err := errors.Join(<-written, <-released); err != nil {
			t.Error(err)
		}
		then := bubble.Granted(t, waiting).Lease
		if then.Path() == l.Path() {
			t.Error("handed over")
		}
		bubble.Release(t, then)
		w.Empty(lockPath)
	})
}

// Where it is known that nothing will be handed over, nobody looks at the line.
func TestWhatIsNotHandedOverNeedsNoLook(t *testing.T) {
	for name, prepare := range map[string]func(*recipes.Lease){
		"after a guard": func(l *recipes.Lease) { l.Guard() },
		"by option":     func(*recipes.Lease) {},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				var opts []locks.Option
				if name == "by option" {
					opts = append(opts, recipes.WithHandoffs(0))
				}
				m := mutexOf(t, w.Connect("a"), opts...)
				l := bubble.Acquire(t, t.Context(), m)
				prepare(l)
				w.ResetRequests()
				waiting := queued(m, 1)[0]
				if cost := w.Cost(); len(cost) > 0 {
					t.Errorf("requests: %v", cost)
				}
				bubble.Release(t, next(t, l, waiting))
				w.Empty(lockPath)
			})
		})
	}
}
