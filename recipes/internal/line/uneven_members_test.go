package line_test

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/hidden"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Members grant different session timeouts, as during a rolling change of
// minSessionTimeout. The holder moves from a member that grants 3 s to one that
// grants 9 s, and is then cut off. The last report of the first member arrives
// after that, and makes the session one of 3 s again. Nobody may be granted the
// lock before the holder's deadline, and while it believes that it holds it.
func TestAMoveToAMemberThatGrantsMore(t *testing.T) {
	for _, proof := range []framework.Proof{framework.ProofSync, framework.ProofWrite} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			began := time.Now()
			var at atomic.Int64 // the member that the holder may connect to
			holder := w.Connect("holder", framework.WithSessionTimeout(3*time.Second), framework.WithProof(proof),
				framework.WithDialer(func(network, address string, d time.Duration) (net.Conn, error) {
					if address != w.Address(int(at.Load())) {
						return nil, errors.New("refused by the test")
					}
					return w.ClientNet("holder").Dial(network, address, d)
				}))
			contender := w.ConnectTo("contender", w.Address(2), framework.WithSessionTimeout(20*time.Second))
			lease := bubble.Acquire(t, t.Context(), mutexOf(t, holder))
			granted := bubble.Acquiring(t.Context(), mutexOf(t, contender))
			time.Sleep(time.Until(began.Add(4100 * time.Millisecond)))
			_, _, err := holder.Get(t.Context(), "/") // the first member has something to report, at 4.5 s
			if err != nil {
				t.Fatal(err)
			}
			at.Store(1)
			w.ClientNet("holder").Drop()
			bubble.AwaitTrue(t, "the holder has moved", func() bool { return w.MemberOf(w.SessionID(holder)) == 1 })
			time.Sleep(100 * time.Millisecond)
			w.ClientNet("holder").Cut()
			known := lease.Deadline()
			got := bubble.Granted(t, granted)
			if now := time.Now(); now.Before(known) || lease.Held() {
				t.Errorf("%v: granted %v before the deadline of the holder; it believes that it holds: %t", proof, known.Sub(now), lease.Held())
			}
			bubble.Release(t, got.Lease)
			w.ClientNet("holder").Heal()
		}, testutil.WithMembers(3), testutil.WithTick(time.Second), testutil.WithMemberTimeouts(1, 9*time.Second, 0),
			hidden.WithReportDelays(func(member int) time.Duration { return time.Duration(1-min(member, 1)) * 300 * time.Millisecond }))
	}
}
