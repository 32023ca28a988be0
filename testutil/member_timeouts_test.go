package testutil_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// Members of one ensemble may grant a session different timeouts, as during a
// rolling change of minSessionTimeout. The timeout at the leader is that of the
// member that was heard from last, be it longer or shorter than before.
func TestMembersGrantDifferentTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		differentTimeouts(t, testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithTick(200*time.Millisecond),
			testutil.WithMemberTimeouts(0, 3*time.Second, 3*time.Second), testutil.WithMemberTimeouts(1, 15*time.Second, 15*time.Second)))
	})
}

func TestMembersGrantDifferentTimeoutsOnTheRealServer(t *testing.T) {
	differentTimeouts(t, apache.Start(t, 3,
		apache.WithMemberTimeouts(0, 3*time.Second, 3*time.Second), apache.WithMemberTimeouts(1, 15*time.Second, 15*time.Second)))
}

// differentTimeouts moves sessions between member 0, which grants 3 s, and
// member 1, which grants 15. Either may lead.
func differentTimeouts(t *testing.T, ens testutil.Ensemble) {
	granted := []int32{3000, 15000}
	long := 8 * time.Second // too long for a session of 3 s, too short for one of 15
	cases := []struct {
		name  string
		move  []int // the members that the session connects to
		ping  bool  // then the first connection is used once more
		lasts bool

		conns []netConn
		ask   wire.ConnectRequest // for the session
	}{
		{name: "short", move: []int{0}},
		{name: "long", move: []int{1}, lasts: true},
		{name: "short, then long", move: []int{0, 1}, lasts: true},
		{name: "long, then short", move: []int{1, 0}},
		{name: "short, then long, then a report of the first member", move: []int{0, 1}, ping: true},
	}
	for step := range 2 {
		for i := range cases {
			c := &cases[i]
			if step >= len(c.move) {
				continue
			}
			nc, answer := connectTo(t, ens, c.move[step], c.ask)
			if want := granted[c.move[step]]; answer == nil || answer.Timeout != want {
				t.Fatalf("%s: member %d grants %+v, not %d ms", c.name, c.move[step], answer, want)
			}
			c.conns = append(c.conns, nc)
			c.ask = wire.ConnectRequest{SessionID: answer.SessionID, Password: bytes.Clone(answer.Password)}
			if step == 1 && c.ping {
				_, err := c.conns[0].Write(wire.AppendFrame(nil, &wire.RequestHeader{Xid: wire.XidPing, Op: wire.OpPing}, nil))
				must(t, err)
			}
		}
		time.Sleep(time.Second) // real followers report a new session as well: let that arrive
	}
	time.Sleep(long)
	for _, c := range cases {
		_, answer := connectTo(t, ens, 2, c.ask)
		if answer == nil {
			t.Fatalf("%s: no answer", c.name)
		}
		if lasts := answer.SessionID != 0; lasts != c.lasts {
			t.Errorf("%s: after %v it lives: %t", c.name, long, lasts)
		}
	}
}

// connectTo connects to a member and asks for a timeout of 5 s.
func connectTo(t *testing.T, ens testutil.Ensemble, member int, ask wire.ConnectRequest) (netConn, *wire.ConnectResponse) {
	t.Helper()
	nc, err := ens.Dial("tcp", strings.Split(ens.Servers(), ",")[member], patience)
	must(t, err)
	t.Cleanup(func() { nc.Close() })
	ask.Timeout = 5000
	if ask.Password == nil {
		ask.Password = make([]byte, 16)
	}
	return nc, attach(t, nc, &ask)
}

// A member's bounds are 2 and 20 of its own ticks. The leader expires sessions
// and asks its followers for their sessions by its own tick.
func TestMembersHaveTheirOwnTicks(t *testing.T) {
	for _, c := range []struct {
		leader time.Duration // its tick
		heard  time.Duration // when it hears of a ping at 1.1 s
		over   time.Duration
	}{
		{2 * time.Second, 2 * time.Second, 8 * time.Second},
		{3 * time.Second, 1500 * time.Millisecond, 6 * time.Second},
		{500 * time.Millisecond, 1250 * time.Millisecond, 5500 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(c.leader), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithMemberTick(0, 400*time.Millisecond),
					testutil.WithMemberTick(1, time.Second), testutil.WithMemberTick(2, c.leader))
				if l := e.Leader(); l != 2 {
					t.Fatalf("member %d leads", l)
				}
				clock := newClock(t)
				if p := single(t, e, 0, time.Hour); p.timeout != 8000 {
					t.Errorf("member 0 grants %d ms", p.timeout)
				}
				if p := single(t, e, 1, 1); p.timeout != 2000 {
					t.Errorf("member 1 grants %d ms", p.timeout)
				}
				must(t, e.ExpireSession(e.Sessions()[0].ID))
				must(t, e.ExpireSession(e.Sessions()[0].ID))
				p := single(t, e, 1, 4*time.Second)
				clock.at(1100 * time.Millisecond)
				p.ok(wire.OpPing, nil)
				clock.at(c.heard - 1)
				if heard := e.Sessions()[0].LastTouch.Sub(clock.start); heard != 0 {
					t.Errorf("the leader has heard of it at %v", heard)
				}
				clock.at(c.heard)
				if heard := e.Sessions()[0].LastTouch.Sub(clock.start); heard != c.heard {
					t.Errorf("the leader has heard of it at %v, not %v", heard, c.heard)
				}
				clock.at(c.over - 1)
				if len(e.Sessions()) != 1 {
					t.Errorf("it has expired before %v", c.over)
				}
				clock.at(c.over)
				if len(e.Sessions()) != 0 {
					t.Errorf("it has not expired at %v", c.over)
				}
			})
		})
	}
}

// A follower, and its leader, each count the sync limit by its own tick.
func TestMembersCountTheSyncLimitByTheirOwnTicks(t *testing.T) {
	for _, c := range []struct{ follower, leader, gone time.Duration }{
		{time.Second, 4 * time.Second, 5 * time.Second},
		{2 * time.Second, 500 * time.Millisecond, 10 * time.Second}, // it hears at once that it was given up, once it hears anything
	} {
		synctest.Test(t, func(t *testing.T) {
			e := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithMemberTick(0, c.follower),
				testutil.WithMemberTick(1, c.leader), testutil.WithMemberTick(2, c.leader))
			clock := newClock(t)
			p := single(t, e, 0, 20*time.Second)
			e.Isolate(0)
			clock.at(c.gone - 1)
			p.ok(wire.OpPing, nil)
			clock.at(c.gone)
			if !p.gone(0) {
				t.Errorf("it serves %v after the leader was heard last", c.gone)
			}
		})
	}
}
