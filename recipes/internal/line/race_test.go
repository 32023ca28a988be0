package line_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// When Held looked at the clock during Close, before the session knew of it,
// the error named the session instead of Close.
func TestLossByCloseNamesClose(t *testing.T) {
	for what, look := range map[string]func(l *recipes.Lease){
		"Held": func(l *recipes.Lease) { l.Held() },
		"Release": func(l *recipes.Lease) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = l.Release(ctx)
		},
	} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			// Under ErrorPolicyConnection the session's goroutine reports the
			// disconnect.
			c := w.Connect("a", framework.WithErrorPolicy(framework.ErrorPolicyConnection))
			resume := stallAtLoss(t, c)
			l := bubble.Acquire(t, t.Context(), mutexOf(t, c))
			w.ClientNet("a").Drop()
			synctest.Wait()
			closed := make(chan error)
			go func() { closed <- c.Close() }()
			<-c.Done()
			look(l)
			if err := l.Err(); !errors.Is(err, framework.ErrClosed) {
				t.Errorf("%s: the lease ended with %v", what, err)
			}
			resume()
			<-closed
			bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, framework.ErrClosed)
		})
	}
}

// stallAtLoss blocks the goroutine that reports the loss of the session, as in
// a paused process, before it reports to anything acquired after this call: the
// oldest hold is told first. resume unblocks it.
func stallAtLoss(t *testing.T, c *framework.Client) (resume func()) {
	t.Helper()
	sess, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	stalled := make(chan struct{})
	if _, err := sess.Hold(func(error) { <-stalled }); err != nil {
		t.Fatal(err)
	}
	return func() { close(stalled) }
}

// A paused process releases before it can know of the loss. Release must report
// the loss, and the cause of the work's context must not be ErrReleased.
func TestReleaseAfterAPause(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		resume := stallAtLoss(t, c)
		m := mutexOf(t, c)
		outer := bubble.Acquire(t, t.Context(), m)
		inner := bubble.Acquire(t, outer.Context(), m)
		w.ClientNet("a").Cut()
		w.ClientNet("a").Drop()
		synctest.Wait()
		time.Sleep(bubble.Timeout)
		bubble.WantErr(t, inner.Release(t.Context()), recipes.ErrNotHeld, framework.ErrSessionLost)
		bubble.WantErr(t, context.Cause(inner.Context()), recipes.ErrNotHeld)
		bubble.Lost(t, outer)
		resume()
		bubble.WantErr(t, outer.Release(t.Context()), recipes.ErrNotHeld)
		w.ClientNet("a").Heal()
		time.Sleep(2 * bubble.Timeout)
		w.NothingLeft(lockPath)
	})
}

// A nested Acquire during the release of its outer lease failed as if the lease
// had been lost. A released lease must match nothing.
func TestReentryRacesTheRelease(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		ctx := recipes.WithOwner(t.Context(), recipes.NewOwner())
		for range bubble.Few(500, 3000) {
			outer := bubble.Acquire(t, ctx, m)
			var wg sync.WaitGroup
			wg.Go(func() { bubble.Release(t, outer) })
			for range 4 {
				wg.Go(func() { bubble.Release(t, bubble.Acquire(t, ctx, m)) })
			}
			wg.Wait()
		}
		w.NothingLeft(lockPath)
	})
}

// WithData kept the caller's slice: a later write to it made the values of one
// lock differ, or raced with the create.
func TestDataIsCopied(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		data := []byte("host a")
		m := mutexOf(t, c, recipes.WithData(data))
		copy(data, "XXXX")
		l := bubble.Acquire(t, t.Context(), m)
		if got, _ := w.Data(l.Path()); string(got) != "host a" {
			t.Errorf("data %q", got)
		}
		bubble.Release(t, l)
		time.Sleep(time.Second)
		w.NothingLeft(lockPath)
	})
}

