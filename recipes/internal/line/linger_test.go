package line_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// While a lock lingers, Acquire and Release send no request, and tokens
// increase.
func TestLingeringLockCostsNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Second))
		l := bubble.Acquire(t, t.Context(), m)
		bubble.Release(t, l)
		w.ResetRequests()
		last := l.Token()
		for i := range 1000 {
			enter := m.Acquire
			if i%2 == 0 {
				enter = m.TryAcquire
			}
			l, err := enter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if l.Token().Compare(last) <= 0 {
				t.Fatalf("token %v after %v", l.Token(), last)
			}
			last = l.Token()
			bubble.Release(t, l)
		}
		if cost := w.Cost(); len(cost) > 0 {
			t.Errorf("requests: %v", cost)
		}
		if len(w.Children(lockPath)) != 1 {
			t.Error("does not linger")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if left := w.Children(lockPath); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		w.Empty(lockPath)
	})
}

// The look at the line for the sake of a linger finds that the znode was
// deleted, before the znode is watched: that is the loss, held or not.
func TestLookFindsTheZnodeDeleted(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m, operator := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Minute)), w.Connect("operator")
		l := bubble.Acquire(t, t.Context(), m)
		began := time.Now()
		if err := operator.Delete(t.Context(), l.Path(), -1); err != nil {
			t.Fatal(err)
		}
		if at := bubble.Lost(t, l); !at.Equal(began) {
			t.Errorf("lost after %v", at.Sub(began))
		}
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, zk.ErrNoNode)
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		if err := operator.Delete(t.Context(), lockPath+"/"+w.InLine(lockPath, 1)[0], -1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if l, err := m.TryAcquire(t.Context()); err != nil || !w.Exists(l.Path()) {
			t.Errorf("after the deletion of what lingered: %v", err)
		}
	})
}

// A lingering lock is released as soon as another process joins the line.
func TestLingeringLockMakesRoom(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(5 * time.Millisecond)
		m, other := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Minute)), mutexOf(t, w.Connect("b"))
		for range 3 {
			bubble.Release(t, bubble.Acquire(t, t.Context(), m))
			time.Sleep(100 * time.Millisecond)
			w.InLine(lockPath, 1)
			began := time.Now()
			l := bubble.Acquire(t, t.Context(), other)
			// The create and the watch; the event and the list; the delete and
			// its event.
			if took := time.Since(began); took > 70*time.Millisecond {
				t.Errorf("took %v", took)
			}
			bubble.Release(t, l)
		}
		w.Empty(lockPath)
	})
}

// A TryAcquire finds a lock busy that lingers in another process: it costs one
// list, and changes nothing. An Acquire with a short time gets the lock, in a
// round trip or two more than a free one. That is so also if the process of the
// lingering lock uses it again in between.
func TestTryAtALingeringLock(t *testing.T) {
	const latency = 5 * time.Millisecond
	for _, again := range []bool{false, true} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			w.Latency(latency)
			m, other := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Minute)), mutexOf(t, w.Connect("b"))
			bubble.Release(t, bubble.Acquire(t, t.Context(), m))
			time.Sleep(time.Second)
			if again {
				bubble.Release(t, bubble.Acquire(t, t.Context(), m))
			}
			lingering := w.InLine(lockPath, 1)
			w.ResetRequests()
			_, err := other.TryAcquire(t.Context())
			bubble.WantErr(t, err, recipes.ErrBusy)
			if cost := w.Cost(); cost[testutil.OpGetChildren2] != 1 || len(cost) != 1 {
				t.Errorf("requests: %v", cost)
			}
			if still := w.InLine(lockPath, 1); still[0] != lingering[0] {
				t.Error("the lingering znode has left")
			}
			began := time.Now()
			l, err := recipes.Within(other, time.Second).Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			// The create and the watch; the event and the list; the delete and its
			// event. The create alone would take one round trip.
			if took := time.Since(began); took > 14*latency {
				t.Errorf("took %v", took)
			}
			bubble.Release(t, l)
			time.Sleep(2 * time.Minute)
			w.Empty(lockPath)
		})
	}
}

