package testutil_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/hidden"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// inBubble runs a test in virtual time, on an ensemble in memory with a tick of
// two seconds and a sync limit of five.
func inBubble(t *testing.T, members int, test func(t *testing.T, e *testutil.Embedded)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, testutil.Start(t, testutil.InMemory(), testutil.WithMembers(members)))
	})
}

// clock measures virtual time since the ensemble's start.
type clock struct {
	t     *testing.T
	start time.Time
}

func newClock(t *testing.T) *clock { return &clock{t, time.Now()} }

// at lets virtual time pass until d after the start, and lets everything due
// then happen.
func (c *clock) at(d time.Duration) {
	c.t.Helper()
	if wait := time.Until(c.start.Add(d)); wait > 0 {
		time.Sleep(wait)
	}
	synctest.Wait()
	if now := time.Since(c.start); now != d {
		c.t.Fatalf("it is %v after the start, not %v", now, d)
	}
}

// single returns a peer with a connection to one member. Its transcript is its
// own.
func single(t *testing.T, e *testutil.Embedded, member int, timeout time.Duration) *peer {
	t.Helper()
	return newPeer(t, "P", dialMember(t, e, member), timeout, &transcript{sessions: map[int64]string{}})
}

func dialMember(t *testing.T, e *testutil.Embedded, member int) netConn {
	t.Helper()
	nc, err := e.Dial("tcp", address(e, member), patience)
	must(t, err)
	t.Cleanup(func() { nc.Close() })
	return nc
}

// code sends a request and returns the error code of the answer, and whether
// there was an answer within a second.
func (p *peer) code(op wire.Op, body wire.Appender) (wire.Code, bool) {
	p.t.Helper()
	p.send(op, body)
	return p.answer(time.Second)
}

// answer returns the code of the next reply, and whether there was one in time.
func (p *peer) answer(within time.Duration) (wire.Code, bool) {
	by := time.Now().Add(max(within, 1)) // one nanosecond is enough for everything that is due
	for {
		p.nc.SetReadDeadline(by)
		frame, err := wire.ReadFrame(p.nc, 16<<20, nil)
		if err != nil {
			return 0, false
		}
		var head wire.ReplyHeader
		if err := wire.Unmarshal(frame, &head); err != nil {
			p.t.Fatal(err)
		}
		if head.Xid != wire.XidNotification {
			return head.Err, true
		}
	}
}

// gone reports whether the connection has ended, or ends in time.
func (p *peer) gone(within time.Duration) bool {
	p.nc.SetReadDeadline(time.Now().Add(max(within, 1)))
	for {
		_, err := wire.ReadFrame(p.nc, 16<<20, nil)
		if isTimeout(err) {
			return false
		}
		if err != nil {
			return true
		}
	}
}

// ok sends a request that must succeed, however slow the machine is.
func (p *peer) ok(op wire.Op, body wire.Appender) {
	p.t.Helper()
	p.send(op, body)
	if code, answered := p.answer(patience); !answered || code != wire.OK {
		p.t.Fatalf("%v: answered %t, %v", op, answered, code)
	}
}

// A session touched at 0 s with a timeout of 5 s expires at the first whole
// tick after 5 s, which is 6 s, to the nanosecond, and its ephemerals with it.
func TestSessionExpiresAtTheTickAfterItsTimeout(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *testutil.Embedded) {
		clock := newClock(t)
		p := single(t, e, 0, 5*time.Second)
		p.ok(wire.OpCreate, create("/mine", "", 1))
		clock.at(6*time.Second - 1)
		if !e.Exists("/mine") {
			t.Error("gone too early")
		}
		clock.at(6 * time.Second)
		if e.Exists("/mine") || len(e.Sessions()) != 0 {
			t.Error("still there")
		}
		if !p.gone(time.Second) {
			t.Error("the connection of an expired session is open")
		}
	})
}

// A timeout that ends exactly on a tick lasts until the next one.
func TestSessionOutlivesATimeoutThatEndsOnATick(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *testutil.Embedded) {
		clock := newClock(t)
		p := single(t, e, 0, 4*time.Second)
		p.ok(wire.OpCreate, create("/mine", "", 1))
		clock.at(6*time.Second - 1)
		if !e.Exists("/mine") {
			t.Error("gone too early")
		}
		clock.at(6 * time.Second)
		if e.Exists("/mine") {
			t.Error("still there")
		}
	})
}

// Members whose clocks run faster than a client's expire its session earlier,
// and slower ones later.
func TestClockRates(t *testing.T) {
	for rate, expiry := range map[float64]time.Duration{0.8: 14 * time.Second, 1: 12 * time.Second, 1.25: 10 * time.Second} {
		rates := hidden.WithClockRates(func(int64) float64 { return rate })
		synctest.Test(t, func(t *testing.T) {
			e := testutil.Start(t, testutil.InMemory(), rates)
			c := newClock(t)
			single(t, e, 0, 10*time.Second)
			c.at(expiry - 1)
			if len(e.Sessions()) != 1 {
				t.Errorf("at %v it is expired too early", rate)
			}
			c.at(expiry)
			if len(e.Sessions()) != 0 {
				t.Errorf("at %v it is alive too long", rate)
			}
		})
	}
}

