package managed_test

import (
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// With a tick of half the timeout, a heartbeat proves what was answered T/2
// before it. With one every T/3, the proof came in the same instant as the
// deadline, and an idle client lost one session after the other.
func TestServerTickOfHalfTheTimeout(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens, framework.WithServerTick(timeout/2))
		s := session(t, c)
		holdThroughout(t, s)
		time.Sleep(2*timeout + 300*time.Millisecond)
		for range 2000 {
			time.Sleep(13 * time.Millisecond)
			if left := time.Until(s.Deadline()); left < timeout/3-time.Millisecond || s.Err() != nil {
				t.Fatalf("%v until the deadline, want at least %v; session: %v", left, timeout/3, s.Err())
			}
		}
	})
}

// The heartbeat that writes checks the root, which needs the permission to read
// it. Without the permission the refusal counted as no answer, and the client
// left one member after the other. But a refusal has made the round trip, too.
func TestProofByWritesUnderARootThatMayNotBeRead(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		admin, _ := connect(t, ens)
		_, err := admin.SetACL(t.Context(), "/", zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
		must(t, err)
		c, _ := connect(t, ens, framework.WithProof(framework.ProofWrite))
		states := record(c)
		s := session(t, c)
		holdThroughout(t, s)
		time.Sleep(time.Minute)
		if left := time.Until(s.Deadline()); left < timeout/2-time.Second/5 {
			t.Errorf("%v until the deadline", left)
		}
		if got, want := states.states(), "CONNECTED "; got != want {
			t.Errorf("states %s, want %s", got, want)
		}
	})
}

// A leader that has lost its quorum, and has not noticed, answers syncs and
// accepts sessions, while the others elect another leader. With proof by writes
// neither may count.
func TestProofByWritesIsNotFedByALeaderWithoutQuorum(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		var only atomic.Value // the address of the one member that can be reached
		only.Store("")
		network := ens.ClientNet("confined")
		c, _ := start(t, ens, framework.WithProof(framework.ProofWrite),
			framework.WithDialer(func(kind, address string, limit time.Duration) (net.Conn, error) {
				if a := only.Load(); a != "" && a != address {
					return nil, errors.New("refused")
				}
				return network.Dial(kind, address, limit)
			}))
		must(t, c.WaitConnected(t.Context()))
		s := session(t, c)
		for memberOf(t, ens, s.ID()) != ens.Leader() {
			must(t, ens.DropConnections(s.ID()))
			time.Sleep(time.Second)
		}
		release := s.Keep()
		defer release()
		time.Sleep(2 * timeout)
		only.Store([]string{"member0:2181", "member1:2181", "member2:2181"}[ens.Leader()])
		ens.Isolate(ens.Leader())
		time.Sleep(time.Millisecond)
		deadline := s.Deadline()
		for i := range 50 {
			if i%10 == 9 {
				network.Drop()
			}
			if err := s.Sync(within(t, timeout/2), "/"); err != nil {
				break
			}
			if now := s.Deadline(); !now.Equal(deadline) {
				t.Fatalf("moved on by %v without a quorum", now.Sub(deadline))
			}
			time.Sleep(100 * time.Millisecond)
		}
		if time.Until(deadline) > timeout/2 {
			t.Errorf("the test shows nothing: it ended %v before the deadline", time.Until(deadline))
		}
		ens.Heal()
		only.Store("")
	})
}

// With proof by writes, a session that moves to another member is proven there
// by the first write, not F later.
func TestProofByWritesAfterAReconnect(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens, framework.WithProof(framework.ProofWrite))
		s := session(t, c)
		release := s.Keep()
		defer release()
		for range 20 {
			time.Sleep(timeout/6 + 50*time.Millisecond)
			network.Drop()
			time.Sleep(time.Second)
			if left := time.Until(s.Deadline()); left < timeout-time.Second-timeout/10 {
				t.Fatalf("%v until the deadline, a second after a reconnect", left)
			}
		}
	})
}

// A server answers a throttled heartbeat at once. That answer was ignored, and
// the healthy connection was closed when the heartbeat was overdue: 90
// reconnects in ten minutes, with every second heartbeat throttled.
func TestThrottledHeartbeatIsTriedAgain(t *testing.T) {
	for name, proof := range map[string]framework.Proof{"sync": framework.ProofSync, "write": framework.ProofWrite} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens, framework.WithProof(proof))
				var beats atomic.Int64
				defer ens.Control(func(r testutil.Request) testutil.Action {
					if r.Path == "/" && (r.Op == testutil.OpSync || r.Op == testutil.OpMulti) && beats.Add(1)%2 == 0 {
						return testutil.Fail(testutil.CodeThrottled)
					}
					return testutil.Pass()
				})()
				states := record(c)
				s := session(t, c)
				release := s.Keep()
				defer release()
				minutes := bubble.Few(5, 20)
				for range 60 * minutes {
					time.Sleep(time.Second)
					if left := time.Until(s.Deadline()); left < timeout/3-timeout/10 {
						t.Fatalf("%v until the deadline", left)
					}
				}
				if got, want := states.states(), "CONNECTED "; got != want {
					t.Errorf("states %s, want %s", got, want)
				}
				if n := beats.Load(); n < int64(100*minutes) || n > int64(300*minutes) {
					t.Errorf("%d heartbeats in %d minutes", n, minutes)
				}
			})
		})
	}
}

