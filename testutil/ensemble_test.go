package testutil_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

var anyACL = zk.WorldACL(zk.PermAll)

func address(e *testutil.Embedded, member int) string { return strings.Split(e.Servers(), ",")[member] }

// refused reports whether a member accepts a connection and closes it without
// an answer, as it does without a quorum.
func refused(t *testing.T, e *testutil.Embedded, member int) bool {
	t.Helper()
	return attach(t, dialMember(t, e, member), &wire.ConnectRequest{Timeout: 5000, Password: make([]byte, 16)}) == nil
}

// A follower that was cut off from its leader answers pings and reads for five
// ticks, ten seconds, but no write and no sync. Then it drops its clients and
// refuses new ones. Meanwhile their sessions expire, since the leader hears
// nothing from them.
func TestFollowerCutOffFromItsLeader(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		clock := newClock(t)
		reader, writer := single(t, e, 0, 4*time.Second), single(t, e, 0, 20*time.Second)
		reader.ok(wire.OpCreate, create("/mine", "", 1))
		clock.at(1500 * time.Millisecond)
		reader.ok(wire.OpPing, nil)
		e.Isolate(0) // the last message was at 1 s; the reader's last touch, at 1.5 s, is never sent
		if _, answered := writer.code(wire.OpSetData, set("/mine", "x", -1)); answered {
			t.Error("a write is answered")
		}
		for _, d := range []time.Duration{3, 5, 7, 9, 10} {
			clock.at(d * time.Second)
			reader.ok(wire.OpPing, nil)
			reader.ok(wire.OpGetData, look("/mine", false)) // the follower does not know that the session has expired
			if gone := !e.Exists("/mine"); gone != (d >= 7) {
				t.Errorf("at %d s: gone at the leader: %t", d, gone)
			}
		}
		if refusedEarly := !reader.gone(0) && refusedNow(t, e, 0); refusedEarly {
			t.Error("it refuses already")
		}
		clock.at(11 * time.Second)
		if !reader.gone(0) || !writer.gone(0) || !refused(t, e, 0) {
			t.Error("the follower still serves")
		}
		clock.at(20 * time.Second)
		e.Heal()
		clock.at(20*time.Second + 199*time.Millisecond)
		if !refused(t, e, 0) {
			t.Error("it serves before it has found its leader")
		}
		clock.at(20*time.Second + 200*time.Millisecond)
		p := single(t, e, 0, 4*time.Second)
		if code, _ := p.code(wire.OpExists, look("/mine", false)); code != wire.NoNode {
			t.Errorf("the znode of the expired session: %v", code)
		}
	})
}

// refusedNow is refused for a member whose requests to the leader hang: no
// answer within no time is not a refusal.
func refusedNow(t *testing.T, e *testutil.Embedded, member int) bool {
	nc := dialMember(t, e, member)
	nc.SetDeadline(time.Now().Add(time.Millisecond))
	nc.Write(wire.AppendFrame(nil, &wire.ConnectRequest{Timeout: 5000, Password: make([]byte, 16)}))
	_, err := wire.ReadFrame(nc, 1<<10, nil)
	return !isTimeout(err)
}

// What a follower could not send while it was cut off arrives when the cut ends
// before they have given each other up.
func TestShortPartition(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		clock := newClock(t)
		p := single(t, e, 0, 20*time.Second)
		clock.at(1500 * time.Millisecond)
		e.Partition(0, e.Leader())
		p.send(wire.OpCreate, create("/late", "", 1))
		p.send(wire.OpPing, nil)
		if _, answered := p.answer(5 * time.Second); answered {
			t.Error("an answer during the partition")
		}
		e.Heal()
		for range 2 {
			if code, answered := p.answer(0); !answered || code != wire.OK {
				t.Errorf("after it: %t %v", answered, code)
			}
		}
		if !e.Exists("/late") {
			t.Error("nothing happened")
		}
	})
}