// A try that finds a contender ahead after its create removes its znode.
func TestTryThatJoinsSecondLeavesNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := mutexOf(t, w.Connect("a")), mutexOf(t, w.Connect("b"))
		bubble.Release(t, bubble.Acquire(t, t.Context(), a))
		free := make(chan struct{})
		w.Once(testutil.OpCreate, lockPath, testutil.Hold(free))
		tried := make(chan error)
		go func() {
			_, err := b.TryAcquire(t.Context())
			tried <- err
		}()
		synctest.Wait()
		first := bubble.Acquire(t, t.Context(), a)
		close(free)
		bubble.WantErr(t, <-tried, recipes.ErrBusy)
		time.Sleep(time.Second)
		w.InLine(lockPath, 1)
		bubble.Release(t, first)
		w.NothingLeft(lockPath)
	})
}

// During a release the session is in doubt, and the lease is lost. The session
// is proven alive before the znode is deleted: the loss stays a loss.
func TestLossDuringRelease(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var released, losses atomic.Int32
		a := w.Connect("a", recipes.WithObserver(recipes.Observer{
			Released: func(context.Context, recipes.Release) { released.Add(1) },
			Lost:     func(context.Context, recipes.Loss) { losses.Add(1) },
		}))
		l := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		w.ClientNet("a").Cut()
		deadline := l.Deadline()
		done := make(chan error)
		go func() { done <- l.Release(t.Context()) }()
		bubble.Lost(t, l)
		w.ClientNet("a").Heal()
		bubble.WantErr(t, <-done, recipes.ErrNotHeld, framework.ErrSessionLost)
		if !time.Now().Before(deadline) {
			t.Error("the session was lost too: the scenario was not reached")
		}
		synctest.Wait()
		if released.Load() != 0 || losses.Load() != 1 {
			t.Errorf("the observer got %d releases, %d losses", released.Load(), losses.Load())
		}
		w.NothingLeft(lockPath)
	}, testutil.WithSessionTimeouts(time.Second, time.Minute))
}

// A Release used up its retry budget without a reply, and is repeated when the
// session has ended. Whether the lease was held until then is unknown, so it
// fails.
func TestLossBetweenTwoReleases(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a", framework.WithRetry(retry.NTimes(2, 100*time.Millisecond)))
		l := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		w.ClientNet("a").Cut()
		w.ClientNet("a").Drop()
		synctest.Wait() // until the disconnect is known: earlier requests wait in the wire client
		bubble.WantErr(t, l.Release(t.Context()), zk.ErrNoServer)
		time.Sleep(2 * bubble.Timeout) // the ensemble expires the session
		w.ClientNet("a").Heal()
		time.Sleep(bubble.Timeout) // the client hears of it
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, framework.ErrSessionLost)
		bubble.Lost(t, l)
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
		time.Sleep(time.Minute)
		w.NothingLeft(lockPath)
	})
}

// A release that used up its budget continues in the background while the
// session is alive.
func TestRemovalContinuesAfterItsBudget(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a", framework.WithRetry(retry.NTimes(2, 100*time.Millisecond)))
		l := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		next := bubble.Acquiring(t.Context(), mutexOf(t, w.Connect("b")))
		w.InLine(lockPath, 2)
		w.ClientNet("a").Cut()
		w.ClientNet("a").Drop()
		synctest.Wait() // until the disconnect is known: earlier requests wait in the wire client
		bubble.WantErr(t, l.Release(t.Context()), zk.ErrNoServer)
		w.ClientNet("a").Heal()
		cut := time.Now()
		g := bubble.Granted(t, next)
		if took := g.At.Sub(cut); took > bubble.Timeout/2 {
			t.Errorf("the next was granted after %v", took)
		}
		bubble.Release(t, g.Lease)
		bubble.Release(t, l) // nil: the znode was removed by the first Release
		w.NothingLeft(lockPath)
	})
}

// Who waits in line sends no heartbeat. But a new grant has time left before
// its deadline all the same: at least T/3, however long the wait was.
func TestAWaiterIsGrantedWithTimeAhead(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		b := w.Connect("b")
		m := mutexOf(t, b)
		for i := range bubble.Few(6, 20) {
			held := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect(fmt.Sprint("a", i))))
			next := bubble.Acquiring(t.Context(), m)
			w.InLine(lockPath, 2)
			time.Sleep(3*bubble.Timeout + time.Duration(i)*317*time.Millisecond)
			bubble.Release(t, held)
			l := bubble.Granted(t, next).Lease
			if left := time.Until(l.Deadline()); left < bubble.Timeout/3 {
				t.Errorf("%v left to the deadline", left)
			}
			bubble.Release(t, l)
		}
		w.NothingLeft(lockPath)
	}, testutil.WithMembers(3))
}

