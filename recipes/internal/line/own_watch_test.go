package line_test

import (
	"context"
	"errors"
	"runtime"
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

// The timer of WithMaxHold fires at the moment of the release, while the znode
// is handed off. It must not end the next holder's lease.
func TestMaxHoldTimerDuringAHandoff(t *testing.T) {
	bubble.Usual(t, bubble.ShortTimeout) // has times of its own
	const hold = time.Second
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"), recipes.WithMaxHold(hold), recipes.WithHandoffs(1<<30))
		l := bubble.Acquire(t, t.Context(), m)
		kept := 0
		for i := range bubble.Few(80, 300) {
			began := time.Now()
			next := bubble.Acquiring(t.Context(), m)
			time.Sleep(hold - time.Since(began))
			for range i % 8 { // the timer fires at the same instant
				runtime.Gosched()
			}
			if l.Release(t.Context()) == nil {
				kept++
			}
			l = bubble.Granted(t, next).Lease
			time.Sleep(hold / 2)
			if err := l.Err(); err != nil {
				t.Fatalf("round %d: lost after half of the maximum hold time: %v", i, err)
			}
			bubble.Release(t, l)
			l = bubble.Acquire(t, t.Context(), m)
		}
		if kept == 0 {
			t.Error("each lease was lost before its release: the scenario was not reached")
		}
		bubble.Release(t, l)
		w.Empty(lockPath)
	})
}

// WithMaxHold does not end a lease whose release is under way.
func TestMaxHoldEndsDuringARelease(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"), recipes.WithMaxHold(time.Second))
		for _, action := range []testutil.Action{testutil.Delay(time.Second), testutil.DelayReply(time.Second)} {
			l := bubble.Acquire(t, t.Context(), m)
			time.Sleep(time.Second / 2)
			hits := w.Once(testutil.OpDelete, lockPath, action)
			bubble.Release(t, l)
			if hits.Load() != 1 {
				t.Error("the delete was not delayed")
			}
		}
		w.Empty(lockPath)
	})
}

// A lingering lock has no holder that releases it. If it is lost and its
// session survives, its znode must be removed at once, or it would block the
// line until the session ends.
func TestLingeringLockThatIsLostIsRemoved(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a", framework.WithErrorPolicy(framework.ErrorPolicyConnection))
		m, other := mutexOf(t, a, recipes.WithLinger(time.Hour)), mutexOf(t, w.Connect("b"))
		for range 3 {
			bubble.Release(t, bubble.Acquire(t, t.Context(), m))
			s, err := a.Session()
			if err != nil {
				t.Fatal(err)
			}
			w.ClientNet("a").Drop() // a loss under this policy
			began := time.Now()
			l := bubble.Acquire(t, t.Context(), other)
			if took := time.Since(began); took > time.Second {
				t.Errorf("granted to another client after %v", took)
			}
			if s.Err() != nil {
				t.Fatalf("the session has not survived: the scenario was not reached: %v", s.Err())
			}
			bubble.Release(t, l)
		}
		w.Empty(lockPath)
	})
}

// The deletion of a held znode is noticed after any number of earlier events
// that end its watch: a change of its data, or a disconnect.
func TestHeldZnodeIsWatchedThroughout(t *testing.T) {
	events := map[string]func(w *bubble.World, l *recipes.Lease, operator *framework.Client) error{
		"its data are changed": func(_ *bubble.World, l *recipes.Lease, operator *framework.Client) error {
			_, err := operator.Set(context.Background(), l.Path(), []byte("a note"), -1)
			return err
		},
		"the connection is lost": func(w *bubble.World, _ *recipes.Lease, _ *framework.Client) error {
			w.ClientNet("a").Drop()
			return nil
		},
	}
	for name, event := range events {
		t.Run(name, func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				m, operator := mutexOf(t, w.Connect("a")), w.Connect("operator")
				for times := range 4 {
					l := bubble.Acquire(t, t.Context(), m)
					time.Sleep(time.Minute)
					for range times {
						if err := event(w, l, operator); err != nil {
							t.Fatal(err)
						}
						time.Sleep(time.Minute)
					}
					if err := operator.Delete(t.Context(), l.Path(), -1); err != nil {
						t.Fatal(err)
					}
					deleted := time.Now()
					if at := bubble.Lost(t, l); at.Sub(deleted) > time.Second {
						t.Errorf("lost %v after the znode was deleted", at.Sub(deleted))
					}
					bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
				}
				w.Empty(lockPath)
			})
		})
	}
}

