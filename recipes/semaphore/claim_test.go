package semaphore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The permits are taken, but nobody is granted them: the clock has jumped
// meanwhile, so the session must be proven first, and the caller gives up
// before that. The permits are released, in the same session.
func TestPermitsThatAreTakenInVainAreReleased(t *testing.T) {
	for _, n := range []int{1, 3} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			defer clock.Reset()
			c := w.Connect("a")
			s, other := newSemaphore(t, c, 3), newSemaphore(t, w.Connect("b"), 3)
			bubble.Release(t, bubble.Acquire(t, t.Context(), s))
			session := w.SessionID(c)
			answer := make(chan struct{})
			taken := false
			w.ClientNet("a").Control(func(r testutil.Request) testutil.Action {
				switch {
				case !taken && r.Op == testutil.OpMulti:
					taken = true
					clock.Jump(bubble.Timeout - bubble.Margin + 100*time.Millisecond)
				case taken && r.Op == testutil.OpSync:
					return testutil.Hold(answer)
				}
				return testutil.Pass()
			})
			ctx, cancel := context.WithCancel(t.Context())
			waiting := bubble.Acquiring(ctx, s.Permits(n))
			w.InLine(leases, n)
			synctest.Wait()
			bubble.Pending(t, waiting)
			cancel()
			bubble.WantErr(t, bubble.Await(t, "Acquire to return", waiting).Err, context.Canceled)
			w.InLine(leases, 0)
			if w.SessionID(c) != session {
				t.Error("its session has ended, which hides what is left")
			}
			close(answer)
			var all []*recipes.Lease
			for range 3 {
				l, err := other.TryAcquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, l)
			}
			bubble.Release(t, all...)
			time.Sleep(time.Second)
			empty(w)
		})
	}
}
