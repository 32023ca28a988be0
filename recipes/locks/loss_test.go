package locks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A holder that is cut off from all servers knows, by its own clock, that it has
// lost the lock before anybody else can have it.
func TestPartitionOfTheHolderAlone(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		held := acquire(t, t.Context(), w.mutex(a))
		next := acquiring(t.Context(), w.mutex(b))
		w.line(2)
		time.Sleep(time.Hour) // of quiet, in which nothing is lost
		if !held.Held() {
			t.Fatal("lost while connected")
		}

		cut := time.Now()
		w.ClientNet("a").Cut()
		deadline := held.Deadline()
		if left := deadline.Sub(cut); left < timeout/2-time.Millisecond || left > timeout {
			t.Errorf("%v to the deadline in quiet times, want T/2 at least", left)
		}
		at := lost(t, held)
		if got, want := at, deadline.Add(-margin); !got.Equal(want) {
			t.Errorf("lost %v after the cut, want a margin before the deadline: %v", got.Sub(cut), want.Sub(cut))
		}
		if held.Held() || held.Context().Err() == nil || !held.Deadline().Equal(deadline) {
			t.Errorf("lost: held %v, context %v, deadline moved by %v", held.Held(), held.Context().Err(), held.Deadline().Sub(deadline))
		}
		wantErr(t, held.Err(), framework.ErrSessionLost)
		wantErr(t, context.Cause(held.Context()), recipes.ErrNotHeld, framework.ErrSessionLost)

		then := granted(t, next)
		if then.at.Before(deadline) {
			t.Errorf("the next was granted %v before the deadline", deadline.Sub(then.at))
		}
		if then.lease.Token().Compare(held.Token()) <= 0 {
			t.Errorf("token %v after %v", then.lease.Token(), held.Token())
		}

		w.ClientNet("a").Heal()
		wantErr(t, held.Release(t.Context()), recipes.ErrNotHeld, framework.ErrSessionLost)
		wantErr(t, held.Release(t.Context()), recipes.ErrNotHeld) // for good
		release(t, then.lease)
		if err := a.WaitConnected(t.Context()); err != nil {
			t.Error(err)
		}
		release(t, acquire(t, t.Context(), w.mutex(a))) // the next session is a new one
		w.empty()
	}, testutil.WithMembers(3))
}

// The ensemble ends the session by itself, while everything is connected.
func TestExpiryWhileHolding(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		held := acquire(t, t.Context(), w.mutex(a))
		next := acquiring(t.Context(), w.mutex(b))
		w.line(2)
		if err := w.ExpireSession(w.session(a)); err != nil {
			t.Fatal(err)
		}
		lost(t, held)
		wantErr(t, held.Err(), framework.ErrSessionLost)
		wantErr(t, held.Release(t.Context()), recipes.ErrNotHeld)
		release(t, granted(t, next).lease)
		w.empty()
	})
}

// A lease whose session was expired unnoticed is not reported as released: the
// delete itself finds out.
func TestReleaseAfterAnUnnoticedExpiry(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a := w.client("a")
		l := acquire(t, t.Context(), w.mutex(a))
		w.ClientNet("a").Cut()
		if err := w.ExpireSession(w.session(a)); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, w.ClientNet("a").Heal)
		if !l.Held() {
			t.Error("the loss was noticed already")
		}
		wantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, framework.ErrSessionLost)
		wantErr(t, l.Err(), framework.ErrSessionLost)
		lost(t, l)
		w.empty()
	})
}

// A lost session costs a waiter its place in line, not its call.
func TestExpiryWhileWaiting(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a, b, c := w.client("a"), w.client("b"), w.client("c")
		held := acquire(t, t.Context(), w.mutex(a))
		second := acquiring(t.Context(), w.mutex(b))
		w.line(2)
		home := acquiring(t.Context(), w.mutex(b)) // at home, behind second
		third := acquiring(t.Context(), w.mutex(c))
		w.line(3)
		old := w.session(b)
		if err := w.ExpireSession(old); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		w.line(3)
		if w.session(b) == old {
			t.Fatal("the session did not change")
		}
		release(t, held)
		was3 := granted(t, third)
		pending(t, second)
		release(t, was3.lease)
		was2 := granted(t, second)
		pending(t, home)
		release(t, was2.lease)
		release(t, granted(t, home).lease)
		w.empty()
	})
}

// A short disconnect costs no lease.
func TestDisconnectsCostNoLease(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		held := acquire(t, t.Context(), w.mutex(a))
		next := acquiring(t.Context(), w.mutex(b))
		w.line(2)
		for range 20 {
			w.ClientNet("a").Drop()
			w.ClientNet("b").Drop()
			time.Sleep(700 * time.Millisecond)
			w.ClientNet("a").Cut()
			time.Sleep(3 * time.Second)
			w.ClientNet("a").Heal()
			time.Sleep(3 * time.Second)
		}
		pending(t, next)
		release(t, held)
		release(t, granted(t, next).lease)
		w.empty()
	}, testutil.WithMembers(3))
}

// Under the strict policy it does.
func TestADisconnectCostsALeaseUnderTheStrictPolicy(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a := w.client("a", framework.WithErrorPolicy(framework.ErrorPolicyConnection))
		m := w.mutex(a)
		l := acquire(t, t.Context(), m)
		w.ClientNet("a").Drop()
		start := time.Now()
		if took := lost(t, l).Sub(start); took != 0 {
			t.Errorf("lost after %v", took)
		}
		// The session lives, and so does the znode, while the work is stopping.
		next := acquiring(t.Context(), m)
		w.line(2)
		pending(t, next)
		wantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
		release(t, granted(t, next).lease)
		w.empty()
	})
}

