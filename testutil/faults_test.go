package testutil_test

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// on returns a control function for the requests with one operation and path.
func on(op testutil.Op, path string, action testutil.Action) func(testutil.Request) testutil.Action {
	return func(r testutil.Request) testutil.Action {
		if r.Op == op && r.Path == path {
			return action
		}
		return testutil.Pass()
	}
}

func TestControl(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		c := wireClient(t, e.Servers(), e.Dial, 10*time.Second)
		_, err := c.Create("/ready", nil, 0, anyACL)
		must(t, err)

		stop := e.Control(on(testutil.OpCreate, "/before", testutil.DropBefore()))
		_, err = c.Create("/before", nil, 0, anyACL)
		if !errors.Is(err, zk.ErrConnectionClosed) || e.Exists("/before") {
			t.Errorf("drop before: %v, exists %t", err, e.Exists("/before"))
		}
		stop()
		time.Sleep(2 * time.Second)

		stop = e.Control(on(testutil.OpCreate, "/after", testutil.DropAfter()))
		_, err = c.Create("/after", nil, 0, anyACL)
		if !errors.Is(err, zk.ErrConnectionClosed) || !e.Exists("/after") {
			t.Errorf("drop after: %v, exists %t", err, e.Exists("/after"))
		}
		stop()
		time.Sleep(2 * time.Second)

		stop = e.Control(on(testutil.OpCreate, "/fail", testutil.Fail(testutil.CodeNoAuth)))
		_, err = c.Create("/fail", nil, 0, anyACL)
		if !errors.Is(err, zk.ErrNoAuth) || e.Exists("/fail") {
			t.Errorf("fail: %v, exists %t", err, e.Exists("/fail"))
		}
		stop()

		stop = e.Control(on(testutil.OpCreate, "/later", testutil.Delay(5*time.Second)))
		began := time.Now()
		_, err = c.Create("/later", nil, 0, anyACL)
		if took := time.Since(began); err != nil || took != 5*time.Second {
			t.Errorf("delay: %v after %v", err, took)
		}
		stop()

		stop = e.Control(on(testutil.OpCreate, "/slow", testutil.DelayReply(5*time.Second)))
		began = time.Now()
		go func() {
			time.Sleep(time.Nanosecond)
			if !e.Exists("/slow") {
				t.Error("delay of the reply: not executed at once")
			}
		}()
		_, err = c.Create("/slow", nil, 0, anyACL)
		if took := time.Since(began); err != nil || took != 5*time.Second {
			t.Errorf("delay of the reply: %v after %v", err, took)
		}
		stop()
	})
}

// A held request is executed when it is released, even if its connection is
// gone: the late write that every recipe must handle.
func TestHeldRequestOutlivesItsConnection(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *testutil.Embedded) {
		release := make(chan struct{})
		defer e.Control(on(testutil.OpCreate, "/late", testutil.Hold(release)))()
		p := single(t, e, 0, 20*time.Second)
		p.send(wire.OpCreate, create("/late", "", 1))
		p.send(wire.OpExists, look("/late", false))
		time.Sleep(time.Second)
		p.nc.Close()
		time.Sleep(time.Second)
		if e.Exists("/late") {
			t.Error("executed too early")
		}
		close(release)
		synctest.Wait()
		if !e.Exists("/late") {
			t.Error("not executed")
		}
		time.Sleep(time.Minute)
		if e.Exists("/late") {
			t.Error("the znode outlives its session")
		}
	})
}

// Control sees connections being opened, and can lose the answer: then the
// session exists, and no client knows it.
func TestControlOfConnects(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *testutil.Embedded) {
		stop := e.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreateSession {
				return testutil.DropAfter()
			}
			return testutil.Pass()
		})
		if !refused(t, e, 0) || len(e.Sessions()) != 1 {
			t.Errorf("sessions: %+v", e.Sessions())
		}
		stop()
		p := single(t, e, 0, 20*time.Second)
		defer e.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreateSession && r.Session == p.session {
				return testutil.Fail(testutil.CodeSessionExpired)
			}
			return testutil.Pass()
		})()
		got := attach(t, dialMember(t, e, 0), &wire.ConnectRequest{Timeout: 5000, SessionID: p.session, Password: p.pass})
		if got == nil || got.SessionID != 0 {
			t.Errorf("attach: %+v", got)
		}
	})
}

func TestMuteAndWedge(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		p := single(t, e, 0, 20*time.Second)
		e.Wedge(0)
		p.send(wire.OpCreate, create("/a", "", 0))
		if _, answered := p.answer(time.Second); answered || e.Exists("/a") {
			t.Error("a wedged member works")
		}
		p.ok(wire.OpPing, nil)
		q := single(t, e, 0, 20*time.Second) // it opens connections
		q.ok(wire.OpPing, nil)
		e.Unwedge(0)
		if code, answered := p.answer(0); !answered || code != wire.OK || !e.Exists("/a") {
			t.Errorf("after it: %t %v", answered, code)
		}
		e.Mute(0)
		nc := dialMember(t, e, 0)
		nc.SetDeadline(time.Now().Add(time.Second))
		nc.Write(wire.AppendFrame(nil, &wire.ConnectRequest{Timeout: 5000, Password: make([]byte, 16)}))
		if _, err := wire.ReadFrame(nc, 1<<10, nil); !isTimeout(err) {
			t.Errorf("a mute member: %v", err)
		}
		p.send(wire.OpPing, nil)
		if _, answered := p.answer(time.Second); answered {
			t.Error("a mute member answers a ping")
		}
		e.Unmute(0)
		if code, answered := p.answer(0); !answered || code != wire.OK {
			t.Errorf("after it: %t %v", answered, code)
		}
	})
}