// After a wait or lease has ended, for any reason, the heartbeat is slow again.
func TestHeartbeatSlowsDownAfterwards(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m, other := mutexOf(t, w.Connect("a"), recipes.WithMaxHold(time.Second)), mutexOf(t, w.Connect("b"))
		beats := func() int {
			time.Sleep(bubble.Timeout)
			w.ResetRequests()
			time.Sleep(10 * bubble.Timeout)
			return w.Requests()[testutil.OpSync]
		}
		idle := beats()
		for what, end := range map[string]func(){
			"released": func() { bubble.Release(t, bubble.Acquire(t, t.Context(), m)) },
			"lost": func() {
				l := bubble.Acquire(t, t.Context(), m)
				bubble.Lost(t, l)
				bubble.WantErr(t, l.Release(t.Context()), recipes.ErrMaxHold)
			},
			"busy": func() {
				held := bubble.Acquire(t, t.Context(), other)
				_, err := m.TryAcquire(t.Context())
				bubble.WantErr(t, err, recipes.ErrBusy)
				bubble.Release(t, held)
			},
			"canceled": func() {
				held := bubble.Acquire(t, t.Context(), other)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := m.Acquire(ctx)
				bubble.WantErr(t, err, context.DeadlineExceeded)
				bubble.Release(t, held)
			},
		} {
			end()
			if got := beats(); got > idle+2 {
				t.Errorf("%s: %d heartbeats, want %d as before", what, got, idle)
			}
		}
		w.NothingLeft(lockPath)
	})
}

// When Lost is closed, the context has ended and Err returns the reason.
func TestContextHasEndedWhenLostIsClosed(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"), recipes.WithMaxHold(time.Millisecond))
		for range bubble.Few(100, 500) {
			l := bubble.Acquire(t, t.Context(), m)
			<-l.Lost()
			if l.Context().Err() == nil || l.Err() == nil {
				t.Fatalf("after Lost: context %v, Err %v", l.Context().Err(), l.Err())
			}
			bubble.WantErr(t, l.Release(t.Context()), recipes.ErrMaxHold)
		}
		w.NothingLeft(lockPath)
	})
}

// A guarded write that finds the znode missing, before it is watched, is the
// loss.
func TestMultiFindsTheLoss(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		l := bubble.Acquire(t, t.Context(), m)
		nested := bubble.Acquire(t, l.Context(), m)
		if err := w.Connect("b").Delete(t.Context(), l.Path(), -1); err != nil {
			t.Fatal(err)
		}
		_, err := nested.Multi(t.Context())
		bubble.WantErr(t, err, recipes.ErrNotHeld, zk.ErrNoNode)
		for _, each := range []*recipes.Lease{l, nested} {
			select {
			case <-each.Lost():
			default:
				t.Error("Lost is not closed")
			}
			bubble.WantErr(t, each.Release(t.Context()), recipes.ErrNotHeld, zk.ErrNoNode)
		}
		w.NothingLeft(lockPath)
	})
}

// Of a lost lease and its nested leases one is released. The znode stays until
// the work under the others has stopped.
func TestLostLeaseAndNestedLeases(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"), recipes.WithMaxHold(30*time.Second))
		outer := bubble.Acquire(t, t.Context(), m)
		inner := bubble.Acquire(t, outer.Context(), m)
		next := bubble.Acquiring(t.Context(), mutexOf(t, w.Connect("b")))
		w.InLine(lockPath, 2)
		bubble.Lost(t, outer)
		bubble.Lost(t, inner)
		bubble.WantErr(t, outer.Release(t.Context()), recipes.ErrMaxHold)
		time.Sleep(time.Until(inner.Deadline()) / 2)
		bubble.Pending(t, next)
		bubble.WantErr(t, inner.Release(t.Context()), recipes.ErrMaxHold)
		start := time.Now()
		g := bubble.Granted(t, next)
		if took := g.At.Sub(start); took != 0 {
			t.Errorf("the next was granted %v after the last release", took)
		}
		bubble.Release(t, g.Lease)
		w.NothingLeft(lockPath)
	})
}
