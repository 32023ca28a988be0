package semaphore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The first in line waits for a permit, sends no heartbeat, and its follower is
// cut off from the leader. It looks for room behind a sync, and leaves the
// follower when that is not answered, as a waiter for a lock does. So does one
// behind it.
func TestAWaiterLeavesAFollowerThatIsCutOff(t *testing.T) {
	for name, before := range map[string]int{"the first": 0, "the second": 1} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				b := w.Connect("b")
				at := w.CutFollowerOf(b)
				w.Heal()
				leader := w.Address(w.Leader())
				held := bubble.Acquire(t, t.Context(), newSemaphore(t, w.ConnectTo("a", leader), 1))
				var ahead []<-chan bubble.Grant
				for range before {
					ahead = append(ahead, bubble.Acquiring(t.Context(), newSemaphore(t, w.ConnectTo("c", leader), 1)))
					w.InLine(lockDir, before)
				}
				next := bubble.Acquiring(t.Context(), newSemaphore(t, b, 1))
				w.InLine(lockDir, before+1)
				w.Isolate(at)
				began := time.Now()
				w.AwaitOtherMember(b, at)
				if took, most := time.Since(began), bubble.Timeout*5/4+bubble.Timeout/3+time.Second; took > most {
					t.Errorf("the follower was left after %v, want at most %v", took, most)
				}
				w.InLine(lockDir, before+1)
				bubble.Release(t, held)
				for _, one := range append(ahead, next) {
					bubble.Release(t, bubble.Granted(t, one).Lease)
				}
				w.Heal()
				empty(w)
			}, testutil.WithMembers(3), testutil.WithSyncLimit(100))
		})
	}
}

// A waiter hears that it is first, loses its connection, and looks for room at
// a member that lags: that one does not know yet of the permit that the one
// ahead has taken.
func TestAWaiterGoesToAMemberThatLags(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		leader := w.Leader()
		now, then := (leader+1)%3, (leader+2)%3
		b, c := w.ConnectTo("b", w.Address(leader)), w.ConnectTo("c", w.Address(now)+","+w.Address(then))
		bubble.AwaitTrue(t, "a member that goes on", func() bool {
			if w.MemberOf(w.SessionID(c)) == now {
				return true
			}
			w.ClientNet("c").Drop()
			time.Sleep(time.Second)
			return false
		})
		bubble.Release(t, bubble.Acquire(t, t.Context(), newSemaphore(t, c, 1)))
		take := make(chan struct{})
		taken := testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.Hold(take))
		defer w.ClientNet("b").Control(taken.Control)()
		ahead := bubble.Acquiring(t.Context(), newSemaphore(t, b, 1))
		bubble.Await(t, "the first to take its permit", taken.Hit())
		next := bubble.Acquiring(t.Context(), newSemaphore(t, c, 1))
		w.InLine(lockDir, 2)
		time.Sleep(time.Second)

		w.Lag(then)
		var lost atomic.Bool
		defer w.ClientNet("c").Control(func(r testutil.Request) testutil.Action {
			if (r.Path == path || r.Path == leases) && lost.CompareAndSwap(false, true) {
				go func() { _ = w.Stop(now) }()
				return testutil.DropBefore()
			}
			return testutil.Pass()
		})()
		close(take)
		held := bubble.Granted(t, ahead).Lease
		bubble.AwaitTrue(t, "the look", lost.Load)
		bubble.AwaitTrue(t, "the member that lags", func() bool { return c.State() == framework.Connected && w.MemberOf(w.SessionID(c)) == then })
		time.Sleep(time.Second)
		w.Unlag(then)
		time.Sleep(time.Second)
		bubble.Pending(t, next)
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, next).Lease)
		must(t, w.Restart(now))
		empty(w)
	}, testutil.WithMembers(3))
}