// A follower that is cut off from its leader still answers pings. They
// prove nothing.
func TestAFollowerCutOffFromItsLeaderStillAnswersPings(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		leader := w.Leader()
		follower, other := (leader+1)%3, (leader+2)%3
		a := w.clientOf("a", w.address(follower))
		b := w.clientOf("b", w.address(other))
		held := acquire(t, t.Context(), w.mutex(a))
		next := acquiring(t.Context(), w.mutex(b))
		w.line(2)
		time.Sleep(time.Minute)

		w.Isolate(follower)
		deadline := held.Deadline()
		at := lost(t, held)
		if !at.Equal(deadline.Add(-margin)) {
			t.Errorf("lost %v before the deadline, want %v", deadline.Sub(at), margin)
		}
		then := granted(t, next)
		if then.at.Before(deadline) {
			t.Errorf("the next was granted %v before the deadline", deadline.Sub(then.at))
		}
		wantErr(t, held.Release(t.Context()), recipes.ErrNotHeld)
		release(t, then.lease)
		w.Heal()
		time.Sleep(time.Minute)
		w.empty()
	}, testutil.WithMembers(3), testutil.WithSyncLimit(30))
}

// With other members to go to, the client leaves such a follower in time.
func TestACutOffFollowerIsLeftForAnotherMember(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a := w.client("a")
		held := acquire(t, t.Context(), w.mutex(a))
		for range 5 {
			time.Sleep(time.Minute)
			member := w.owner(w.session(a))
			if member == w.Leader() {
				w.ClientNet("a").Drop()
				continue
			}
			w.Isolate(member)
			time.Sleep(timeout)
			w.Heal()
		}
		release(t, held)
		w.empty()
	}, testutil.WithMembers(3), testutil.WithSyncLimit(30))
}

func TestAMuteServer(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a := w.client("a")
		m := w.mutex(a)
		held := acquire(t, t.Context(), m)
		w.Mute(0)
		deadline := held.Deadline()
		if at := lost(t, held); !at.Equal(deadline.Add(-margin)) {
			t.Errorf("lost %v before the deadline", deadline.Sub(at))
		}
		// Who waits is bounded by its context, to the instant.
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := m.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("Acquire: %v after %v", err, time.Since(start))
		}
		w.Unmute(0)
		_ = held.Release(t.Context())
		release(t, acquire(t, t.Context(), m))
		w.empty()
	})
}

// A server that answers pings and no requests.
func TestAWedgedServer(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		held := acquire(t, t.Context(), w.mutex(a))
		next := acquiring(t.Context(), w.mutex(b))
		w.line(2)
		member := w.owner(w.session(a))
		w.Wedge(member)
		time.Sleep(2 * timeout)
		if !held.Held() {
			t.Errorf("lost, with two members to go to: %v", held.Err())
		}
		pending(t, next)
		release(t, held)
		release(t, granted(t, next).lease)
		w.Unwedge(member)
		w.empty()
	}, testutil.WithMembers(3))
}

func TestAWedgedServerAlone(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		m := w.mutex(w.client("a"))
		held := acquire(t, t.Context(), m)
		w.Wedge(0)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, held.Release(ctx), context.DeadlineExceeded)
		if took := time.Since(start); took != time.Second {
			t.Errorf("Release took %v", took)
		}
		// It opens connections, and the leader validates those: the session lives on,
		// and the removal goes on trying.
		time.Sleep(10 * time.Minute)
		time.AfterFunc(time.Second, func() { w.Unwedge(0) })
		release(t, held)
		if took := time.Since(start); took > 10*time.Minute+timeout {
			t.Errorf("Release took %v", took)
		}
		release(t, acquire(t, t.Context(), m))
		w.empty()
	})
}

// What waited in the wire client when its session expired must not be
// executed in the next.
func TestRequestsQueuedAcrossAnExpiry(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a := w.client("a")
		m := w.mutex(a)
		release(t, acquire(t, t.Context(), m))
		old := w.session(a)
		w.ClientNet("a").Cut()
		waiting := acquiring(t.Context(), m)
		time.Sleep(time.Second)
		if err := w.ExpireSession(old); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.recount()
		w.ClientNet("a").Heal()
		l := granted(t, waiting).lease
		names := w.line(1)
		if stat, _ := w.Stat(l.Path()); stat.EphemeralOwner != w.session(a) || w.session(a) == old {
			t.Errorf("%v belongs to %x, the session is %x, was %x", names, stat.EphemeralOwner, w.session(a), old)
		}
		release(t, l)
		w.empty()
	})
}

// The retry budget bounds a step while no server answers. It does not bound the
// wait of one who has nothing to ask.
func TestTheRetryBudgetEndsAWaitWithoutServers(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		budget := framework.WithRetry(retry.NTimes(3, time.Second))
		a, b := w.client("a", budget), w.client("b", budget)
		held := acquire(t, t.Context(), w.mutex(a))
		waiting := acquiring(t.Context(), w.mutex(b))
		w.line(2)
		w.ClientNet("b").Cut()
		time.Sleep(6 * time.Second) // twice the budget, and less than the session
		pending(t, waiting)
		w.ClientNet("b").Heal()
		time.Sleep(10 * time.Second)
		pending(t, waiting)
		if err := w.Stop(0); err != nil {
			t.Fatal(err)
		}
		g := <-waiting
		wantErr(t, g.err, zk.ErrNoServer)
		if g.err == nil || g.lease != nil {
			t.Errorf("Acquire without servers: %v, %v", g.lease, g.err)
		}
		lost(t, held)
		if err := w.Restart(0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		_ = held.Release(t.Context())
		w.empty()
	})
}
