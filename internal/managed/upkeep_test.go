package managed_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/goroutines"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// heartbeats counts the heartbeats of a quiet while.
func heartbeats(ens *testutil.Embedded, d time.Duration) int {
	before := ens.Requests()[testutil.OpSync]
	time.Sleep(d)
	synctest.Wait()
	return ens.Requests()[testutil.OpSync] - before
}

// A hold that was lost while the session lived was still counted, so that
// heartbeats came twice as often for the rest of the session. It must not be
// subtracted twice either: the next hold would not get the quick heartbeat.
func TestALostHoldIsNotCountedAnyMore(t *testing.T) {
	for _, released := range []bool{false, true} {
		t.Run(fmt.Sprint("released ", released), func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens, framework.WithErrorPolicy(framework.ErrorPolicyConnection))
				s := session(t, c)
				for range 3 {
					lost := make(chan error, 1)
					release, err := s.Hold(func(err error) { lost <- err })
					must(t, err)
					network.Drop()
					bubble.Await(t, "the hold to be lost by the disconnect", lost)
					if released {
						release()
					}
					must(t, c.WaitConnected(within(t, time.Minute)))
				}
				_, _, err := c.Exists(t.Context(), "/") // else a sync comes before the first request: see link/catch_up.go
				must(t, err)
				span := bubble.Few(10*time.Minute, time.Hour)
				quick := 2 * int(span/(timeout/6)) // two syncs each
				if got := heartbeats(ens, span); got != 0 {
					t.Errorf("%d heartbeats in %v with nothing held", got, span)
				}
				release := s.Keep()
				if got := heartbeats(ens, span); got < quick-2 || got > quick+2 {
					t.Errorf("%d heartbeats in %v while kept, want about %d", got, span, quick)
				}
				release()
			})
		})
	}
}

// A session that was idle for a while is proven by one round trip after
// another, or two. From then on a lease has at least T/3 ahead of it in quiet
// times, and T/2 soon afterwards, at whatever time it begins.
func TestHoldingBeginsAfterIdling(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		for i := range 60 {
			time.Sleep(2*timeout + time.Duration(i)*timeout/20)
			before := ens.Requests()[testutil.OpSync]
			must(t, s.Prove(t.Context()))
			if n := ens.Requests()[testutil.OpSync] - before; n != 2 {
				t.Errorf("the proof took %d syncs, want 2", n)
			}
			release, err := s.Hold(func(err error) { t.Errorf("lost: %v", err) })
			must(t, err)
			began := time.Now()
			for range 40 {
				least := timeout / 3
				if time.Since(began) > timeout/2 {
					least = timeout / 2
				}
				if left := time.Until(s.Deadline()); left < least-time.Millisecond {
					t.Fatalf("%v until the deadline, %v after the begin, want at least %v", left, time.Since(began), least)
				}
				time.Sleep(timeout/40 + time.Duration(i))
			}
			release()
		}
	})
}

// A client that holds something sends at most 12 syncs in T, which is a
// heartbeat every T/6, while a round trip takes up to 0.02 T. There used to be
// up to 15, depending on when the hold began: heartbeats that came early made
// each other come early.
func TestSlowAnswersCostNoMoreHeartbeats(t *testing.T) {
	phases := bubble.Few(1, bubble.Draw(3, 12))
	for _, roundTrip := range bubble.FewOf(4, []time.Duration{ // in T/10000
		0, 1, 2, 3, 5, 8, 10, 15, 20, 30, 40, 60, 80, 100, 125, 150, 175, 200,
	}) {
		for _, proof := range []framework.Proof{framework.ProofSync, framework.ProofWrite} {
			for phase := range time.Duration(phases) {
				inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
					c, network := connect(t, ens, framework.WithProof(proof))
					half := roundTrip * timeout / 20000
					network.Latency(half, half)
					time.Sleep(timeout + phase*12/time.Duration(phases)*timeout/37)
					release, err := session(t, c).Claim(t.Context(), nil)
					must(t, err)
					defer release()
					time.Sleep(2 * timeout)
					const times = 25
					before := ens.Requests()
					time.Sleep(times * timeout)
					synctest.Wait()
					now := ens.Requests()
					n := now[testutil.OpSync] + now[testutil.OpMulti] - before[testutil.OpSync] - before[testutil.OpMulti]
					if n < 10*times || n > 12*times+2 { // one heartbeat may be at both ends
						t.Errorf("a round trip of %v, phase %d, proof %d: %d requests in %d session timeouts, want at most 12 in each",
							2*half, phase, proof, n, times)
					}
				})
			}
		}
	}
}

// Who says that a tick is T/5 sends 8 syncs in T while a round trip takes up to
// 0.02 T, and at most 12 beyond that. The deadline is T/2 ahead all the same.
func TestAKnownTickCostsFewerHeartbeats(t *testing.T) {
	for _, roundTrip := range bubble.FewOf(4, []time.Duration{0, 1, 5, 20, 60, 100, 150, 200, 300}) { // in T/10000
		for phase := range time.Duration(bubble.Draw(2, 12)) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens, framework.WithServerTick(timeout/5))
				half := roundTrip * timeout / 20000
				network.Latency(half, half)
				time.Sleep(timeout + phase*timeout/37)
				s := session(t, c)
				release, err := s.Claim(t.Context(), nil)
				must(t, err)
				defer release()
				time.Sleep(2 * timeout)
				most := 8
				if roundTrip > 200 {
					most = 12
				}
				const times = 25
				least := timeout
				before := ens.Requests()[testutil.OpSync]
				for began := time.Now(); time.Since(began) < times*timeout; time.Sleep(timeout / 97) {
					least = min(least, time.Until(s.Deadline()))
				}
				if n := ens.Requests()[testutil.OpSync] - before; n < 6*times || n > most*times+2 {
					t.Errorf("a round trip of %v, phase %d: %d syncs in %d session timeouts, want at most %d in each", 2*half, phase, n, times, most)
				}
				if least < timeout/2-4*2*half {
					t.Errorf("a round trip of %v, phase %d: only %v until the deadline", 2*half, phase, least)
				}
			})
		}
	}
}