// A leader that was cut off from its quorum answers reads, pings and syncs, and
// hangs in writes, until the sync limit. Then the others elect a new leader,
// with a new epoch and a full timeout for every session.
func TestLeaderCutOffFromItsQuorum(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		clock := newClock(t)
		old := e.Leader()
		holder, writer := single(t, e, old, 20*time.Second), single(t, e, old, 20*time.Second)
		other := single(t, e, 0, 4*time.Second)
		other.ok(wire.OpCreate, create("/other", "", 1))
		holder.ok(wire.OpCreate, create("/held", "", 1))
		clock.at(1500 * time.Millisecond)
		e.Isolate(old)
		clock.at(5 * time.Second)
		holder.ok(wire.OpPing, nil)
		holder.ok(wire.OpGetData, look("/held", false))
		holder.ok(wire.OpSync, &wire.PathRequest{Path: "/"}) // nothing is proposed, so it needs no other member
		clock.at(9 * time.Second)                            // the end of the other session was proposed at 6 s
		writer.send(wire.OpCreate, create("/never", "", 0))
		synctest.Wait()
		holder.send(wire.OpSync, &wire.PathRequest{Path: "/"}) // it is queued behind a proposal
		if _, answered := holder.answer(time.Second); answered {
			t.Error("a sync behind a proposal is answered without a quorum")
		}
		if !e.Exists("/other") {
			t.Error("sessions expire without a quorum")
		}
		clock.at(11 * time.Second) // ten seconds after the last message, at 1 s
		if !other.gone(0) || e.Leader() != old {
			t.Error("the followers have not noticed, or the leader too early")
		}
		clock.at(11*time.Second + 200*time.Millisecond)
		if l := e.Leader(); l == old || l == -1 {
			t.Errorf("the leader is %d", l)
		}
		clock.at(12 * time.Second) // the old leader checks at whole ticks
		if !holder.gone(0) || !writer.gone(0) || !refused(t, e, old) {
			t.Error("the old leader still serves")
		}
		p := single(t, e, 0, 20*time.Second)
		head := p.header(wire.OpCreate, create("/new", "", 0))
		if head.Zxid != 2<<32+2 { // after the new session
			t.Errorf("the transaction is %#x", head.Zxid)
		}
		if e.Exists("/never") || !e.Exists("/other") || !e.Exists("/held") {
			t.Errorf("the tree:\n%s", e.Tree())
		}
		// The election at 11.2 s gave the session of 4 s a full
		// timeout, until 15.2 s, and so until the tick at 16 s.
		clock.at(16*time.Second - 1)
		if !e.Exists("/other") {
			t.Error("the session did not get its full timeout")
		}
		clock.at(16 * time.Second)
		if e.Exists("/other") {
			t.Error("the session is still there")
		}
		e.Heal()
		must(t, e.WaitServing(t.Context()))
		if refused(t, e, old) {
			t.Error("the old leader does not follow")
		}
	})
}

func (p *peer) header(op wire.Op, body wire.Appender) wire.ReplyHeader {
	p.t.Helper()
	p.send(op, body)
	head, _, err := p.next()
	must(p.t, err)
	return head
}

// When the leader stops, every client loses its connection and none its
// session.
func TestLeaderStops(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		c := wireClient(t, e.Servers(), e.Dial, 10*time.Second)
		_, err := c.Create("/mine", []byte("x"), zk.FlagEphemeral, anyACL)
		must(t, err)
		session := c.SessionID()
		for range 6 { // every member leads and is stopped once
			old := e.Leader()
			must(t, e.Stop(old))
			must(t, e.WaitServing(t.Context()))
			if l := e.Leader(); l == old {
				t.Fatalf("member %d leads and is stopped", l)
			}
			must(t, e.Restart(old))
			must(t, e.WaitServing(t.Context()))
			time.Sleep(3 * time.Second)
			data, _, err := c.Get("/mine")
			if err != nil || string(data) != "x" || c.SessionID() != session {
				t.Fatalf("%q %v, session %#x of %#x\n%s", data, err, c.SessionID(), session, e.Describe())
			}
			_, err = c.Set("/mine", []byte("x"), -1)
			must(t, err)
		}
	})
}

// With a majority stopped, no member serves and nothing is lost.
func TestNoQuorum(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		p := single(t, e, 0, 4*time.Second)
		p.ok(wire.OpCreate, create("/mine", "", 1))
		must(t, e.Stop(1))
		must(t, e.Stop(2))
		if e.Leader() != -1 || !p.gone(0) || !refused(t, e, 0) {
			t.Error("it serves without a quorum")
		}
		if _, err := e.Dial("tcp", address(e, 1), time.Second); err == nil {
			t.Error("a stopped member accepts")
		}
		time.Sleep(time.Hour)
		must(t, e.Restart(1))
		must(t, e.WaitServing(t.Context()))
		if !e.Exists("/mine") || e.Leader() != 1 {
			t.Errorf("leader %d, tree:\n%s", e.Leader(), e.Tree())
		}
		time.Sleep(7 * time.Second)
		if e.Exists("/mine") {
			t.Error("the session does not expire")
		}
	})
}