// A follower reports its clients to the leader every half tick. A ping at 2.5 s
// is reported at 3 s, so the 5 s end at 8 s, and the session expires at the
// tick after that, 10 s. The same ping to the leader counts from 2.5 s, and the
// session expires at 8 s.
func TestTouchesReachTheLeaderEveryHalfTick(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		clock := newClock(t)
		far, near := single(t, e, 0, 5*time.Second), single(t, e, e.Leader(), 5*time.Second)
		far.ok(wire.OpCreate, create("/far", "", 1))
		near.ok(wire.OpCreate, create("/near", "", 1))
		clock.at(2500 * time.Millisecond)
		far.ok(wire.OpPing, nil)
		near.ok(wire.OpPing, nil)
		clock.at(8*time.Second - 1)
		if !e.Exists("/near") {
			t.Error("/near is gone too early")
		}
		clock.at(8 * time.Second)
		if e.Exists("/near") {
			t.Error("/near is still there")
		}
		clock.at(10*time.Second - 1)
		if !e.Exists("/far") {
			t.Error("/far is gone too early")
		}
		clock.at(10 * time.Second)
		if e.Exists("/far") {
			t.Error("/far is still there")
		}
	})
}

// Writes through a follower do not touch the session at the leader. The report
// at the next half tick does.
func TestExpireSessionAndDropConnections(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		p := single(t, e, 1, 5*time.Second)
		p.ok(wire.OpCreate, create("/mine", "", 1))
		must(t, e.DropConnections(p.session))
		if !p.gone(0) {
			t.Error("the connection is open")
		}
		if got := e.Sessions(); len(got) != 1 || got[0].ID != p.session || got[0].Owner != 1 || got[0].Connected {
			t.Errorf("sessions: %+v", got)
		}
		nc := dialMember(t, e, 0)
		if got := attach(t, nc, &wire.ConnectRequest{Timeout: 5000, SessionID: p.session, Password: p.pass}); got.SessionID != p.session {
			t.Errorf("attach: %+v", got)
		}
		if got := e.Sessions(); got[0].Owner != 0 || !got[0].Connected {
			t.Errorf("sessions: %+v", got)
		}
		must(t, e.ExpireSession(p.session))
		if e.Exists("/mine") || len(e.Sessions()) != 0 {
			t.Error("the session is alive")
		}
		synctest.Wait()
		if n := e.Connections(); n != 0 {
			t.Errorf("%d connections are open", n)
		}
		if e.ExpireSession(p.session) == nil || e.DropConnections(p.session) == nil {
			t.Error("no error for a session that is not there")
		}
	})
}

// When a session has moved to another member, its old connection still reads
// and syncs, and is closed by its first write.
func TestOldConnectionOfAMovedSession(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		p := single(t, e, 0, 5*time.Second)
		attach(t, dialMember(t, e, 1), &wire.ConnectRequest{Timeout: 5000, SessionID: p.session, Password: p.pass})
		p.ok(wire.OpPing, nil)
		p.ok(wire.OpGetData, look("/", false))
		p.ok(wire.OpSync, &wire.PathRequest{Path: "/"})
		if _, answered := p.code(wire.OpCreate, create("/late", "", 1)); answered || !p.gone(0) {
			t.Error("a write on the old connection is answered")
		}
		if e.Exists("/late") {
			t.Error("the write was executed")
		}
	})
}

// Containers that have had children and have none are deleted at the interval,
// together with the containers they were in. Unused ones stay, and so do plain
// znodes.
func TestContainersAreReaped(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		clock := newClock(t)
		nest(t, wireClient(t, e.Servers(), e.Dial, 10*time.Second), func() { clock.at(90 * time.Second) })
		clock.at(2*time.Minute - 1)
		if got, want := e.Tree(), "/c container\n/c/inner container\n/unused container\n"; got != want {
			t.Errorf("before:\n%s", got)
		}
		clock.at(2 * time.Minute)
		if got, want := e.Tree(), "/unused container\n"; got != want {
			t.Errorf("after the interval:\n%s", got)
		}
	})
}

// nest creates nested containers with a znode in the innermost, and deletes
// that after wait.
func nest(t *testing.T, c *zk.Conn, wait func()) {
	t.Helper()
	for _, path := range []string{"/c", "/c/inner", "/unused"} {
		_, err := c.CreateContainer(path, nil, 4, anyACL)
		must(t, err)
	}
	_, err := c.Create("/c/inner/node", nil, 0, anyACL)
	must(t, err)
	wait()
	must(t, c.Delete("/c/inner/node", 0))
}

// A user's test had asked for a sweep every 50 ms and waited a second for three
// nested containers to be deleted. The sweep came only with the ticks, every 2
// s, and deleted one level each time. A known failure elsewhere: Curator's own
// suite.
func TestContainersAreReapedBetweenTicks(t *testing.T) {
	for _, members := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			e := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(members), testutil.WithContainerInterval(50*time.Millisecond))
			clock := newClock(t)
			nest(t, wireClient(t, e.Servers(), e.Dial, 10*time.Second), func() { clock.at(430 * time.Millisecond) })
			clock.at(450*time.Millisecond - 1)
			if got, want := e.Tree(), "/c container\n/c/inner container\n/unused container\n"; got != want {
				t.Errorf("%d members, before:\n%s", members, got)
			}
			clock.at(450 * time.Millisecond)
			if got, want := e.Tree(), "/unused container\n"; got != want {
				t.Errorf("%d members, after the interval:\n%s", members, got)
			}
		})
	}
}

// An hour of pings of several clients on an idle ensemble takes no real time.
func TestIdleHour(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		for range 3 {
			wireClient(t, e.Servers(), e.Dial, 10*time.Second)
		}
		time.Sleep(time.Hour)
		if n := len(e.Sessions()); n != 3 {
			t.Errorf("%d sessions, want 3", n)
		}
		if e.Pings() < 3*600 {
			t.Errorf("%d pings", e.Pings())
		}
	})
}
