package line_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A grant is lost with its connection, and the session connects again, which
// moves the session's deadline. The znode is removed at the deadline that was
// known at the loss, so nobody is told a later one, even before the lease
// itself knows of the loss.
func TestTheDeadlineOfALossStays(t *testing.T) {
	bubble.Usual(t, bubble.ProofWrite) // the heartbeat is not a write
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a", framework.WithErrorPolicy(framework.ErrorPolicyConnection))
		s := acquire(t, newLine(t, c, exclusive))
		time.Sleep(time.Second)
		losses := make(chan *line.Loss, 1)
		s.OnLoss(func(loss *line.Loss) { losses <- loss })
		w.ClientNet("a").Cut()
		w.ClientNet("a").Drop()
		loss := <-losses
		w.ClientNet("a").Heal()
		time.Sleep(bubble.Timeout / 2)
		sess, err := c.Session()
		if err != nil || !sess.Deadline().After(loss.Deadline) {
			t.Fatalf("%v, or the session has not connected again", err)
		}
		if got := s.Deadline(); !got.Equal(loss.Deadline) {
			t.Errorf("the deadline is %v after that of the loss", got.Sub(loss.Deadline))
		}
	})
}

// A holder that is cut off from all servers knows by its clock that it has lost
// the lock, before another client can be granted. Known failures elsewhere:
// CURATOR-206, -604, Redis locks.
func TestPartitionOfTheHolderAlone(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		held := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		next := bubble.Acquiring(t.Context(), mutexOf(t, b))
		w.InLine(lockPath, 2)
		time.Sleep(bubble.Few(10*time.Minute, time.Hour)) // nothing is lost
		if !held.Held() {
			t.Fatal("lost while connected")
		}

		cut := time.Now()
		w.ClientNet("a").Cut()
		deadline := held.Deadline()
		if left := deadline.Sub(cut); left < bubble.Timeout/2-time.Millisecond || left > bubble.Timeout {
			t.Errorf("%v to the deadline in quiet times, want T/2 at least", left)
		}
		at := bubble.Lost(t, held)
		if got, want := at, deadline.Add(-bubble.Margin); !got.Equal(want) {
			t.Errorf("lost %v after the cut, want a stop margin before the deadline: %v", got.Sub(cut), want.Sub(cut))
		}
		if held.Held() || held.Context().Err() == nil || !held.Deadline().Equal(deadline) {
			t.Errorf("after the loss: held %v, context %v, deadline moved by %v", held.Held(), held.Context().Err(), held.Deadline().Sub(deadline))
		}
		bubble.WantErr(t, held.Err(), framework.ErrSessionLost)
		bubble.WantErr(t, context.Cause(held.Context()), recipes.ErrNotHeld, framework.ErrSessionLost)

		then := bubble.Granted(t, next)
		if then.At.Before(deadline) {
			t.Errorf("the next was granted %v before the deadline", deadline.Sub(then.At))
		}
		if then.Lease.Token().Compare(held.Token()) <= 0 {
			t.Errorf("token %v after %v", then.Lease.Token(), held.Token())
		}

		w.ClientNet("a").Heal()
		bubble.WantErr(t, held.Release(t.Context()), recipes.ErrNotHeld, framework.ErrSessionLost)
		bubble.WantErr(t, held.Release(t.Context()), recipes.ErrNotHeld) // still
		bubble.Release(t, then.Lease)
		if err := a.WaitConnected(t.Context()); err != nil {
			t.Error(err)
		}
		bubble.Release(t, bubble.Acquire(t, t.Context(), mutexOf(t, a))) // in a new session
		w.NothingLeft(lockPath)
	}, testutil.WithMembers(3))
}

// The ensemble ends the session while the client is connected.
func TestExpiryWhileHolding(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		held := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		next := bubble.Acquiring(t.Context(), mutexOf(t, b))
		w.InLine(lockPath, 2)
		w.Expire(a)
		bubble.Lost(t, held)
		bubble.WantErr(t, held.Err(), framework.ErrSessionLost)
		bubble.WantErr(t, held.Release(t.Context()), recipes.ErrNotHeld)
		bubble.Release(t, bubble.Granted(t, next).Lease)
		w.NothingLeft(lockPath)
	})
}

// If the session has expired and the client does not know yet, Release does not
// report the lease as released: the delete finds out.
func TestReleaseAfterAnUnnoticedExpiry(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a")
		l := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		w.ClientNet("a").Cut()
		w.Expire(a)
		time.AfterFunc(time.Second, w.ClientNet("a").Heal)
		if !l.Held() {
			t.Error("the loss was known before the release")
		}
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, framework.ErrSessionLost)
		bubble.WantErr(t, l.Err(), framework.ErrSessionLost)
		bubble.Lost(t, l)
		w.NothingLeft(lockPath)
	})
}

