package managed_test

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// claims holds a session again and again, each time after another idle time,
// and counts the holds that were lost.
func claims(t *testing.T, s *framework.Session, n int, hold time.Duration) (lost int, err error) {
	t.Helper()
	for i := range n {
		time.Sleep(time.Duration(i) * timeout / 7)
		ended := make(chan error, 1)
		release, err := s.Claim(t.Context(), func(err error) { ended <- err })
		if err != nil {
			return lost, err
		}
		select {
		case <-ended:
			lost++
		case <-time.After(hold):
		}
		release()
		if s.Err() != nil {
			return lost, s.Err()
		}
	}
	return lost, nil
}

// From a round trip of 0.07 T on some leases were lost, and from 0.11 T all,
// although every request was answered.
func TestSlowEnsemblesKeepTheirLeases(t *testing.T) {
	for _, percent := range bubble.FewOf(2, []time.Duration{1, 2, 5, 7, 10, 12}) {
		for name, opts := range map[string][]framework.Option{
			"sync":  nil,
			"write": {framework.WithProof(framework.ProofWrite)},
		} {
			t.Run(fmt.Sprintf("%s 0.%02d T", name, percent), func(t *testing.T) {
				inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
					c, network := connect(t, ens, opts...)
					half := timeout * percent / 200
					network.Latency(half, half)
					time.Sleep(timeout)
					for _, hold := range []time.Duration{timeout / 2, 10 * timeout} {
						if lost, err := claims(t, session(t, c), bubble.Few(4, 14), hold); lost > 0 || err != nil {
							t.Errorf("held for %v: %d lost, %v", hold, lost, err)
						}
					}
				})
			})
		}
	}
}

// In a healthy ensemble leases last with every stop margin and server tick that
// the options allow. They used to be lost at once, since a lease began with no
// more time ahead of it than the margin.
func TestLeasesLastWithTheLargestMarginAndTick(t *testing.T) {
	for name, opts := range map[string][]framework.Option{
		"margin T/3":             {framework.WithStopMargin(timeout / 3)},
		"margin T/6, tick T/2":   {framework.WithStopMargin(timeout / 6), framework.WithServerTick(timeout / 2)},
		"margin T/4, tick T/2":   {framework.WithStopMargin(timeout / 4), framework.WithServerTick(timeout / 2)},
		"margin T/3, tick T/2":   {framework.WithStopMargin(timeout / 3), framework.WithServerTick(timeout / 2)},
		"margin T/3, with write": {framework.WithStopMargin(timeout / 3), framework.WithProof(framework.ProofWrite)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens, opts...)
				network.Latency(time.Millisecond, time.Millisecond)
				s := session(t, c)
				for _, hold := range []time.Duration{timeout / 2, 10 * timeout} {
					if lost, err := claims(t, s, bubble.Few(5, 21), hold); lost > 0 || err != nil {
						t.Errorf("held for %v: %d lost, %v", hold, lost, err)
					}
				}
			})
		})
	}
}

