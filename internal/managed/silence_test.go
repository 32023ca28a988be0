package managed_test

import (
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The client leaves a member that accepts connections and answers nothing after
// T/3. The wire client alone would wait 6.67 times the session timeout. A known
// failure elsewhere: go-zookeeper.
func TestMuteMemberIsLeft(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		for i := range 3 {
			ens.Mute(i)
		}
		began := time.Now()
		var left []time.Duration
		c, _ := start(t, ens, framework.WithObserver(framework.Observer{Abandoned: func(framework.Abandonment) { left = append(left, time.Since(began)) }}))
		time.Sleep(timeout + time.Millisecond)
		for i := range 3 {
			ens.Unmute(i)
		}
		must(t, c.WaitConnected(within(t, time.Second)))
		synctest.Wait() // until the observer has been called
		if want := []time.Duration{timeout / 3, timeout * 2 / 3, timeout}; !slices.Equal(left, want) {
			t.Errorf("left after %v, want %v", left, want)
		}
	})
}

// A member that answers pings but no requests would block every caller forever.
// The client leaves it and keeps the session, and requests are retried.
func TestWedgedMemberIsLeft(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		var abandoned atomic.Int32
		c, _ := connect(t, ens, framework.WithObserver(framework.Observer{Abandoned: func(framework.Abandonment) { abandoned.Add(1) }}))
		s := session(t, c)
		holdThroughout(t, s)
		time.Sleep(2*timeout + 300*time.Millisecond) // between two heartbeats
		ens.Wedge(memberOf(t, ens, s.ID()))
		began := time.Now()
		if _, _, err := c.Get(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > timeout/2+time.Second {
			t.Errorf("a wedged member cost %v, want at most about %v", took, timeout/2)
		}
		synctest.Wait() // until the observer has been called
		if session(t, c).ID() != s.ID() || abandoned.Load() != 1 {
			t.Errorf("same session: %v, connections abandoned: %d", session(t, c).ID() == s.ID(), abandoned.Load())
		}
	})
}

// So it is where nothing is held, and no heartbeat finds it out: the request
// itself does, after T/3.
func TestWedgedMemberIsLeftByAnIdleClient(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		for i := range 10 {
			time.Sleep(2*timeout + time.Duration(i)*timeout/20)
			at := memberOf(t, ens, s.ID())
			ens.Wedge(at)
			began := time.Now()
			if _, _, err := c.Get(t.Context(), "/"); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > timeout/3+time.Second {
				t.Errorf("a wedged member cost %v, want at most about %v", took, timeout/3)
			}
			ens.Unwedge(at)
		}
		if session(t, c).ID() != s.ID() {
			t.Error("the session was lost")
		}
	})
}

// A follower that is cut off from its leader answers pings and reads for
// syncLimit ticks, while the leader expires the session. A client that relies
// on those answers would go on believing. Ours leaves for another member in
// time.
func TestFollowerCutOffFromItsLeaderIsLeft(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		for memberOf(t, ens, s.ID()) == ens.Leader() { // onto a follower
			must(t, ens.DropConnections(s.ID()))
			time.Sleep(time.Second)
		}
		holdThroughout(t, s)
		time.Sleep(2*timeout + 300*time.Millisecond) // between two heartbeats
		cut := memberOf(t, ens, s.ID())
		ens.Isolate(cut)
		deadline := s.Deadline()
		for time.Now().Before(deadline.Add(timeout)) {
			time.Sleep(50 * time.Millisecond)
			if s.Err() != nil {
				t.Fatalf("the session was lost: %v", s.Err())
			}
		}
		if memberOf(t, ens, s.ID()) == cut {
			t.Error("the client stayed with the member that is cut off")
		}
	})
}

// The same with no other member to go to. The deadline does not move although
// the member answers, and the holder is told before the leader expires the
// session. Here the state goes from Connected to Lost without Suspended.
func TestDeadlineIsNotFedByPings(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		var refusing atomic.Bool
		c, _ := connect(t, ens, framework.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			if refusing.Load() {
				return nil, errors.New("refused")
			}
			return ens.Dial(network, address, timeout)
		}))
		s := session(t, c)
		for memberOf(t, ens, s.ID()) == ens.Leader() {
			must(t, ens.DropConnections(s.ID()))
			time.Sleep(time.Second)
		}
		var lostAt time.Time
		if _, err := s.Hold(func(error) { lostAt = time.Now() }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*timeout + 300*time.Millisecond) // between two heartbeats
		cut := memberOf(t, ens, s.ID())
		ens.Isolate(cut)
		refusing.Store(true) // the connection to the follower stays; no other can be made
		deadline := s.Deadline()
		<-s.Done()
		synctest.Wait()
		if want := deadline.Add(-timeout / 10); !near(lostAt, want) {
			t.Errorf("the hold was lost %v from the stop margin", lostAt.Sub(want))
		}
		if !alive(ens, s.ID()) {
			t.Error("the leader expired the session before the holder knew")
		}
	})
}