// A leader that is paused for too long is replaced, and follows when it
// resumes. One that resumes in time expires overdue sessions at once.
func TestPausedLeader(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		clock := newClock(t)
		old := e.Leader()
		p := single(t, e, old, 4*time.Second)
		p.ok(wire.OpCreate, create("/short", "", 1))
		q := single(t, e, 0, 20*time.Second)
		must(t, e.Pause(old))
		p.send(wire.OpPing, nil)
		clock.at(8 * time.Second)
		if _, answered := p.answer(0); answered || !e.Exists("/short") {
			t.Error("a paused member moves")
		}
		must(t, e.Resume(old))
		if e.Exists("/short") || !p.gone(0) {
			t.Error("it has not expired the session")
		}
		q.ok(wire.OpPing, nil)
		must(t, e.Pause(old))
		clock.at(30 * time.Second)
		if l := e.Leader(); l == old || l == -1 {
			t.Errorf("the leader is %d", l)
		}
		must(t, e.Resume(old))
		must(t, e.WaitServing(t.Context()))
		r := single(t, e, old, 4*time.Second)
		r.ok(wire.OpCreate, create("/new", "", 0))
	})
}

// A lagging follower acknowledges writes, so that the others go on, and serves
// old data.
func TestLag(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		p, q := single(t, e, 0, 4*time.Second), single(t, e, 1, 4*time.Second)
		e.Lag(0)
		q.ok(wire.OpCreate, create("/new", "", 0))
		if code, _ := p.code(wire.OpExists, look("/new", false)); code != wire.NoNode {
			t.Errorf("the lagging member: %v", code)
		}
		p.send(wire.OpSync, &wire.PathRequest{Path: "/"})
		p.send(wire.OpExists, look("/new", false))
		if _, answered := p.answer(time.Second); answered {
			t.Error("a sync is answered")
		}
		e.Unlag(0)
		for range 2 {
			if code, answered := p.answer(0); !answered || code != wire.OK {
				t.Errorf("after the lag: %t %v", answered, code)
			}
		}
	})
}

// A standalone server keeps its sessions and its transaction number over a
// restart.
func TestStandaloneRestart(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *testutil.Embedded) {
		p := single(t, e, 0, 4*time.Second)
		p.ok(wire.OpCreate, create("/mine", "", 1))
		must(t, e.Stop(0))
		time.Sleep(time.Hour)
		must(t, e.Restart(0))
		nc := dialMember(t, e, 0)
		got := attach(t, nc, &wire.ConnectRequest{Timeout: 4000, SessionID: p.session, Password: p.pass, LastZxidSeen: 2})
		if got == nil || got.SessionID != p.session || !e.Exists("/mine") {
			t.Errorf("attach: %+v", got)
		}
	})
}

// A member that has missed more than the log holds gets a copy of the data.
func TestLongAbsence(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		must(t, e.Stop(0))
		p := single(t, e, 1, 40*time.Second)
		for range 5000 {
			p.ok(wire.OpCreate, create("/n-", "", 2))
		}
		must(t, e.Restart(0))
		must(t, e.WaitServing(t.Context()))
		q := single(t, e, 0, 4*time.Second)
		q.ok(wire.OpExists, look("/n-0000004999", false))
	})
}

// A member that has missed more than the log holds is elected, since it alone
// reaches a quorum. It gets a copy of the data, too.
func TestElectionAfterALongAbsence(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, e *testutil.Embedded) {
		for _, absent := range []int{0, 1} {
			must(t, e.Stop(absent))
		}
		must(t, e.WaitServing(t.Context()))
		p := single(t, e, 2, 40*time.Second)
		for range 5000 {
			p.ok(wire.OpCreate, create("/n-", "", 2))
		}
		must(t, e.Stop(3))
		must(t, e.Stop(4))
		e.Partition(2, 1) // neither of them reaches a quorum
		for _, absent := range []int{1, 0} {
			must(t, e.Restart(absent))
		}
		time.Sleep(10 * time.Second)
		if l := e.Leader(); l != 0 {
			t.Fatalf("the leader is %d: the test shows nothing", l)
		}
		q := single(t, e, 0, 4*time.Second)
		q.ok(wire.OpExists, look("/n-0000004999", false))
	})
}