// Under any fault of a lingering lock the next Acquire is granted, and nothing
// is left.
func TestLingeringLockUnderFaults(t *testing.T) {
	for name, fault := range map[string]func(w *bubble.World, c *framework.Client){
		"nothing":                    func(*bubble.World, *framework.Client) {},
		"the connection drops":       func(w *bubble.World, _ *framework.Client) { w.ClientNet("a").Drop() },
		"it is cut off for a while":  func(w *bubble.World, _ *framework.Client) { w.ClientNet("a").Cut(); go healLater(w, bubble.Timeout/2) },
		"it is cut off for too long": func(w *bubble.World, _ *framework.Client) { w.ClientNet("a").Cut(); go healLater(w, 2*bubble.Timeout) },
		"the session expires":        func(w *bubble.World, c *framework.Client) { w.Expire(c) },
		"the znode is deleted":       remove,
	} {
		for _, wait := range []time.Duration{0, time.Second, bubble.Timeout} {
			t.Run(fmt.Sprint(name, ", after ", wait), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					c := w.Connect("a", patient)
					m := mutexOf(t, c, recipes.WithLinger(time.Minute))
					bubble.Release(t, bubble.Acquire(t, t.Context(), m))
					time.Sleep(time.Second)
					fault(w, c)
					time.Sleep(wait)
					l, err := m.Acquire(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					// The client may learn of the fault only now.
					if err := l.Release(t.Context()); err != nil && (name == "nothing" || !errors.Is(err, recipes.ErrNotHeld)) {
						t.Error(err)
					}
					other := mutexOf(t, w.Connect("b"))
					bubble.Release(t, bubble.Acquire(t, t.Context(), other))
					time.Sleep(time.Minute)
					w.Empty(lockPath)
				})
			})
		}
	}
}

// Close removes all lingering znodes.
func TestCloseEndsLingering(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		bubble.Release(t, bubble.Acquire(t, t.Context(), mutexOf(t, c, recipes.WithLinger(time.Hour))))
		w.InLine(lockPath, 1)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		w.Empty(lockPath)
	})
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		k, err := locks.NewKeyed(w.Connect("a"), "/app/keys", recipes.WithLinger(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"one", "two"} {
			bubble.Release(t, bubble.Acquire(t, t.Context(), k.Key(key)))
		}
		w.InLine("/app/keys/one", 1)
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
		w.InLine("/app/keys/one", 0)
		w.InLine("/app/keys/two", 0)
	})
}

// WithHandoffs(0) prevents handoffs of a lock that lingers, too. It lingers for
// later callers.
func TestLingeringWithoutHandoffs(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"), recipes.WithHandoffs(0), recipes.WithLinger(time.Second))
		l := bubble.Acquire(t, t.Context(), m)
		time.Sleep(time.Second) // until it is known that nobody else is in line
		waiting := queued(m, 1)[0]
		then := next(t, l, waiting)
		if then.Path() == l.Path() {
			t.Error("handed off")
		}
		bubble.Release(t, then)
		if last := bubble.Acquire(t, t.Context(), m); last.Path() != then.Path() {
			t.Error("did not linger")
		}
	})
}

// A try that comes while the process removes its lingering znode waits for the
// delete: the lock is free.
func TestTryAsLingeringEnds(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(5 * time.Millisecond)
		m := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Second))
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		time.Sleep(time.Second + time.Millisecond) // the delete is under way
		l, err := m.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		bubble.Release(t, l)
		time.Sleep(2 * time.Second)
		w.Empty(lockPath)
	})
}

// An Acquire that comes as lingering ends, and gives up, changes nothing: the
// znode is deleted once.
func TestGivingUpAsLingeringEnds(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(5 * time.Millisecond)
		m := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Second))
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		w.ResetRequests()
		time.Sleep(time.Second - 2*time.Millisecond)
		w.InLine(lockPath, 1)
		time.Sleep(2 * time.Millisecond) // the delete is under way
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := m.Acquire(ctx)
		bubble.WantErr(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		if got := w.Cost()[testutil.OpDelete]; got != 1 {
			t.Errorf("%d deletes", got)
		}
		w.Empty(lockPath)
	})
}