// A waiter whose session is lost loses its place in line, but waits on. A known
// failure elsewhere: etcd #19597.
func TestExpiryWhileWaiting(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a, b, c := w.Connect("a"), w.Connect("b"), w.Connect("c")
		held := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		second := bubble.Acquiring(t.Context(), mutexOf(t, b))
		w.InLine(lockPath, 2)
		local := bubble.Acquiring(t.Context(), mutexOf(t, b)) // in the local queue, behind second
		third := bubble.Acquiring(t.Context(), mutexOf(t, c))
		w.InLine(lockPath, 3)
		old := w.SessionID(b)
		if err := w.ExpireSession(old); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		w.InLine(lockPath, 3)
		if w.SessionID(b) == old {
			t.Fatal("the session did not change")
		}
		bubble.Release(t, held)
		was3 := bubble.Granted(t, third)
		bubble.Pending(t, second)
		bubble.Release(t, was3.Lease)
		was2 := bubble.Granted(t, second)
		bubble.Pending(t, local)
		bubble.Release(t, was2.Lease)
		bubble.Release(t, bubble.Granted(t, local).Lease)
		w.NothingLeft(lockPath)
	})
}

// No lease is lost by a short disconnect. A known failure elsewhere: Consul
// #830.
func TestDisconnectsCostNoLease(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		held := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		next := bubble.Acquiring(t.Context(), mutexOf(t, b))
		w.InLine(lockPath, 2)
		for range 20 {
			w.ClientNet("a").Drop()
			w.ClientNet("b").Drop()
			time.Sleep(700 * time.Millisecond)
			w.ClientNet("a").Cut()
			time.Sleep(bubble.Timeout * 3 / 10)
			w.ClientNet("a").Heal()
			time.Sleep(bubble.Timeout * 3 / 10)
		}
		bubble.Pending(t, next)
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, next).Lease)
		w.NothingLeft(lockPath)
	}, testutil.WithMembers(3))
}

// Under ErrorPolicyConnection every lease is.
func TestDisconnectIsALossUnderErrorPolicyConnection(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a", framework.WithErrorPolicy(framework.ErrorPolicyConnection))
		m := mutexOf(t, a)
		l := bubble.Acquire(t, t.Context(), m)
		w.ClientNet("a").Drop()
		start := time.Now()
		if took := bubble.Lost(t, l).Sub(start); took != 0 {
			t.Errorf("lost after %v", took)
		}
		// The session is alive, and the znode exists while the work is
		// stopping.
		next := bubble.Acquiring(t.Context(), m)
		w.InLine(lockPath, 2)
		bubble.Pending(t, next)
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
		bubble.Release(t, bubble.Granted(t, next).Lease)
		w.NothingLeft(lockPath)
	})
}

// A follower that is cut off from its leader still replies to pings. They prove
// nothing.
func TestIsolatedFollowerAnswersPings(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		leader := w.Leader()
		follower, other := (leader+1)%3, (leader+2)%3
		a := w.ConnectTo("a", w.Address(follower))
		b := w.ConnectTo("b", w.Address(other))
		held := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		next := bubble.Acquiring(t.Context(), mutexOf(t, b))
		w.InLine(lockPath, 2)
		time.Sleep(time.Minute)

		w.Isolate(follower)
		deadline := held.Deadline()
		at := bubble.Lost(t, held)
		if !at.Equal(deadline.Add(-bubble.Margin)) {
			t.Errorf("lost %v before the deadline, want %v", deadline.Sub(at), bubble.Margin)
		}
		then := bubble.Granted(t, next)
		if then.At.Before(deadline) {
			t.Errorf("the next was granted %v before the deadline", deadline.Sub(then.At))
		}
		bubble.WantErr(t, held.Release(t.Context()), recipes.ErrNotHeld)
		bubble.Release(t, then.Lease)
		w.Heal()
		time.Sleep(time.Minute)
		w.NothingLeft(lockPath)
	}, testutil.WithMembers(3), testutil.WithSyncLimit(30))
}

// If there are other members, the client leaves such a follower in time.
func TestClientLeavesAnIsolatedFollower(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a")
		held := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		for range 5 {
			time.Sleep(time.Minute)
			member := w.MemberOf(w.SessionID(a))
			if member == w.Leader() {
				w.ClientNet("a").Drop()
				continue
			}
			w.Isolate(member)
			time.Sleep(bubble.Timeout)
			w.Heal()
		}
		bubble.Release(t, held)
		w.NothingLeft(lockPath)
	}, testutil.WithMembers(3), testutil.WithSyncLimit(30))
}

func TestMuteServer(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a")
		m := mutexOf(t, a)
		held := bubble.Acquire(t, t.Context(), m)
		w.Mute(0)
		deadline := held.Deadline()
		if at := bubble.Lost(t, held); !at.Equal(deadline.Add(-bubble.Margin)) {
			t.Errorf("lost %v before the deadline", deadline.Sub(at))
		}
		// A wait ends exactly with its context.
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := m.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("Acquire: %v after %v", err, time.Since(start))
		}
		w.Unmute(0)
		_ = held.Release(t.Context())
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		w.NothingLeft(lockPath)
	})
}

