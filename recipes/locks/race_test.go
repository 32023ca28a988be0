package locks_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Held looked at the clock while the client was closing, before the session had
// heard of it, and blamed the session for the loss.
func TestALossByCloseIsCalledSo(t *testing.T) {
	for what, look := range map[string]func(l *recipes.Lease){
		"Held": func(l *recipes.Lease) { l.Held() },
		"Release": func(l *recipes.Lease) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = l.Release(ctx)
		},
	} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			// Under the strict policy the session's own goroutine tells at the disconnect.
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

// stallAtLoss has the goroutine that follows the session's deadline stand still,
// as in a process that is paused, before it tells of any loss of what is acquired
// from now on: the oldest hold is told first. resume has it go on.
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

// A process that was paused releases before anything can have told it of the loss:
// that must not pass for held until now, and the work's context must not say that
// it was released.
func TestAReleaseAfterAPause(t *testing.T) {
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

// A nested Acquire met its outer lease just as that was released, and failed, as
// if something had been lost: what was released matches nothing.
func TestReentryRacesTheRelease(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		ctx := recipes.WithOwner(t.Context(), recipes.NewOwner())
		for range 3000 {
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

// The data belonged to the caller still: a change of it made the lock's own values
// disagree, or raced with the create.
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

// A try that stands behind somebody after all takes its znode with it.
func TestATryThatComesSecondLeavesNothing(t *testing.T) {
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

// The session is in doubt while the lock is being released, and proven again by the
// time that the znode goes: the loss was told, and stays one.
func TestALossWhileReleasing(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var released, losses atomic.Int32
		a := w.Connect("a", framework.WithObserver(framework.Observer{
			Released: func(string, time.Duration) { released.Add(1) },
			Lost:     func(string, time.Duration, error) { losses.Add(1) },
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
			t.Error("the session was lost too: not what was to be shown")
		}
		synctest.Wait()
		if released.Load() != 0 || losses.Load() != 1 {
			t.Errorf("the observer heard of %d releases, %d losses", released.Load(), losses.Load())
		}
		w.NothingLeft(lockPath)
	}, testutil.WithSessionTimeouts(time.Second, time.Minute))
}

// A release that no server answered in all of its budget is asked for again when
// the session is over: whether it was held until then nobody can tell.
func TestALossBetweenTwoReleases(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a", framework.WithRetry(retry.NTimes(2, 100*time.Millisecond)))
		l := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		w.ClientNet("a").Cut()
		w.ClientNet("a").Drop()
		synctest.Wait() // until that is known: what is sent before waits in the wire client
		bubble.WantErr(t, l.Release(t.Context()), zk.ErrNoServer)
		time.Sleep(2 * bubble.Timeout)
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, framework.ErrSessionLost)
		bubble.Lost(t, l)
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
		w.ClientNet("a").Heal()
		time.Sleep(time.Minute)
		w.NothingLeft(lockPath)
	})
}

// One that nobody asks for again goes on by itself, while the session lives.
func TestARemovalGoesOnAfterItsBudget(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a", framework.WithRetry(retry.NTimes(2, 100*time.Millisecond)))
		l := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		next := bubble.Acquiring(t.Context(), mutexOf(t, w.Connect("b")))
		w.InLine(lockPath, 2)
		w.ClientNet("a").Cut()
		w.ClientNet("a").Drop()
		synctest.Wait() // until that is known: what is sent before waits in the wire client
		bubble.WantErr(t, l.Release(t.Context()), zk.ErrNoServer)
		w.ClientNet("a").Heal()
		cut := time.Now()
		g := bubble.Granted(t, next)
		if took := g.At.Sub(cut); took > bubble.Timeout/2 {
			t.Errorf("the next was granted after %v", took)
		}
		bubble.Release(t, g.Lease)
		bubble.Release(t, l) // its removal is known to be the own one
		w.NothingLeft(lockPath)
	})
}

// Who waits has a session that is as well proven as a holder's: when the turn comes
// there is time left to work.
func TestWhoWaitsKeepsTheHeartbeatQuick(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		held := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
		b := w.Connect("b")
		next := bubble.Acquiring(t.Context(), mutexOf(t, b))
		w.InLine(lockPath, 2)
		s, err := b.Session()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(bubble.Timeout)
		for range 100 {
			time.Sleep(317 * time.Millisecond)
			if left := time.Until(s.Deadline()); left < bubble.Timeout/2-time.Millisecond {
				t.Fatalf("%v left to the deadline", left)
			}
		}
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, next).Lease)
		w.NothingLeft(lockPath)
	})
}

// What has ended, however it did, keeps the session's heartbeat quick no longer.
func TestWhatHasEndedKeepsNoHeartbeatQuick(t *testing.T) {
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
			"cancelled": func() {
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
				t.Errorf("%s: %d heartbeats, %d before", what, got, idle)
			}
		}
		w.NothingLeft(lockPath)
	})
}

// Whoever hears of the loss by Lost finds the context ended, and Err.
func TestTheContextHasEndedWhenLostIsClosed(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"), recipes.WithMaxHold(time.Millisecond))
		for range 500 {
			l := bubble.Acquire(t, t.Context(), m)
			<-l.Lost()
			if l.Context().Err() == nil || l.Err() == nil {
				t.Fatalf("lost, but the context says %v and the lease %v", l.Context().Err(), l.Err())
			}
			bubble.WantErr(t, l.Release(t.Context()), recipes.ErrMaxHold)
		}
		w.NothingLeft(lockPath)
	})
}

// A guarded write finds the znode missing before it is watched: that is the loss.
func TestAMultiFindsTheLoss(t *testing.T) {
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
				t.Error("not told")
			}
			bubble.WantErr(t, each.Release(t.Context()), recipes.ErrNotHeld, zk.ErrNoNode)
		}
		w.NothingLeft(lockPath)
	})
}

// Of a lost lease and those nested in it, one that was released does not take away
// the znode under which the others are still stopping.
func TestALostLeaseAndThoseNestedInIt(t *testing.T) {
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
			t.Errorf("the next was granted %v after the last had been released", took)
		}
		bubble.Release(t, g.Lease)
		w.NothingLeft(lockPath)
	})
}
