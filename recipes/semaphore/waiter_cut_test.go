package semaphore_test

import (
	"testing"
	"time"

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
