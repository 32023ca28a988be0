package line_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Faults while a znode is handed off: every waiter is granted, and nothing is
// left.
func TestHandoffUnderFaults(t *testing.T) {
	for name, fault := range map[string]func(w *bubble.World, c *framework.Client){
		"the connection drops":       func(w *bubble.World, _ *framework.Client) { w.ClientNet("a").Drop() },
		"it is cut off for a while":  func(w *bubble.World, _ *framework.Client) { w.ClientNet("a").Cut(); go healLater(w, bubble.Timeout/2) },
		"it is cut off for too long": func(w *bubble.World, _ *framework.Client) { w.ClientNet("a").Cut(); go healLater(w, 2*bubble.Timeout) },
		"the session expires":        func(w *bubble.World, c *framework.Client) { w.Expire(c) },
		"the znode is deleted":       remove,
		"the look's reply is lost":   func(w *bubble.World, _ *framework.Client) {},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				w.Latency(5 * time.Millisecond)
				c := w.Connect("a", patient)
				m := mutexOf(t, c)
				l := bubble.Acquire(t, t.Context(), m)
				if name == "the look's reply is lost" {
					w.Once(testutil.OpGetChildren2, lockPath, testutil.DropAfter())
				}
				waiting := queued(m, 3)
				go l.Release(context.Background())
				time.Sleep(time.Millisecond) // the look is under way
				fault(w, c)
				for _, granted := range waiting {
					// A loss of the holder grants the next waiter, too.
					if err := bubble.Granted(t, granted).Lease.Release(context.Background()); err != nil && !errors.Is(err, recipes.ErrNotHeld) {
						t.Error(err)
					}
				}
				time.Sleep(3 * bubble.Timeout)
				w.Empty(lockPath)
			})
		})
	}
}

// patient is for clients that are cut off for longer than the default retry
// budget.
var patient = framework.WithRetry(retry.Forever(100 * time.Millisecond))

func healLater(w *bubble.World, d time.Duration) {
	time.Sleep(d)
	w.ClientNet("a").Heal()
}

// A watch can be lost: without a recent look at the line a process stops
// handing off its znode.
func TestHandoffNeedsARecentLook(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		l := bubble.Acquire(t, t.Context(), m)
		waiting := queued(m, 3)
		l = next(t, l, waiting[0])
		// A member that no longer replies to lists.
		reply := make(chan struct{})
		w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpGetChildren2 {
				return testutil.HoldReply(reply)
			}
			return testutil.Pass()
		})
		time.Sleep(bubble.Timeout/3 + time.Millisecond)
		released := make(chan error, 1)
		go func() { released <- l.Release(context.Background()) }()
		bubble.Pending(t, waiting[1])
		close(reply)
		for _, granted := range waiting[1:] {
			bubble.Release(t, bubble.Granted(t, granted).Lease)
		}
		w.Empty(lockPath)
	})
}

// A lingering znode is not used again without a recent look either.
func TestLingeringNeedsARecentLook(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Minute))
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		synctest.Wait() // until it is known that nobody stands behind
		reply := make(chan struct{})
		w.Once(testutil.OpGetChildren2, lockPath, testutil.HoldReply(reply))
		time.Sleep(bubble.Timeout/3 + time.Millisecond)
		waiting := queued(m, 1)[0]
		bubble.Pending(t, waiting)
		close(reply)
		bubble.Release(t, bubble.Granted(t, waiting).Lease)
		time.Sleep(time.Minute)
		w.Empty(lockPath)
	})
}

// After a change of the line the last look no longer counts.
func TestHandoffStopsWhenTheLineChanges(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a")
		m, other := mutexOf(t, a, recipes.WithHandoffs(1)), mutexOf(t, w.Connect("b"))
		l := bubble.Acquire(t, t.Context(), m)
		waiting := queued(m, 3)
		sess, err := a.Session()
		if err != nil {
			t.Fatal(err)
		}
		reply, id := make(chan struct{}), sess.ID()
		w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpGetChildren2 && r.Session == id {
				return testutil.HoldReply(reply)
			}
			return testutil.Pass()
		})
		elsewhere := queued(other, 1)[0]
		bubble.Release(t, l)
		bubble.Pending(t, waiting...)
		close(reply)
		l = bubble.Granted(t, waiting[0]).Lease
		bubble.Release(t, l)
		bubble.Pending(t, waiting[1:]...)
		l = next(t, bubble.Granted(t, elsewhere).Lease, waiting[1])
		bubble.Release(t, next(t, l, waiting[2]))
		w.Empty(lockPath)
	})
}

// A look that fails shows no contender, but is no reason to hand off.
func TestFailedLookPreventsHandoff(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		l := bubble.Acquire(t, t.Context(), m)
		w.Once(testutil.OpGetChildren2, lockPath, testutil.Fail(testutil.CodeNoAuth))
		waiting := queued(m, 1)[0]
		then := next(t, l, waiting)
		if then.Path() == l.Path() {
			t.Error("handed off")
		}
		bubble.Release(t, then)
		w.Empty(lockPath)
	})
}

// Without a connection nothing is handed off, however recent the last look:
// others may have joined.
func TestHandoffNeedsAConnection(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		l := bubble.Acquire(t, t.Context(), m)
		waiting := queued(m, 1)[0]
		w.ClientNet("a").Cut()
		w.ClientNet("a").Drop()
		time.Sleep(time.Millisecond)
		released := make(chan error, 1)
		go func() { released <- l.Release(context.Background()) }()
		bubble.Pending(t, waiting)
		w.ClientNet("a").Heal()
		then := bubble.Granted(t, waiting).Lease
		if err := <-released; err != nil {
			t.Error(err)
		}
		if then.Path() == l.Path() {
			t.Error("handed off")
		}
		bubble.Release(t, then)
		w.Empty(lockPath)
	})
}

// Under ErrorPolicyConnection a disconnect ends every lease, a lingering znode,
// and a znode that is about to be handed off.
func TestHandoffUnderErrorPolicyConnection(t *testing.T) {
	for _, waits := range []int{0, 2} {
		bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
			w.Latency(5 * time.Millisecond)
			var lost int
			c := w.Connect("a", framework.WithErrorPolicy(framework.ErrorPolicyConnection), recipes.WithObserver(recipes.Observer{
				Lost: func(context.Context, recipes.Loss) { lost++ },
			}))
			m := mutexOf(t, c, recipes.WithLinger(time.Minute))
			l := bubble.Acquire(t, t.Context(), m)
			first := l.Path()
			waiting := queued(m, waits)
			bubble.Release(t, l) // the look is under way
			w.ClientNet("a").Drop()
			time.Sleep(time.Second)
			for _, granted := range waiting {
				bubble.Release(t, bubble.Granted(t, granted).Lease)
			}
			if l = bubble.Acquire(t, t.Context(), m); l.Path() == first || lost > 0 {
				t.Errorf("%s after %s, %d lost", l.Path(), first, lost)
			}
			bubble.Release(t, l)
			time.Sleep(time.Minute)
			w.Empty(lockPath)
		})
	}
}

// remove deletes all znodes of the line, as an operator would.
func remove(w *bubble.World, _ *framework.Client) {
	c := w.Connect("operator")
	for _, name := range w.Children(lockPath) {
		if err := c.Delete(context.Background(), lockPath+"/"+name, -1); err != nil {
			w.T.Error(err)
		}
	}
}