// A holder whose znode was replaced by one of the same name, or by one that it
// may not read, has lost its lease. If it never could read its znode, it has
// not.
func TestHeldZnodeIsReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		after  time.Duration // from when on the holder may not read
		hidden bool
		want   error
	}{
		"before it is watched":               {0, false, zk.ErrNoNode},
		"while it is watched":                {time.Second, false, zk.ErrNoNode},
		"by one that is hidden":              {time.Second, true, zk.ErrNoAuth},
		"not, but it is hidden all the time": {0, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				m, operator := mutexOf(t, w.Connect("a")), w.Connect("operator")
				l := bubble.Acquire(t, t.Context(), m)
				time.Sleep(test.after)
				if test.hidden {
					defer w.Control(func(r testutil.Request) testutil.Action {
						if r.Op == testutil.OpGetData {
							return testutil.Fail(testutil.CodeNoAuth)
						}
						return testutil.Pass()
					})()
				}
				if test.want != nil {
					remake(t, operator, l.Path(), zk.FlagEphemeral)
				}
				time.Sleep(time.Second)
				if err := l.Err(); !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
				if err := l.Release(t.Context()); (err != nil) != (test.want != nil) {
					t.Errorf("Release: %v", err)
				}
				_ = operator.Delete(t.Context(), l.Path(), -1) // which may be gone
				w.Empty(lockPath)
			})
		})
	}
}

// The same, if no server replies when the watch is set, for longer than the
// retry budget.
func TestHeldZnodeIsWatchedOnceAServerReplies(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a", framework.WithRetry(retry.NTimes(1, 10*time.Millisecond))))
		operator := w.Connect("operator")
		l := bubble.Acquire(t, t.Context(), m)
		w.ClientNet("a").Drop()
		w.ClientNet("a").Cut()
		time.Sleep(bubble.Timeout / 5)
		w.ClientNet("a").Heal()
		time.Sleep(bubble.Timeout)
		if err := operator.Delete(t.Context(), l.Path(), -1); err != nil {
			t.Fatal(err)
		}
		deleted := time.Now()
		if at := bubble.Lost(t, l); at.Sub(deleted) > time.Second {
			t.Errorf("lost %v after the znode was deleted", at.Sub(deleted))
		}
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
		w.Empty(lockPath)
	})
}

// A holder that hears of a change of its znode, and loses its connection before
// it has read what has changed, reads it as soon as it has the next one,
// although the retry policy gives up before that.
func TestHeldZnodeIsReadOnceThereIsAConnection(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a", framework.WithRetry(retry.NTimes(1, 10*time.Millisecond))))
		operator := w.Connect("operator")
		l := bubble.Acquire(t, t.Context(), m)
		time.Sleep(bubble.Timeout)
		a := w.ClientNet("a")
		reads := w.Once(testutil.OpGetData, l.Path(), testutil.HoldReply(nil))
		if err := operator.Delete(t.Context(), l.Path(), -1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		a.Drop()
		a.Cut()
		time.Sleep(bubble.Timeout / 5)
		a.Heal()
		healed := time.Now()
		if at := bubble.Lost(t, l); at.Sub(healed) > time.Second {
			t.Errorf("lost %v after there was a connection again", at.Sub(healed))
		}
		if reads.Load() != 1 {
			t.Error("the znode was not read: the scenario was not reached")
		}
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
		w.Empty(lockPath)
	})
}

// A holder that cannot watch its znode tries again three times in each session
// timeout.
func TestHeldZnodeThatCannotBeRead(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
		var reads atomic.Int64
		stop := w.ClientNet("a").Control(func(r testutil.Request) testutil.Action {
			if r.Op != testutil.OpGetData {
				return testutil.Pass()
			}
			reads.Add(1)
			return testutil.Fail(testutil.CodeNoAuth)
		})
		const periods = 100
		time.Sleep(periods * bubble.Timeout)
		if n := reads.Load(); n < periods*3*9/10 || n > periods*3*11/10 {
			t.Errorf("%d reads in %d session timeouts", n, periods)
		}
		stop()
		bubble.Release(t, l)
		w.Empty(lockPath)
	})
}
