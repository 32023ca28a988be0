package line_test

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Who waits in line sends no heartbeat, and its follower is cut off from the
// leader. The follower answers pings all the time, and does not notice for 200
// s. The waiter looks at the znode that it waits for, behind a sync, and leaves
// the follower when the sync is not answered. Then it stands in line elsewhere,
// and is granted, while the follower is still cut off.
func TestAWaiterLeavesAFollowerThatIsCutOff(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		b := w.Connect("b")
		at := w.CutFollowerOf(b)
		w.Heal()
		a := w.ConnectTo("a", w.Address(w.Leader()))
		held := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		next := bubble.Acquiring(t.Context(), mutexOf(t, b))
		w.InLine(lockPath, 2)
		w.Isolate(at)
		began := time.Now()
		w.AwaitOtherMember(b, at)
		if took, most := time.Since(began), bubble.Timeout*5/4+bubble.Timeout/3+time.Second; took > most {
			t.Errorf("the follower was left after %v, want at most %v", took, most)
		}
		w.InLine(lockPath, 2)
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, next).Lease)
		w.Heal()
		w.NothingLeft(lockPath)
	}, testutil.WithMembers(3), testutil.WithSyncLimit(100))
}
