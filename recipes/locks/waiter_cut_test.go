package locks_test

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Who waits in line sends no heartbeat, and its follower is cut off from the
// leader. The follower answers pings all the time. The waiter looks at the znode
// that it waits for, behind a sync, and leaves the follower when the sync is not
// answered. Then it is granted as if nothing had been.
func TestAWaiterLeavesAFollowerThatIsCutOff(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		held := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
		b := w.Connect("b")
		s, err := b.Session()
		if err != nil {
			t.Fatal(err)
		}
		next := bubble.Acquiring(t.Context(), mutexOf(t, b))
		w.InLine(lockPath, 2)
		member := func() int {
			for _, info := range w.Sessions() {
				if info.ID == s.ID() {
					return info.Owner
				}
			}
			return -1
		}
		for member() == w.Leader() {
			if err := w.DropConnections(s.ID()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		at := member()
		w.Isolate(at)
		began := time.Now()
		bubble.AwaitTrue(t, "another member", func() bool { return s.Err() != nil || member() != at })
		if took, most := time.Since(began), bubble.Timeout*5/4+bubble.Timeout/3+time.Second; took > most {
			t.Errorf("the follower was left after %v, want at most %v", took, most)
		}
		w.Heal()
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, next).Lease)
		w.NothingLeft(lockPath)
	}, testutil.WithMembers(3), testutil.WithSyncLimit(100))
}
