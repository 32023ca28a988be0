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
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
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
		inBubble(t, func(t *testing.T, w *world) {
			// Under the strict policy the session's own goroutine tells at the disconnect.
			c := w.client("a", framework.WithErrorPolicy(framework.ErrorPolicyConnection))
			resume := stallAtLoss(t, c)
			l := acquire(t, t.Context(), w.mutex(c))
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
			wantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, framework.ErrClosed)
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
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client("a")
		resume := stallAtLoss(t, c)
		m := w.mutex(c)
		outer := acquire(t, t.Context(), m)
		inner := acquire(t, outer.Context(), m)
		w.ClientNet("a").Cut()
		w.ClientNet("a").Drop()
		synctest.Wait()
		time.Sleep(timeout)
		wantErr(t, inner.Release(t.Context()), recipes.ErrNotHeld, framework.ErrSessionLost)
		wantErr(t, context.Cause(inner.Context()), recipes.ErrNotHeld)
		lost(t, outer)
		resume()
		wantErr(t, outer.Release(t.Context()), recipes.ErrNotHeld)
		w.ClientNet("a").Heal()
		time.Sleep(2 * timeout)
		w.empty()
	})
}

// A nested Acquire met its outer lease just as that was released, and failed, as
// if something had been lost: what was released matches nothing.
func TestReentryRacesTheRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		m := w.mutex(w.client("a"))
		ctx := recipes.WithOwner(t.Context(), recipes.NewOwner())
		for range 3000 {
			outer := acquire(t, ctx, m)
			var wg sync.WaitGroup
			wg.Go(func() { release(t, outer) })
			for range 4 {
				wg.Go(func() { release(t, acquire(t, ctx, m)) })
			}
			wg.Wait()
		}
		w.empty()
	})
}

// The data belonged to the caller still: a change of it made the lock's own values
// disagree, or raced with the create.
func TestDataIsCopied(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client("a")
		data := []byte("host a")
		m := w.mutex(c, locks.WithData(data))
		copy(data, "XXXX")
		l := acquire(t, t.Context(), m)
		if got, _ := w.Data(l.Path()); string(got) != "host a" {
			t.Errorf("data %q", got)
		}
		release(t, l)
		time.Sleep(time.Second)
		w.empty()
	})
}

// A try that stands behind somebody after all takes its znode with it.
func TestATryThatComesSecondLeavesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.mutex(w.client("a")), w.mutex(w.client("b"))
		release(t, acquire(t, t.Context(), a))
		free := make(chan struct{})
		w.once(testutil.OpCreate, testutil.Hold(free))
		tried := make(chan error)
		go func() {
			_, err := b.TryAcquire(t.Context())
			tried <- err
		}()
		synctest.Wait()
		first := acquire(t, t.Context(), a)
		close(free)
		wantErr(t, <-tried, recipes.ErrBusy)
		time.Sleep(time.Second)
		w.line(1)
		release(t, first)
		w.empty()
	})
}

// The session is in doubt while the lock is being released, and proven again by the
// time that the znode goes: the loss was told, and stays one.
func TestALossWhileReleasing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var released, losses atomic.Int32
		a := w.client("a", framework.WithObserver(framework.Observer{
			Released: func(string, time.Duration) { released.Add(1) },
			Lost:     func(string, time.Duration, error) { losses.Add(1) },
		}))
		l := acquire(t, t.Context(), w.mutex(a))
		w.ClientNet("a").Cut()
		deadline := l.Deadline()
		done := make(chan error)
		go func() { done <- l.Release(t.Context()) }()
		lost(t, l)
		w.ClientNet("a").Heal()
		wantErr(t, <-done, recipes.ErrNotHeld, framework.ErrSessionLost)
		if !time.Now().Before(deadline) {
			t.Error("the session was lost too: not what was to be shown")
		}
		synctest.Wait()
		if released.Load() != 0 || losses.Load() != 1 {
			t.Errorf("the observer heard of %d releases, %d losses", released.Load(), losses.Load())
		}
		w.empty()
	}, testutil.WithSessionTimeouts(time.Second, time.Minute))
}

// A release that no server answered in all of its budget is asked for again when
// the session is over: whether it was held until then nobody can tell.
func TestALossBetweenTwoReleases(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.client("a", framework.WithRetry(retry.NTimes(2, 100*time.Millisecond)))
		l := acquire(t, t.Context(), w.mutex(a))
		w.ClientNet("a").Cut()
		w.ClientNet("a").Drop()
		synctest.Wait() // until that is known: what is sent before waits in the wire client
		wantErr(t, l.Release(t.Context()), zk.ErrNoServer)
		time.Sleep(2 * timeout)
		wantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, framework.ErrSessionLost)
		lost(t, l)
		wantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
		w.ClientNet("a").Heal()
		time.Sleep(time.Minute)
		w.empty()
	})
}