// A try during a Release fails with ErrBusy: the lease is held until its znode
// is gone.
func TestTryDuringARelease(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(5 * time.Millisecond)
		m := mutexOf(t, w.Connect("a"))
		l := bubble.Acquire(t, t.Context(), m)
		released := make(chan error, 1)
		go func() { released <- l.Release(context.Background()) }()
		time.Sleep(time.Millisecond)
		_, err := m.TryAcquire(t.Context())
		bubble.WantErr(t, err, recipes.ErrBusy)
		if err := <-released; err != nil {
			t.Error(err)
		}
		w.Empty(lockPath)
	})
}

// A lingering lock is released for a contender of another layout too: whether
// that one waits cannot be known.
func TestLingeringLockWithAnotherLayout(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Minute))
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		time.Sleep(time.Second)
		const latch = "_c_0123abcd-0123-4567-89ab-0123456789ab-latch-0000000009"
		if _, err := w.Connect("operator").Create(t.Context(), lockPath+"/"+latch, nil, 0); err != nil {
			t.Fatal(err)
		}
		if left := w.InLine(lockPath, 1); left[0] != latch {
			t.Errorf("left: %v", left)
		}
	})
}

// Close ends lingering only below its root.
func TestCloseKeepsOthersLingering(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		var all []*locks.Keyed
		for _, root := range []string{"/app/keys", "/app/keys-too"} {
			k, err := locks.NewKeyed(c, root, recipes.WithLinger(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			bubble.Release(t, bubble.Acquire(t, t.Context(), k.Key("one")))
			all = append(all, k)
		}
		if err := all[0].Close(t.Context()); err != nil {
			t.Error(err)
		}
		w.InLine("/app/keys/one", 0)
		w.InLine("/app/keys-too/one", 1)
	})
}

// Foreign children that are created and deleted all the time cost few looks,
// and an Acquire at that time waits for one look at most.
func TestLingeringLockWithForeignChildren(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(time.Millisecond)
		m := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Minute))
		l := bubble.Acquire(t, t.Context(), m)
		znode := l.Path()
		bubble.Release(t, l)
		operator := w.Connect("operator")
		change := func() {
			if _, err := operator.Create(t.Context(), lockPath+"/foreign", nil, 0); err != nil {
				t.Fatal(err)
			}
			if err := operator.Delete(t.Context(), lockPath+"/foreign", -1); err != nil {
				t.Fatal(err)
			}
		}
		w.ResetRequests()
		for range 250 { // a second
			change()
		}
		if lists := w.Cost()[testutil.OpGetChildren2]; lists > 20 {
			t.Errorf("%d lists", lists)
		}
		for range 5 {
			change()
			began := time.Now()
			l := bubble.Acquire(t, t.Context(), m)
			if took := time.Since(began); took > 4*time.Millisecond || l.Path() != znode {
				t.Errorf("%s after %s, granted after %v", l.Path(), znode, took)
			}
			bubble.Release(t, l)
		}
		other := mutexOf(t, w.Connect("b"))
		for _, test := range []struct {
			before func()
			most   time.Duration
		}{
			{func() { time.Sleep(bubble.Timeout) }, 20 * time.Millisecond}, // without events
			{func() {
				for range 1500 {
					change()
				}
			}, bubble.Timeout/40 + 20*time.Millisecond},
		} {
			test.before()
			began := time.Now()
			bubble.Release(t, bubble.Acquire(t, t.Context(), other))
			if took := time.Since(began); took > test.most {
				t.Errorf("another process waited for %v", took)
			}
			bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		}
		time.Sleep(time.Minute)
		w.Empty(lockPath)
	})
}

// A request to release a lingering znode is followed at once, if Revoked was
// called.
func TestLingeringLockCanBeRevoked(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Minute))
		l := bubble.Acquire(t, t.Context(), m)
		l.Revoked()
		time.Sleep(time.Second)
		bubble.Release(t, l)
		all, err := m.Participants(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Revoke(t.Context(), all[0]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		w.InLine(lockPath, 0)
	})
}

