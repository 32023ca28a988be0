package managed_test

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Members whose minSessionTimeout differs grant different timeouts. A session
// that moved from 3 s to 9 s was believed to live for 9 s. But a late report of
// the first member shortens it again at the leader, since the leader takes what
// it is told last: the next contender was granted 5 s before the deadline.
func TestASessionsTimeDoesNotGrow(t *testing.T) {
	for name, proof := range map[string]framework.Proof{"sync": framework.ProofSync, "write": framework.ProofWrite} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const short, long = 3 * time.Second, 9 * time.Second
				ens := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithTick(time.Second),
					testutil.WithMemberTimeouts(0, long, time.Minute), testutil.WithMemberTimeouts(1, time.Second, time.Minute),
					testutil.WithMemberTimeouts(2, time.Second, time.Minute))
				first := true // it begins at a member that grants what was asked for
				c, _ := connect(t, ens, framework.WithSessionTimeout(short), framework.WithProof(proof),
					framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
						if first && address == "member0:2181" {
							return nil, errors.New("refused")
						}
						first = false
						return ens.Dial(network, address, limit)
					}))
				s := session(t, c)
				release, err := s.Hold(nil)
				must(t, err)
				defer release()
				granted, moved := s.Timeout(), false
				for range 60 {
					if now := s.Timeout(); now > granted {
						t.Fatalf("the timeout grew from %v to %v", granted, now)
					} else {
						granted = now
					}
					if ahead := time.Until(s.Deadline()); ahead > granted {
						t.Fatalf("the deadline is %v ahead, with a timeout of %v", ahead, granted)
					}
					moved = moved || memberOf(t, ens, s.ID()) == 0
					must(t, ens.DropConnections(s.ID()))
					time.Sleep(short / 2)
				}
				if granted != short || !moved {
					t.Errorf("%v was granted, want %v; the session was at the member with the longer one: %v", granted, short, moved)
				}
			})
		})
	}
}

// A forward jump of the clock ended an idle session: no server had answered for
// so long, by that clock.
func TestAJumpOfTheClockEndsNoIdleSession(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		defer clock.Reset()
		c, network := connect(t, ens)
		s := session(t, c)
		time.Sleep(timeout)
		clock.Jump(3 * timeout)
		time.Sleep(timeout)
		if s.Err() != nil {
			t.Fatalf("while connected: %v", s.Err())
		}
		network.Cut()
		time.Sleep(timeout / 2)
		clock.Jump(3 * timeout)
		time.Sleep(timeout / 6)
		network.Heal()
		must(t, c.WaitConnected(within(t, timeout)))
		if s.Err() != nil {
			t.Errorf("while disconnected: %v", s.Err())
		}
	})
}