// The options are judged by the session timeout that was granted. Where that
// makes them impossible, the error says so, and nothing is held that is lost at
// once.
func TestSettingsThatTheGrantedTimeoutMakesImpossible(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) { // it grants 40 s at most
		c, _ := connect(t, ens, framework.WithSessionTimeout(80*time.Second), framework.WithServerTick(38*time.Second))
		began := time.Now()
		_, err := session(t, c).Claim(t.Context(), nil)
		const want = "no lease can last: a session timeout of 40s was granted, too short for a stop margin of 4s and server ticks of 38s"
		if !errors.Is(err, framework.ErrUnproven) || err.Error() != want || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// From a round trip of 0.19 T on, Prove went on for good. It ends after three
// session timeouts, with the figures, whatever the retry policy says.
func TestProveEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		opts []framework.Option
		slow func(t *testing.T, ens *testutil.Embedded, network *testutil.ClientNet)
		want string
	}{
		"slow network": {nil, func(_ *testing.T, _ *testutil.Embedded, network *testutil.ClientNet) {
			network.Latency(timeout/8, timeout/8)
		}, "a round trip to the leader takes 1.5s; with a session timeout of 6s and a stop margin of 600ms it may take 968ms"},
		"slow writes": {
			[]framework.Option{framework.WithProof(framework.ProofWrite)},
			func(t *testing.T, ens *testutil.Embedded, _ *testutil.ClientNet) {
				t.Cleanup(ens.Control(testutil.NewFault(testutil.Match{Op: testutil.OpMulti, Times: -1}, testutil.Delay(timeout/4)).Control))
			}, "a round trip to the leader takes 1.5s",
		},
		"lost answers to writes": {
			[]framework.Option{framework.WithProof(framework.ProofWrite)},
			func(t *testing.T, ens *testutil.Embedded, _ *testutil.ClientNet) {
				t.Cleanup(ens.Control(testutil.NewFault(testutil.Match{Op: testutil.OpMulti, Times: -1}, testutil.DropAfter()).Control))
			}, "session not proven alive in 18s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens, append(tt.opts, framework.WithRetry(retry.Exponential(50*time.Millisecond, time.Second, math.MaxInt)))...)
				tt.slow(t, ens, network)
				time.Sleep(3 * timeout)
				s, began := session(t, c), time.Now()
				err := s.Prove(t.Context())
				if !errors.Is(err, framework.ErrUnproven) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v", err)
				}
				if took := time.Since(began); took > 4*timeout {
					t.Errorf("it took %v", took)
				}
				if s.Err() != nil {
					t.Errorf("the session has ended: %v", s.Err())
				}
			})
		})
	}
}

// Any request that was not answered for T/3 cost the connection. A list that
// takes longer never arrived.
func TestASlowListArrives(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens, framework.WithErrorPolicy(framework.ErrorPolicyConnection))
		states := record(c)
		s := session(t, c)
		release, err := s.Hold(func(err error) { t.Errorf("lost: %v", err) })
		must(t, err)
		for range 5 {
			for time.Until(s.Deadline()) < timeout*6/10 { // a heartbeat was just answered
				time.Sleep(10 * time.Millisecond)
			}
			slow := testutil.NewFault(testutil.Match{Op: testutil.OpGetChildren2}, testutil.Delay(timeout*35/100))
			stop := ens.Control(slow.Control)
			_, _, err := c.Children(t.Context(), "/")
			must(t, err)
			stop()
			time.Sleep(timeout)
		}
		release()
		time.Sleep(timeout)
		slow := testutil.NewFault(testutil.Match{Op: testutil.OpGetChildren2}, testutil.Delay(timeout*6/10))
		defer ens.Control(slow.Control)()
		_, _, err = c.Children(t.Context(), "/")
		must(t, err)
		if got, want := states.states(), "CONNECTED "; got != want {
			t.Errorf("states %s, want %s", got, want)
		}
	})
}

// A request that is never answered costs the connection after 2/3 T, although
// pings behind it are not answered either.
func TestARequestThatIsNeverAnswered(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		states := record(c)
		never := make(chan struct{})
		defer close(never)
		stuck := testutil.NewFault(testutil.Match{Op: testutil.OpGetData}, testutil.Hold(never))
		defer ens.Control(stuck.Control)()
		began := time.Now()
		_, _, err := c.Get(t.Context(), "/")
		must(t, err)
		if took := time.Since(began); took < timeout*2/3 || took > timeout*2/3+time.Second/2 {
			t.Errorf("it was answered after %v, want %v", took, timeout*2/3)
		}
		if got, want := states.states(), "CONNECTED SUSPENDED CONNECTED "; got != want {
			t.Errorf("states %s, want %s", got, want)
		}
	})
}