// Nothing lingers once Close has begun, also if a lease is released, waited for
// or granted at that moment.
func TestNothingLingersAfterClose(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(t *testing.T, k *locks.Keyed, closes func())
	}{
		{"released at the same time", func(t *testing.T, k *locks.Keyed, closes func()) {
			for i := range 100 {
				l := bubble.Acquire(t, t.Context(), k.Key(strconv.Itoa(i)))
				go func() { _ = l.Release(context.Background()) }()
			}
			closes()
		}},
		{"released, and waited for", func(t *testing.T, k *locks.Keyed, closes func()) {
			m := k.Key("one")
			l := bubble.Acquire(t, t.Context(), m)
			waiting := queued(m, 1)[0]
			bubble.Release(t, l) // it is not yet known whether others are in line
			bubble.Pending(t, waiting)
			closes()
			g := <-waiting
			bubble.WantErr(t, g.Err, locks.ErrClosed)
		}},
		{"lingering, and waited for", func(t *testing.T, k *locks.Keyed, closes func()) {
			m := k.Key("one")
			bubble.Release(t, bubble.Acquire(t, t.Context(), m))
			waiting := queued(m, 1)[0]
			bubble.Pending(t, waiting)
			closes()
			g := <-waiting
			bubble.WantErr(t, g.Err, locks.ErrClosed)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				w.Latency(5 * time.Millisecond)
				k, err := locks.NewKeyed(w.Connect("a"), "/app/keys", recipes.WithLinger(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				test.do(t, k, func() {
					if err := k.Close(t.Context()); err != nil {
						t.Error(err)
					}
				})
				var dirs []string
				for _, key := range w.Children("/app/keys") {
					dirs = append(dirs, "/app/keys/"+key)
				}
				w.Empty(dirs...)
			})
		})
	}
}

// Close waits until the last lingering lock of many is removed.
func TestCloseWaitsForAllLingeringLocks(t *testing.T) {
	keys := []string{"a", "b", "c", "d", "e"}
	for _, last := range keys {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			k, err := locks.NewKeyed(w.Connect("a"), "/app/keys", recipes.WithLinger(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range keys {
				bubble.Release(t, bubble.Acquire(t, t.Context(), k.Key(key)))
			}
			reply := make(chan struct{})
			w.Control(func(r testutil.Request) testutil.Action {
				if r.Does(testutil.OpDelete, "/app/keys/"+last+"/") {
					return testutil.HoldReply(reply)
				}
				return testutil.Pass()
			})
			closed := make(chan error, 1)
			go func() { closed <- k.Close(t.Context()) }()
			synctest.Wait()
			select {
			case err := <-closed:
				t.Errorf("Close returned %v before %s was removed", err, last)
			default:
			}
			close(reply)
			if err := bubble.Await(t, "Close to return", closed); err != nil {
				t.Error(err)
			}
		})
	}
}

// While a lock that may linger is held, the line is looked at every quarter of
// the session timeout. So a release hands it off without a request, at any time
// between two looks.
func TestLingeringLockIsHandedOffWithoutRequest(t *testing.T) {
	for _, held := range []time.Duration{bubble.Timeout / 20, bubble.Timeout / 5, bubble.Timeout * 24 / 100} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			m := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Hour))
			l := bubble.Acquire(t, t.Context(), m)
			next := bubble.Acquiring(t.Context(), m)
			time.Sleep(held)
			w.ResetRequests()
			bubble.Release(t, l)
			l = bubble.Granted(t, next).Lease
			if cost := w.Cost(); len(cost) != 0 {
				t.Errorf("held for %v, requests of the handoff: %v", held, cost)
			}
			bubble.Release(t, l)
		})
		bubble.Run(t, func(t *testing.T, w *bubble.World) { // or to a later caller
			m := mutexOf(t, w.Connect("a"), recipes.WithLinger(time.Hour))
			l := bubble.Acquire(t, t.Context(), m)
			time.Sleep(held)
			w.ResetRequests()
			bubble.Release(t, l)
			l = bubble.Acquire(t, t.Context(), m)
			time.Sleep(time.Millisecond)
			if cost := w.Cost(); len(cost) != 0 {
				t.Errorf("held for %v, requests of the next Acquire: %v", held, cost)
			}
			bubble.Release(t, l)
		})
	}
}
