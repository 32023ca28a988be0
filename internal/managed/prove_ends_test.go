package managed_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Prove ends, whatever a round trip takes: a contender that is first in line
// and goes on proving keeps all others waiting. The test tries each round trip
// from nothing to 0.3 T, each of several patterns of jitter, and each of
// several phases of the wire client's pings. Prove must end within three
// session timeouts, with success or with ErrUnproven, and after a success a
// hold lasts at a steady round trip of up to 0.12 T.
func TestProveEndsAtEveryRoundTrip(t *testing.T) {
	const T = 6 * time.Second
	grid := bubble.Few(3, bubble.Draw(8, 20)) // steps of the round trip
	phases := bubble.Few(2, 4)
	outcomes := map[bool]int{}
	var wrong []string
	for _, proof := range []framework.Proof{framework.ProofSync, framework.ProofWrite} {
		for step := range grid + 1 {
			for jitter := range 8 { // which of three messages in a row are slow
				for phase := range phases {
					c := proveCase{timeout: T, proof: proof, trip: T * 3 / 10 * time.Duration(step) / time.Duration(grid), jitter: jitter, phase: T / 3 * time.Duration(phase) / time.Duration(phases)}
					synctest.Test(t, func(t *testing.T) {
						proven, problem := c.run(t)
						outcomes[proven]++
						if problem != "" {
							wrong = append(wrong, fmt.Sprintf("%v: %s", c, problem))
						}
					})
				}
			}
		}
	}
	for _, w := range wrong[:min(10, len(wrong))] {
		t.Error(w)
	}
	if len(wrong) > 0 {
		t.Errorf("%d cases are wrong", len(wrong))
	}
	t.Logf("proven %d times, not %d times", outcomes[true], outcomes[false])
	if outcomes[true] == 0 || outcomes[false] == 0 {
		t.Error("the cases are all alike: the test shows nothing")
	}
}

type proveCase struct {
	timeout time.Duration
	proof   framework.Proof
	trip    time.Duration
	jitter  int // a bit for each of three answers in turn: it takes a tenth of T longer
	phase   time.Duration
}

func (c proveCase) String() string {
	return fmt.Sprintf("%v, round trip %v (%.2f T), jitter %03b, phase %v", c.proof, c.trip, float64(c.trip)/float64(c.timeout), c.jitter, c.phase)
}

func (c proveCase) run(t *testing.T) (proven bool, problem string) {
	ens := testutil.Start(t, testutil.InMemory(), testutil.WithTick(c.timeout/4), testutil.WithLogger(func(string, ...any) {}))
	client, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial), framework.WithSessionTimeout(c.timeout), framework.WithProof(c.proof))
	must(t, err)
	defer client.Close()
	must(t, client.WaitConnected(t.Context()))
	s := session(t, client)
	ens.Latency(c.trip / 2)
	answers := 0 // the functions of Control run one at a time: there is one connection at a time
	stop := ens.Control(func(r testutil.Request) testutil.Action {
		answers++
		if c.jitter>>(answers%3)&1 == 1 && r.Op != testutil.OpCreateSession {
			return testutil.DelayReply(c.timeout / 10)
		}
		return testutil.Pass()
	})
	defer ens.Latency(0)
	defer stop()
	time.Sleep(2*c.timeout + c.phase)
	if s.Err() != nil { // which says so at once
		return false, ""
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*c.timeout)
	defer cancel()
	began := time.Now()
	err = s.Prove(ctx)
	if took := time.Since(began); took > 3*c.timeout {
		return err == nil, fmt.Sprintf("Prove has ended after %.1f session timeouts: %v", float64(took)/float64(c.timeout), err)
	}
	if err != nil {
		if !errors.Is(err, framework.ErrUnproven) && s.Err() == nil {
			return false, fmt.Sprintf("Prove: %v", err)
		}
		return false, ""
	}
	lost := make(chan error, 1)
	release, err := s.Hold(func(err error) { lost <- err })
	if err != nil {
		return true, fmt.Sprintf("Hold right after Prove: %v", err)
	}
	defer release()
	if c.jitter == 0 && c.trip <= c.timeout*12/100 {
		time.Sleep(3 * c.timeout)
		select {
		case err := <-lost:
			return true, fmt.Sprintf("the hold was lost: %v", err)
		default:
		}
	}
	return true, ""
}