// A member that refuses every heartbeat proves nothing. The client leaves it
// while there is time for another member. Until then each try is after a pause
// that grows: all refusals but that of a server that throttles were followed by
// the next heartbeat at once, 988 in a session timeout, and in virtual time
// without latency for ever.
func TestMemberThatRefusesAllHeartbeatsIsLeft(t *testing.T) {
	for _, proof := range []framework.Proof{framework.ProofSync, framework.ProofWrite} {
		for code := testutil.Code(-1); code >= -128; code-- {
			if code == -14 {
				code = -100
			}
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens, framework.WithProof(proof))
				s := session(t, c)
				release := s.Keep()
				defer release()
				at := memberOf(t, ens, s.ID())
				refused := 0
				defer ens.Control(func(r testutil.Request) testutil.Action {
					if r.Member != at || r.Path != "/" || r.Op != testutil.OpSync && r.Op != testutil.OpMulti {
						return testutil.Pass()
					}
					if refused++; refused > 1000 { // time stands still
						return testutil.DropBefore()
					}
					return testutil.Fail(code)
				})()
				time.Sleep(10 * timeout)
				if id := session(t, c).ID(); memberOf(t, ens, id) == at {
					t.Errorf("code %v: the client stayed", code)
				}
				if refused < 1 || refused > 60 {
					t.Errorf("code %v: %d tries", code, refused)
				}
			})
		}
	}
}

// All members refuse heartbeats for a while. The client sends few of them, and
// goes from member to member: each connect proves the session once more.
func TestRefusedHeartbeatsPause(t *testing.T) {
	for _, latency := range []time.Duration{0, time.Millisecond, 50 * time.Millisecond} {
		inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
			ens.Latency(latency)
			c, _ := connect(t, ens)
			holdThroughout(t, session(t, c))
			const spans, most = 10, 20 // in a session timeout
			refused := testutil.NewFault(testutil.Match{Op: testutil.OpSync, Times: 2 * spans * most}, testutil.Fail(testutil.CodeSystemError))
			stop := ens.Control(refused.Control)
			time.Sleep(spans * timeout)
			if n := refused.Count(); n < spans || n > spans*most {
				t.Errorf("latency %v: %d heartbeats were refused in %d session timeouts", latency, n, spans)
			}
			stop()
			time.Sleep(timeout)
			must(t, c.WaitConnected(within(t, timeout)))
		})
	}
}

// Two goroutines report the answer to the credentials and the end of its
// connection. Reported in the wrong order, they made the client CONNECTED
// without a connection.
func TestAuthenticatedOnAConnectionThatIsGone(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		for range 200 {
			network := ens.ClientNet("flaky")
			var mu sync.Mutex
			var last net.Conn
			refusing := false
			c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithAuth("digest", []byte("a:b")),
				framework.WithDialer(func(kind, address string, limit time.Duration) (net.Conn, error) {
					mu.Lock()
					defer mu.Unlock()
					if refusing {
						return nil, errors.New("refused")
					}
					refusing = true
					conn, err := network.Dial(kind, address, limit)
					if err != nil {
						return nil, err
					}
					last = endsAfterAuth{conn, &atomic.Int32{}}
					return last, nil
				}))
			must(t, err)
			time.Sleep(time.Second)
			if got := c.State(); got == framework.Connected {
				t.Fatal("CONNECTED without a connection")
			}
			_ = c.Close() // the dialer refuses
		}
	})
}

// endsAfterAuth is a connection that ends right behind the answer to the
// credentials. The first read is the connect answer, the second one that
// answer.
type endsAfterAuth struct {
	net.Conn
	reads *atomic.Int32
}

func (e endsAfterAuth) Read(p []byte) (int, error) {
	n, err := e.Conn.Read(p)
	if e.reads.Add(1) == 2 {
		e.Conn.Close()
	}
	return n, err
}

// If the client leaves a connection because the leader does not answer, the
// state change says so, and does not blame the network.
func TestAConnectionThatIsLeftSaysWhy(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		states := record(c)
		holdThroughout(t, session(t, c))
		never := make(chan struct{})
		defer close(never)
		ens.Control(testutil.NewFault(testutil.Match{Op: testutil.OpSync}, testutil.Hold(never)).Control)
		time.Sleep(timeout)
		for _, change := range states.all() {
			if change.To == framework.Suspended {
				if change.Err == nil || !strings.Contains(change.Err.Error(), "no proof of the leader in time") {
					t.Errorf("suspended for %v", change.Err)
				}
				return
			}
		}
		t.Errorf("states %s", states.states())
	})
}