// A server replies to pings, but to no requests.
func TestWedgedServer(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		held := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		next := bubble.Acquiring(t.Context(), mutexOf(t, b))
		w.InLine(lockPath, 2)
		member := w.MemberOf(w.SessionID(a))
		w.Wedge(member)
		time.Sleep(2 * bubble.Timeout)
		if !held.Held() {
			t.Errorf("lost, although there are two other members: %v", held.Err())
		}
		bubble.Pending(t, next)
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, next).Lease)
		w.Unwedge(member)
		w.NothingLeft(lockPath)
	}, testutil.WithMembers(3))
}

func TestSingleWedgedServer(t *testing.T) {
	bubble.Usual(t, bubble.ProofWrite) // the heartbeat is not a write
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		held := bubble.Acquire(t, t.Context(), m)
		w.Wedge(0)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		bubble.WantErr(t, held.Release(ctx), context.DeadlineExceeded)
		if took := time.Since(start); took != time.Second {
			t.Errorf("Release took %v", took)
		}
		// It accepts connections, and the leader validates them: the session
		// stays alive, and the removal is tried again.
		time.Sleep(10 * time.Minute)
		time.AfterFunc(time.Second, func() { w.Unwedge(0) })
		bubble.Release(t, held)
		if took := time.Since(start); took > 10*time.Minute+bubble.Timeout {
			t.Errorf("Release took %v", took)
		}
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		w.NothingLeft(lockPath)
	})
}

// Requests that were queued in the wire client when the session expired must
// not be executed in the next session.
func TestRequestsQueuedAcrossAnExpiry(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a")
		m := mutexOf(t, a)
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		old := w.SessionID(a)
		w.ClientNet("a").Cut()
		waiting := bubble.Acquiring(t.Context(), m)
		time.Sleep(time.Second)
		if err := w.ExpireSession(old); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.ResetRequests()
		w.ClientNet("a").Heal()
		l := bubble.Granted(t, waiting).Lease
		names := w.InLine(lockPath, 1)
		if stat, _ := w.Stat(l.Path()); stat.EphemeralOwner != w.SessionID(a) || w.SessionID(a) == old {
			t.Errorf("%v belongs to %x, the session is %x, was %x", names, stat.EphemeralOwner, w.SessionID(a), old)
		}
		bubble.Release(t, l)
		w.NothingLeft(lockPath)
	})
}

// The whole ensemble is away for longer than the session timeout. Nothing
// expires meanwhile, so waiters keep their znodes. The holder has lost its
// lease by its clock, and they are granted in their order.
func TestWaitersKeepTheirPlacesInAnOutage(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		forever := framework.WithRetry(retry.Forever(time.Second))
		held := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a", forever)))
		second := bubble.Acquiring(t.Context(), mutexOf(t, w.Connect("b", forever)))
		w.InLine(lockPath, 2)
		third := bubble.Acquiring(t.Context(), mutexOf(t, w.Connect("c", forever)))
		inLine := w.InLine(lockPath, 3)
		slices.SortFunc(inLine, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
		for i := range w.Members() {
			if err := w.Stop(i); err != nil {
				t.Fatal(err)
			}
		}
		bubble.Lost(t, held)
		time.Sleep(5 * bubble.Timeout)
		bubble.Pending(t, second)
		bubble.Pending(t, third)
		for i := range w.Members() {
			if err := w.Restart(i); err != nil {
				t.Fatal(err)
			}
		}
		for i, next := range []<-chan bubble.Grant{second, third} {
			lease := bubble.Granted(t, next).Lease
			if want := inLine[i+1]; !strings.HasSuffix(lease.Path(), "/"+want) {
				t.Errorf("granted with %s, want %s", lease.Path(), want)
			}
			bubble.Release(t, lease)
		}
		_ = held.Release(t.Context()) // it is lost
		w.NothingLeft(lockPath)
	})
}

// The retry budget limits each step while no server replies. It does not limit
// a wait in line, which sends no request.
func TestRetryBudgetEndsAWaitWithoutServers(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		budget := framework.WithRetry(retry.NTimes(3, time.Second))
		a, b := w.Connect("a", budget), w.Connect("b", budget)
		held := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		waiting := bubble.Acquiring(t.Context(), mutexOf(t, b))
		w.InLine(lockPath, 2)
		w.ClientNet("b").Cut()
		time.Sleep(6 * time.Second) // twice the budget, and less than the session timeout
		bubble.Pending(t, waiting)
		w.ClientNet("b").Heal()
		time.Sleep(10 * time.Second)
		bubble.Pending(t, waiting)
		if err := w.Stop(0); err != nil {
			t.Fatal(err)
		}
		g := <-waiting
		bubble.WantErr(t, g.Err, zk.ErrNoServer)
		if g.Err == nil || g.Lease != nil {
			t.Errorf("Acquire without servers: %v, %v", g.Lease, g.Err)
		}
		bubble.Lost(t, held)
		if err := w.Restart(0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		_ = held.Release(t.Context())
		w.NothingLeft(lockPath)
	})
}