func TestLatency(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *testutil.Embedded) {
		p := single(t, e, 0, 20*time.Second)
		e.Latency(50 * time.Millisecond)
		began := time.Now()
		for range 10 {
			p.send(wire.OpCreate, create("/n-", "", 2))
		}
		for range 10 {
			if code, answered := p.answer(time.Second); !answered || code != wire.OK {
				t.Fatalf("%t %v", answered, code)
			}
		}
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("ten requests behind each other took %v", took)
		}
	})
}

// cutting runs over TCP and in memory: a ClientNet behaves the same.
func cutting(t *testing.T, e *testutil.Embedded, pause time.Duration) {
	alice := e.ClientNet("alice")
	if alice != e.ClientNet("alice") || alice == e.ClientNet("bob") {
		t.Error("clients are not told apart")
	}
	a := newPeer(t, "A", dialAs(t, e, "alice"), 30*time.Second, &transcript{sessions: map[int64]string{}})
	b := newPeer(t, "B", dialAs(t, e, "bob"), 30*time.Second, &transcript{sessions: map[int64]string{}})
	a.ok(wire.OpPing, nil)

	alice.Cut()
	a.send(wire.OpCreate, create("/lost", "", 0))
	if _, answered := a.answer(pause); answered || e.Exists("/lost") {
		t.Error("a request gets through a cut")
	}
	if nc, err := alice.Dial("tcp", address(e, 0), pause); !isTimeout(err) {
		t.Errorf("a dial gets through a cut: %v %v", nc, err)
	}
	b.ok(wire.OpPing, nil)
	alice.Heal()
	if code, answered := a.answer(30 * time.Second); !answered || code != wire.OK || !e.Exists("/lost") {
		t.Errorf("after the cut: %t %v", answered, code)
	}

	alice.CutOneWay(false) // what the server sends is held
	a.send(wire.OpCreate, create("/done", "", 0))
	bubble.AwaitTrue(t, "the request is executed", func() bool { return e.Exists("/done") })
	if _, answered := a.answer(pause); answered {
		t.Error("an answer gets through a cut")
	}
	alice.Heal()
	if code, answered := a.answer(30 * time.Second); !answered || code != wire.OK {
		t.Errorf("after it: %t %v", answered, code)
	}

	alice.Cut()
	a.send(wire.OpCreate, create("/even later", "", 0))
	a.nc.Close() // the end of the stream does not get through either
	time.Sleep(pause)
	if s := session(e, a.session); !s.Connected || e.Exists("/even later") {
		t.Error("the end of a connection gets through a cut")
	}
	alice.Heal()
	bubble.AwaitTrue(t, "the request and the end of the connection arrive", func() bool {
		return !session(e, a.session).Connected && e.Exists("/even later")
	})

	e.ClientNet("bob").Drop()
	if !b.gone(30 * time.Second) {
		t.Error("a dropped connection is open")
	}
}

func session(e *testutil.Embedded, id int64) testutil.SessionInfo {
	for _, s := range e.Sessions() {
		if s.ID == id {
			return s
		}
	}
	return testutil.SessionInfo{}
}

func dialAs(t *testing.T, e *testutil.Embedded, name string) net.Conn {
	t.Helper()
	nc, err := e.ClientNet(name).Dial("tcp", address(e, 0), 10*time.Second)
	must(t, err)
	t.Cleanup(func() { nc.Close() })
	return nc
}

func TestCutClientsOverTCP(t *testing.T) {
	t.Parallel()
	cutting(t, testutil.Start(t), 200*time.Millisecond)
}

func TestCutClientsInMemory(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *testutil.Embedded) { cutting(t, e, 2*time.Second) })
}

func TestCutSession(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *testutil.Embedded) {
		p := single(t, e, 0, 20*time.Second)
		e.CutClient(p.session)
		p.send(wire.OpCreate, create("/a", "", 0))
		if _, answered := p.answer(time.Second); answered || e.Exists("/a") {
			t.Error("a request gets through")
		}
		nc := dialMember(t, e, 0)
		nc.SetDeadline(time.Now().Add(time.Second))
		nc.Write(wire.AppendFrame(nil, &wire.ConnectRequest{Timeout: 5000, SessionID: p.session, Password: p.pass}))
		if _, err := wire.ReadFrame(nc, 1<<10, nil); !isTimeout(err) {
			t.Errorf("a new connection gets an answer: %v", err)
		}
		nc.Close()
		synctest.Wait()
		e.RestoreClient(p.session)
		if code, answered := p.answer(0); !answered || code != wire.OK || !e.Exists("/a") {
			t.Errorf("after it: %t %v", answered, code)
		}
	})
}

// A member keeps its port over a restart. Meanwhile connections are refused as
// by a machine without a server. Known failures elsewhere: CURATOR-535, -575,
// -564, -594, -708.
func TestRestartOverTCP(t *testing.T) {
	t.Parallel()
	e := testutil.Start(t)
	c := wireClient(t, e.Servers(), e.Dial, 40*time.Second)
	_, err := c.Create("/mine", nil, zk.FlagEphemeral, anyACL)
	must(t, err)
	before := e.Servers()
	must(t, e.Stop(0))
	if nc, err := e.Dial("tcp", before, time.Second); err == nil {
		nc.Close()
		t.Error("a stopped member accepts connections")
	}
	must(t, e.Restart(0))
	must(t, e.WaitServing(t.Context()))
	if after := e.Servers(); after != before {
		t.Errorf("the address was %s and is %s", before, after)
	}
	bubble.AwaitTrue(t, "the client comes back", func() bool {
		_, err := c.Set("/mine", nil, -1)
		return err == nil
	})
}