// After a busy time, whose contacts are many, the heartbeats find their pace
// again: none feeds the next.
func TestABusyTimeCostsNoMoreHeartbeats(t *testing.T) {
	for name, opts := range map[string][]framework.Option{
		"default":       nil,
		"half a second": {framework.WithServerTick(timeout / 12)},
		"longest tick":  {framework.WithServerTick(timeout / 2)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens, opts...)
				ens.Latency(5 * time.Millisecond)
				s := session(t, c)
				release, err := s.Hold(nil)
				must(t, err)
				defer release()
				for began := time.Now(); time.Since(began) < 2*timeout; time.Sleep(40 * time.Millisecond) {
					_, _, err := s.Exists(t.Context(), "/")
					must(t, err)
				}
				time.Sleep(2 * timeout)
				const times = 10
				n := heartbeats(ens, times*timeout)
				t.Logf("%d syncs in %d session timeouts", n, times)
				most := 16
				if name == "longest tick" { // heartbeats are closer together
					most = 20
				}
				if n > most*times {
					t.Errorf("%d syncs in %d session timeouts, want at most %d in each", n, times, most)
				}
			})
		})
	}
}

// The pauses between attempts to connect grow while no server proves to be in
// touch with its leader. They must start over when one has. A client whose
// connection was dropped now and then, for days, came to pause before each
// reconnect.
func TestADropNowAndThenIsFollowedByAReconnectAtOnce(t *testing.T) {
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			inBubble(t, members, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				changes := record(c)
				for i := range 30 {
					time.Sleep(timeout)
					network.Drop()
					time.Sleep(timeout / 60)
					if got, want := len(changes.all()), 1+2*(i+1); got != want || c.State() != framework.Connected {
						t.Fatalf("%v after drop %d: %v, after %d changes", timeout/60, i+1, c.State(), got)
					}
				}
			})
		})
	}
}

// Between the end of a connection and the moment at which the state says so,
// the wire client accepts requests for the next connection. A retry at that
// moment waited for that connection: if none came, until the end of the
// session, whatever its budget. Here the moment is long, since a hold takes its
// time over the disconnect.
func TestNoRequestIsQueuedBetweenTwoConnections(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var down atomic.Bool
		network := ens.ClientNet("between")
		c, _ := start(t, ens, framework.WithErrorPolicy(framework.ErrorPolicyConnection), framework.WithRetry(retry.NTimes(2, 50*time.Millisecond)),
			framework.WithDialer(func(kind, address string, limit time.Duration) (net.Conn, error) {
				if down.Load() {
					return nil, errors.New("refused")
				}
				return network.Dial(kind, address, limit)
			}))
		must(t, c.WaitConnected(within(t, time.Minute)))
		s := session(t, c)
		told, goOn := make(chan struct{}), make(chan struct{})
		_, err := s.Hold(func(error) {
			close(told)
			<-goOn
		})
		must(t, err)
		down.Store(true)
		network.Drop()
		bubble.Await(t, "the hold to be told of the disconnect", told)
		if got := c.State(); got != framework.Connected {
			t.Fatalf("the state is %v: this test is about the time before it changes", got)
		}
		ended := make(chan error, 1)
		go func() {
			_, _, err := s.Get(t.Context(), "/")
			ended <- err
		}()
		time.Sleep(time.Second)
		select {
		case err := <-ended:
			if !errors.Is(err, zk.ErrNoServer) {
				t.Errorf("got %v, want %v", err, zk.ErrNoServer)
			}
		default:
			t.Error("a request outlives its budget, waiting for a connection")
		}
		close(goOn)
		down.Store(false)
		must(t, c.WaitConnected(within(t, time.Minute)))
	})
}

// An idle client has four goroutines: three of the wire client and one of its
// own. So it is after a reconnect and with another session.
func TestAnIdleClientHasFourGoroutines(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		check := func() {
			t.Helper()
			time.Sleep(10 * timeout)
			must(t, c.WaitConnected(t.Context()))
			var of []string
			for _, stack := range goroutines.In(goroutines.Bubble()) {
				_, by, _ := strings.Cut(stack, "created by ")
				if strings.HasPrefix(by, "github.com/zkrecipes/zkrecipes/framework.") || strings.HasPrefix(by, "github.com/zkrecipes/zkrecipes/internal/managed") || strings.HasPrefix(by, "github.com/go-zookeeper/zk.") {
					of = append(of, stack)
				}
			}
			if len(of) != 4 {
				t.Errorf("%d goroutines:\n\n%s", len(of), strings.Join(of, "\n\n"))
			}
		}
		check()
		network.Cut()
		time.Sleep(timeout / 10)
		network.Heal()
		check()
		must(t, ens.ExpireSession(session(t, c).ID()))
		check()
	})
}