// One that nobody asks for again goes on by itself, while the session lives.
func TestARemovalGoesOnAfterItsBudget(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.client("a", framework.WithRetry(retry.NTimes(2, 100*time.Millisecond)))
		l := acquire(t, t.Context(), w.mutex(a))
		next := acquiring(t.Context(), w.mutex(w.client("b")))
		w.line(2)
		w.ClientNet("a").Cut()
		w.ClientNet("a").Drop()
		synctest.Wait() // until that is known: what is sent before waits in the wire client
		wantErr(t, l.Release(t.Context()), zk.ErrNoServer)
		w.ClientNet("a").Heal()
		cut := time.Now()
		g := granted(t, next)
		if took := g.at.Sub(cut); took > timeout/2 {
			t.Errorf("the next was granted after %v", took)
		}
		release(t, g.lease)
		release(t, l) // its removal is known to be the own one
		w.empty()
	})
}

// Who waits has a session that is as well proven as a holder's: when the turn comes
// there is time left to work.
func TestWhoWaitsKeepsTheHeartbeatQuick(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		held := acquire(t, t.Context(), w.mutex(w.client("a")))
		b := w.client("b")
		next := acquiring(t.Context(), w.mutex(b))
		w.line(2)
		s, err := b.Session()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(timeout)
		for range 100 {
			time.Sleep(317 * time.Millisecond)
			if left := time.Until(s.Deadline()); left < timeout/2-time.Millisecond {
				t.Fatalf("%v left to the deadline", left)
			}
		}
		release(t, held)
		release(t, granted(t, next).lease)
		w.empty()
	})
}

// What has ended, however it did, keeps the session's heartbeat quick no longer.
func TestWhatHasEndedKeepsNoHeartbeatQuick(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		m, other := w.mutex(w.client("a"), locks.WithMaxHold(time.Second)), w.mutex(w.client("b"))
		beats := func() int {
			time.Sleep(timeout)
			w.recount()
			time.Sleep(10 * timeout)
			return w.Requests()[testutil.OpSync]
		}
		idle := beats()
		for what, end := range map[string]func(){
			"released": func() { release(t, acquire(t, t.Context(), m)) },
			"lost": func() {
				l := acquire(t, t.Context(), m)
				lost(t, l)
				wantErr(t, l.Release(t.Context()), recipes.ErrMaxHold)
			},
			"busy": func() {
				held := acquire(t, t.Context(), other)
				_, err := m.TryAcquire(t.Context())
				wantErr(t, err, recipes.ErrBusy)
				release(t, held)
			},
			"cancelled": func() {
				held := acquire(t, t.Context(), other)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := m.Acquire(ctx)
				wantErr(t, err, context.DeadlineExceeded)
				release(t, held)
			},
		} {
			end()
			if got := beats(); got > idle+2 {
				t.Errorf("%s: %d heartbeats, %d before", what, got, idle)
			}
		}
		w.empty()
	})
}

// Whoever hears of the loss by Lost finds the context ended, and Err.
func TestTheContextHasEndedWhenLostIsClosed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		m := w.mutex(w.client("a"), locks.WithMaxHold(time.Millisecond))
		for range 500 {
			l := acquire(t, t.Context(), m)
			<-l.Lost()
			if l.Context().Err() == nil || l.Err() == nil {
				t.Fatalf("lost, but the context says %v and the lease %v", l.Context().Err(), l.Err())
			}
			wantErr(t, l.Release(t.Context()), recipes.ErrMaxHold)
		}
		w.empty()
	})
}

// A guarded write finds the znode missing before it is watched: that is the loss.
func TestAMultiFindsTheLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		m := w.mutex(w.client("a"))
		l := acquire(t, t.Context(), m)
		nested := acquire(t, l.Context(), m)
		if err := w.client("b").Delete(t.Context(), l.Path(), -1); err != nil {
			t.Fatal(err)
		}
		_, err := nested.Multi(t.Context())
		wantErr(t, err, recipes.ErrNotHeld, zk.ErrNoNode)
		for _, each := range []*recipes.Lease{l, nested} {
			select {
			case <-each.Lost():
			default:
				t.Error("not told")
			}
			wantErr(t, each.Release(t.Context()), recipes.ErrNotHeld, zk.ErrNoNode)
		}
		w.empty()
	})
}

// Of a lost lease and those nested in it, one that was released does not take away
// the znode under which the others are still stopping.
func TestALostLeaseAndThoseNestedInIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		m := w.mutex(w.client("a"), locks.WithMaxHold(30*time.Second))
		outer := acquire(t, t.Context(), m)
		inner := acquire(t, outer.Context(), m)
		next := acquiring(t.Context(), w.mutex(w.client("b")))
		w.line(2)
		lost(t, outer)
		lost(t, inner)
		wantErr(t, outer.Release(t.Context()), recipes.ErrMaxHold)
		time.Sleep(time.Until(inner.Deadline()) / 2)
		pending(t, next)
		wantErr(t, inner.Release(t.Context()), recipes.ErrMaxHold)
		start := time.Now()
		g := granted(t, next)
		if took := g.at.Sub(start); took != 0 {
			t.Errorf("the next was granted %v after the last had been released", took)
		}
		release(t, g.lease)
		w.empty()
	})
}
