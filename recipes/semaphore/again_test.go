package semaphore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A waiter watches the permits, and may not watch the limit. It fails, and
// leaves no watch on the permits, which are all held for long.
func TestTheWatchOfTheLimitIsRefused(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 2, 1)
		held := bubble.Acquire(t, t.Context(), s[0])
		for range 2 {
			var watches atomic.Bool
			stop := w.ClientNet("client 1").Control(func(r testutil.Request) testutil.Action {
				switch {
				case r.Op == testutil.OpGetChildren2 && r.Path == leases:
					watches.Store(true)
				case r.Op == testutil.OpGetData && r.Path == path && watches.Load():
					return testutil.Fail(testutil.CodeNoAuth)
				}
				return testutil.Pass()
			})
			_, err := s[1].Acquire(t.Context())
			bubble.WantErr(t, err, zk.ErrNoAuth)
			stop()
			time.Sleep(4 * bubble.Timeout)
			if n := w.Watches()[leases]; n != 0 {
				t.Errorf("%d watches left on the permits", n)
			}
		}
		bubble.Release(t, held)
		empty(w)
	})
}