// A user's retry policy that panics in one call of Prove keeps no other call
// from the round trips that they share.
func TestProveAfterAPanicInAnother(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		panics := false
		c, _ := connect(t, ens, framework.WithRetry(func() backoff.BackOff {
			if panics {
				panics = false
				panic("a policy")
			}
			return &backoff.ZeroBackOff{}
		}))
		s := session(t, c)
		time.Sleep(2*timeout + timeout/2)
		refused := false
		defer ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpSync && !refused {
				refused = true
				return testutil.DropBefore()
			}
			return testutil.Pass()
		})()
		panics = true
		func() {
			defer func() { t.Logf("it ended with %v", recover()) }()
			_ = s.Prove(t.Context())
		}()
		if panics {
			t.Fatal("the policy was not asked: the test shows nothing")
		}
		time.Sleep(2*timeout + timeout/2)
		if err := s.Prove(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A user's retry policy that blocks in one call of Prove delays no other call,
// which ends with its context, and with the session.
func TestProveBesideACallThatIsStuck(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		blocks, free := false, make(chan struct{})
		c, _ := connect(t, ens, framework.WithRetry(func() backoff.BackOff {
			if blocks {
				blocks = false
				<-free
			}
			return &backoff.ZeroBackOff{}
		}))
		s := session(t, c)
		time.Sleep(2*timeout + timeout/2)
		blocks = true
		go func() { _ = s.Prove(t.Context()) }()
		synctest.Wait()
		if blocks {
			t.Fatal("the policy was not asked: the test shows nothing")
		}
		if err := s.Prove(within(t, timeout/3)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("its context has ended: %v", err)
		}
		time.AfterFunc(timeout/3, func() { must(t, ens.ExpireSession(s.ID())) })
		if err := s.Prove(within(t, 2*timeout)); !errors.Is(err, framework.ErrSessionLost) {
			t.Errorf("the session has ended: %v", err)
		}
		close(free)
	})
}

// The three session timeouts that Prove may take are without outages: without
// the times in which there was no connection, from a third of a session timeout
// on.
func TestProveDoesNotCountAnOutage(t *testing.T) {
	for _, outage := range []time.Duration{timeout / 5, 2 * timeout} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			c, network := connect(t, ens, framework.WithRetry(retry.Exponential(50*time.Millisecond, time.Second, math.MaxInt)))
			network.Latency(timeout/8, timeout/8) // no lease can last
			time.Sleep(2 * timeout)
			states, began := record(c), time.Now()
			time.AfterFunc(timeout, func() {
				must(t, ens.Stop(0))
				time.Sleep(outage)
				must(t, ens.Restart(0))
			})
			err := session(t, c).Prove(t.Context())
			took, want := time.Since(began), 3*timeout
			all := states.all()
			if len(all) != 3 || !errors.Is(err, framework.ErrUnproven) {
				t.Fatalf("after %v: %v; states %s", took, err, states.states())
			}
			if down := all[2].At.Sub(all[1].At); down > timeout/3 {
				want += down - timeout/3
			}
			if took < want || took > want+timeout/16 {
				t.Errorf("an outage of %v: it ended after %v, want %v", outage, took, want)
			}
		})
	}
}

// The retry policy also bounds Prove where the connection ends for good while
// it waits for a heartbeat.
func TestProveWithoutServers(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens, framework.WithRetry(retry.NTimes(5, time.Second)))
		network.Latency(timeout/8, timeout/8) // no lease can last
		time.Sleep(2 * timeout)
		time.AfterFunc(timeout, func() { must(t, ens.Stop(0)) })
		began := time.Now()
		err := session(t, c).Prove(within(t, time.Hour))
		if took := time.Since(began) - timeout; took < 5*time.Second || took > 6*time.Second || errors.Is(err, framework.ErrUnproven) {
			t.Errorf("%v after the connection: %v", took, err)
		}
		must(t, ens.Restart(0))
	})
}

// Prove costs nothing while the deadline is T/3 away or more, and a round trip
// or two after an idle time. In a slow network, or with a large stop margin, it
// ends with the heartbeat that makes a lease last, and not later.
func TestWhatProveCosts(t *testing.T) {
	const margin = timeout / 3
	for name, tt := range map[string]struct {
		opts  []framework.Option
		trip  time.Duration
		idle  time.Duration // since it was proven last
		syncs int
		took  time.Duration
	}{
		"proven just now":            {nil, 0, 0, 0, 0},
		"a while ago":                {nil, 0, timeout / 6, 0, 0},
		"longer ago":                 {nil, 0, timeout / 3, 2, 0},
		"long ago":                   {nil, 0, 4 * timeout, 2, 0},
		"round trips of 0.05 T":      {nil, timeout / 20, 4 * timeout, 2, timeout / 10},
		"of 0.1 T":                   {nil, timeout / 10, timeout * 2 / 7, 2, timeout / 5},
		"of 0.1 T, proven long ago":  {nil, timeout / 10, 3*timeout + time.Second, 6, timeout / 2},
		"a margin of T/3":            {[]framework.Option{framework.WithStopMargin(margin)}, time.Millisecond, 3*timeout + time.Second, 6, timeout / 6},
		"a margin and a tick of T/2": {[]framework.Option{framework.WithStopMargin(margin), framework.WithServerTick(timeout / 2)}, time.Millisecond, 3*timeout + time.Second, 20, timeout / 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens, tt.opts...)
				network.Latency(tt.trip/2, tt.trip/2)
				s := session(t, c)
				time.Sleep(2*timeout + timeout/10)
				must(t, s.Prove(t.Context()))
				time.Sleep(tt.idle)
				ens.ResetRequests()
				began := time.Now()
				must(t, s.Prove(t.Context()))
				took := time.Since(began)
				synctest.Wait()
				if n := ens.Requests()[testutil.OpSync]; n != tt.syncs || took != tt.took {
					t.Errorf("%d syncs in %v, want %d in %v", n, took, tt.syncs, tt.took)
				}
			})
		})
	}
}
