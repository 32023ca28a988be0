package line_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A guard checks that the znode exists, so a znode that has given out a guard
// is not handed off. A guard of a released lease always fails, even while its
// znode serves another lease.
func TestGuardEndsWithItsLease(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		m := mutexOf(t, c)
		l := bubble.Acquire(t, t.Context(), m)
		waiting := queued(m, 2)
		guarded := l.Guard(bubble.Set("/app", "late"))
		second := next(t, l, waiting[0])
		if second.Path() == l.Path() {
			t.Error("handed off")
		}
		if _, err := c.Multi(t.Context(), guarded...); !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("guarded write: %v", err)
		}
		third := next(t, second, waiting[1])
		if third.Path() != second.Path() {
			t.Error("not handed off")
		}
		if _, err := c.Multi(t.Context(), second.Guard(bubble.Set("/app", "late"))...); !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("write with a guard of a released lease: %v", err)
		}
		_, err := second.Multi(t.Context(), bubble.Set("/app", "late"))
		bubble.WantErr(t, err, recipes.ErrNotHeld)
		if !third.Held() {
			t.Error("lost by the guard of another lease")
		}
		bubble.Release(t, third)
	})
}

// A Multi prevents a handoff only until its outcome is known.
func TestGuardedWritePreventsHandoffUntilItsOutcome(t *testing.T) {
	for _, test := range []struct {
		name    string
		action  testutil.Action
		handoff bool
	}{
		{"with a reply", testutil.Pass(), true},
		{"reply lost", testutil.DropAfter(), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				m := mutexOf(t, w.Connect("a"))
				l := bubble.Acquire(t, t.Context(), m)
				waiting := queued(m, 1)[0]
				w.Once(testutil.OpMulti, "", test.action)
				_, err := l.Multi(t.Context(), bubble.Set("/app", "mine"))
				if framework.MaybeApplied(err) == test.handoff {
					t.Errorf("the write: %v", err)
				}
				time.Sleep(time.Second)
				then := next(t, l, waiting)
				if handoff := then.Path() == l.Path(); handoff != test.handoff {
					t.Errorf("handed off: %v", handoff)
				}
				bubble.Release(t, then)
				w.Empty(lockPath)
			})
		})
	}
}

// The guard of a lost lease always fails, although its znode exists until the
// release.
func TestGuardOfALostLease(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		l := bubble.Acquire(t, t.Context(), mutexOf(t, c, recipes.WithMaxHold(time.Second)))
		bubble.Lost(t, l)
		w.InLine(lockPath, 1)
		if _, err := c.Multi(t.Context(), l.Guard(bubble.Set("/app", "late"))...); !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("guarded write: %v", err)
		}
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrMaxHold)
		w.Empty(lockPath)
	})
}

// After Guard, a Multi with a known outcome does not allow a handoff again.
func TestGuardOutlivesAGuardedWrite(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		l := bubble.Acquire(t, t.Context(), m)
		l.Guard()
		if _, err := l.Multi(t.Context(), bubble.Set("/app", "mine")); err != nil {
			t.Fatal(err)
		}
		then := next(t, l, queued(m, 1)[0])
		if then.Path() == l.Path() {
			t.Error("handed off")
		}
		bubble.Release(t, then)
	})
}

// While a Multi is under way the znode is not handed off.
func TestGuardedWriteUnderWayPreventsHandoff(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		l := bubble.Acquire(t, t.Context(), m)
		waiting := queued(m, 1)[0]
		reply := make(chan struct{})
		w.Once(testutil.OpMulti, "", testutil.HoldReply(reply))
		written := make(chan error, 1)
		go func() {
			_, err := l.Multi(context.Background(), bubble.Set("/app", "mine"))
			written <- err
		}()
		synctest.Wait()
		released := make(chan error, 1)
		go func() { released <- l.Release(context.Background()) }()
		synctest.Wait()
		close(reply)
		if err := errors.Join(<-written, <-released); err != nil {
			t.Error(err)
		}
		then := bubble.Granted(t, waiting).Lease
		if then.Path() == l.Path() {
			t.Error("handed off")
		}
		bubble.Release(t, then)
		w.Empty(lockPath)
	})
}

// If a znode will not be handed off, the line is not looked at.
func TestNoLookWithoutHandoff(t *testing.T) {
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