// A silent connection was left when T/6 was left until the deadline. But the
// lease is lost a stop margin before that, so no other member was tried where
// the margin was large.
func TestAFrozenMemberCostsNoLease(t *testing.T) {
	for _, margin := range []time.Duration{timeout / 10, timeout * 22 / 100, timeout / 4, timeout / 3} {
		t.Run(margin.String(), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens, framework.WithStopMargin(margin))
				s := session(t, c)
				release, err := s.Hold(func(err error) { t.Errorf("lost: %v", err) })
				must(t, err)
				defer release()
				for i := range bubble.Few(10, 40) {
					time.Sleep(2*timeout + time.Duration(i)*timeout/120)
					at := memberOf(t, ens, s.ID())
					if at == ens.Leader() { // then there is no quorum's leader until another one is elected
						must(t, ens.DropConnections(s.ID()))
						continue
					}
					must(t, ens.Pause(at))
					time.Sleep(timeout)
					must(t, ens.Resume(at))
				}
			})
		})
	}
}

// An ephemeral znode of an idle client outlives an outage of the whole
// ensemble: while there is no leader nothing expires. The client used to give
// its session up after T without an answer.
func TestAnIdleSessionOutlivesAnOutage(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		_, err := s.Create(t.Context(), "/mine", nil, zk.FlagEphemeral)
		must(t, err)
		for i := range ens.Members() {
			must(t, ens.Stop(i))
		}
		time.Sleep(20 * timeout)
		if _, _, err := c.Get(t.Context(), "/"); !errors.Is(err, zk.ErrNoServer) {
			t.Errorf("a call meanwhile: %v", err)
		}
		for i := range ens.Members() {
			must(t, ens.Restart(i))
		}
		must(t, c.WaitConnected(within(t, timeout)))
		if !ens.Exists("/mine") || s.Err() != nil {
			t.Errorf("the znode exists: %v; session: %v", ens.Exists("/mine"), s.Err())
		}
	})
}

// After a restore from a backup no member has seen what the client has. Each
// one hangs up on its connect request, and none ever says that the session is
// gone.
func TestARestoredEnsembleEndsTheSession(t *testing.T) {
	for _, outage := range []time.Duration{0, 2 * timeout} { // in which no server is there
		inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
			restored := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3))
			dial := ens.Dial
			c, _ := start(t, ens, framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
				return dial(network, address, limit)
			}))
			must(t, c.WaitConnected(t.Context()))
			for i := range 20 {
				_, err := c.Create(t.Context(), fmt.Sprintf("/%d", i), nil, 0)
				must(t, err)
			}
			s := session(t, c)
			began := time.Now().Add(outage)
			dial = func(network, address string, limit time.Duration) (net.Conn, error) {
				if time.Now().Before(began) {
					return nil, errors.New("refused")
				}
				return restored.Dial(network, address, limit)
			}
			must(t, ens.DropConnections(s.ID()))
			<-s.Done()
			if took := time.Since(began); took < timeout || took > 2*timeout {
				t.Errorf("it took %v", took)
			}
			if err := s.Err(); !errors.Is(err, framework.ErrSessionLost) || !strings.Contains(err.Error(), "the ensemble's history was replaced") {
				t.Errorf("session: %v", err)
			}
			must(t, c.WaitConnected(within(t, timeout)))
			time.Sleep(timeout)
			if n := len(restored.Sessions()); n != 1 {
				t.Errorf("%d sessions at the restored ensemble, want the client's", n)
			}
			must(t, c.Close())
		})
	}
}

// A member that lags hangs up as well. That ends no session.
func TestAMemberThatLagsEndsNoSession(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		lagging := (ens.Leader() + 1) % 3
		ens.Lag(lagging)
		for i := range 20 {
			_, err := c.Create(t.Context(), fmt.Sprintf("/%d", i), nil, 0)
			if err != nil && !errors.Is(err, zk.ErrNodeExists) { // an answer may be lost
				t.Fatal(err)
			}
			network.Drop()
			time.Sleep(timeout / 2)
		}
		if s.Err() != nil {
			t.Errorf("session: %v", s.Err())
		}
		ens.Unlag(lagging)
	})
}
