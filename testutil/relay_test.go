package testutil_test

import (
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// ClientNet.Control affects a client's requests like Embedded.Control, and
// other clients are not affected.
func TestControlOfOneClient(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		n := e.ClientNet("alice")
		c := wireClient(t, e.Servers(), n.Dial, 10*time.Second)
		other := wireClient(t, e.Servers(), e.ClientNet("bob").Dial, 10*time.Second)
		create := func(path string) error {
			_, err := c.Create(path, nil, 0, anyACL)
			return err
		}
		must(t, create("/ready"))
		for _, test := range []struct {
			path   string
			action testutil.Action
			err    error
			exists bool
			takes  time.Duration
		}{
			{"/before", testutil.DropBefore(), zk.ErrConnectionClosed, false, 0},
			{"/after", testutil.DropAfter(), zk.ErrConnectionClosed, true, 0},
			{"/fail", testutil.Fail(testutil.CodeNoAuth), zk.ErrNoAuth, false, 0},
			{"/moved", testutil.Fail(testutil.CodeSessionMoved), zk.ErrConnectionClosed, false, 0},
			{"/later", testutil.Delay(3 * time.Second), nil, true, 3 * time.Second},
			{"/slow", testutil.DelayReply(3 * time.Second), nil, true, 3 * time.Second},
		} {
			fault := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: test.path}, test.action)
			stop := n.Control(fault.Control)
			if _, err := other.Create("/of bob"+test.path[1:], nil, 0, anyACL); err != nil {
				t.Errorf("%s: another client: %v", test.path, err)
			}
			began := time.Now()
			err := create(test.path)
			if took := time.Since(began); !errors.Is(err, test.err) || took != test.takes {
				t.Errorf("%s: %v after %v, want %v after %v", test.path, err, took, test.err, test.takes)
			}
			synctest.Wait()
			if e.Exists(test.path) != test.exists || fault.Count() != 1 {
				t.Errorf("%s: exists: %t, hit %d times", test.path, e.Exists(test.path), fault.Count())
			}
			stop()
			time.Sleep(2 * time.Second) // it reconnects
		}
		must(t, create("/done"))
	})
}

// An answer made by the network keeps its place behind answers that are still
// on their way.
func TestARefusalKeepsItsPlace(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *testutil.Embedded) {
		release := make(chan struct{})
		n := e.ClientNet("alice")
		p := newPeer(t, "A", dialAs(t, e, "alice"), 30*time.Second, nil)
		held := testutil.NewFault(testutil.Match{Path: "/held"}, testutil.HoldReply(release))
		refused := testutil.NewFault(testutil.Match{Path: "/refused", Times: -1}, testutil.Fail(testutil.CodeNoAuth))
		defer n.Control(held.Control)()
		defer n.Control(refused.Control)()
		order := []int32{
			p.send(wire.OpCreate, create("/held", "", 0)),
			p.send(wire.OpCreate, create("/refused", "", 0)),
			p.send(wire.OpDelete, &wire.VersionRequest{Path: "/refused", Version: -1}),
			p.send(wire.OpExists, look("/held", false)),
		}
		synctest.Wait()
		if !e.Exists("/held") || e.Exists("/refused") || refused.Count() != 2 {
			t.Errorf("held: %t, refused: %t, refusals: %d", e.Exists("/held"), e.Exists("/refused"), refused.Count())
		}
		close(release)
		for i, want := range []wire.Code{wire.OK, wire.NoAuth, wire.NoAuth, wire.OK} {
			head, _, err := p.next()
			if err != nil || head.Xid != order[i] || head.Err != want {
				t.Errorf("answer %d: %+v %v, want xid %d and %v", i, head, err, order[i], want)
			}
		}
	})
}

// A request held by the network arrives when it is released, even if the client
// has closed its connection meanwhile, but not if the connection was broken.
func TestTheNetworkDeliversLate(t *testing.T) {
	for _, test := range []struct {
		name    string
		end     func(*testutil.ClientNet, net.Conn)
		arrives bool
	}{
		{"closed", func(_ *testutil.ClientNet, nc net.Conn) { nc.Close() }, true},
		{"broken", func(n *testutil.ClientNet, _ net.Conn) { n.Drop() }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, e *testutil.Embedded) {
				release := make(chan struct{})
				n := e.ClientNet("alice")
				defer n.Control(testutil.NewFault(testutil.Match{Path: "/late"}, testutil.Hold(release)).Control)()
				p := newPeer(t, "A", dialAs(t, e, "alice"), 30*time.Second, nil)
				p.send(wire.OpCreate, create("/late", "", 0))
				time.Sleep(time.Second)
				test.end(n, p.nc)
				time.Sleep(time.Second)
				if e.Exists("/late") {
					t.Error("executed too early")
				}
				close(release)
				synctest.Wait()
				if e.Exists("/late") != test.arrives {
					t.Errorf("executed: %t", !test.arrives)
				}
			})
		})
	}
}

// ClientNet.Control sees connections being opened, with the member and the
// session, and can refuse one or lose its answer.
func TestControlOfOneClientsConnects(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		n := e.ClientNet("alice")
		ask := func(member int, session int64, pass []byte) *wire.ConnectResponse {
			nc, err := n.Dial("tcp", address(e, member), time.Second)
			must(t, err)
			defer nc.Close()
			return attach(t, nc, &wire.ConnectRequest{Timeout: 30000, SessionID: session, Password: pass})
		}
		lost := testutil.NewFault(testutil.Match{Op: testutil.OpCreateSession, Member: 2}, testutil.DropAfter())
		stop := n.Control(lost.Control)
		mine := ask(0, 0, make([]byte, 16))
		if mine == nil || mine.SessionID == 0 || lost.Count() != 0 {
			t.Fatalf("at another member: %+v, lost %d", mine, lost.Count())
		}
		if answer := ask(1, 0, make([]byte, 16)); answer != nil || len(e.Sessions()) != 2 {
			t.Errorf("lost: %+v, with %d sessions", answer, len(e.Sessions()))
		}
		stop()
		var seen testutil.Request
		defer n.Control(func(r testutil.Request) testutil.Action {
			seen = r
			return testutil.Fail(testutil.CodeSessionExpired)
		})()
		if answer := ask(2, mine.SessionID, mine.Password); answer == nil || answer.SessionID != 0 {
			t.Errorf("refused: %+v", answer)
		}
		want := testutil.Request{Member: 2, Session: mine.SessionID, Op: testutil.OpCreateSession}
		if !reflect.DeepEqual(seen, want) || len(e.Sessions()) != 2 {
			t.Errorf("seen: %+v, want %+v", seen, want)
		}
	})
}

func TestLatencyOneWay(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *testutil.Embedded) {
		n := e.ClientNet("alice")
		p := newPeer(t, "A", dialAs(t, e, "alice"), 30*time.Second, nil)
		for i, way := range [][2]time.Duration{{time.Second, 0}, {0, time.Second}, {time.Second, 2 * time.Second}} {
			n.Latency(way[0], way[1])
			path := "/" + string(rune('a'+i))
			began := time.Now()
			for range 3 { // on their way together
				p.send(wire.OpCreate, create(path, "", 2))
			}
			time.Sleep(way[0] - time.Nanosecond)
			synctest.Wait()
			if before := e.Exists(path + "0000000000"); before && way[0] > 0 {
				t.Errorf("%v: executed too early", way)
			}
			for range 3 {
				p.answer(10 * time.Second)
			}
			if took := time.Since(began); took != way[0]+way[1] {
				t.Errorf("%v: took %v", way, took)
			}
			n.Latency(0, 0)
		}
	})
}

// Four-letter words pass through unchanged, and so do answers that are larger
// than any request may be.
func TestTheNetworkPassesWordsAndLargeAnswers(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *testutil.Embedded) {
		for _, word := range []string{"isro", "ruok", "srvr"} {
			direct, err := e.Dial("tcp", address(e, 0), time.Second)
			must(t, err)
			relayed := dialAs(t, e, "alice")
			var said [2]string
			for i, nc := range []net.Conn{direct, relayed} {
				io.WriteString(nc, word)
				b, err := io.ReadAll(nc)
				must(t, err)
				said[i], _, _ = strings.Cut(string(b), "\nLatency")
				nc.Close()
			}
			if said[0] == "" || said[0] != said[1] {
				t.Errorf("%s: %q, and %q through the network", word, said[0], said[1])
			}
		}
		c := wireClient(t, e.Servers(), e.ClientNet("alice").Dial, 10*time.Second)
		long := strings.Repeat("x", 100<<10)
		for i := range 12 {
			_, err := c.Create("/"+string(rune('a'+i))+long, nil, 0, anyACL)
			must(t, err)
		}
		children, _, err := c.Children("/")
		if err != nil || len(children) != 13 {
			t.Errorf("%d children, %v", len(children), err)
		}
	})
}

// Connections to the addresses of Listen are on the client's network, and end
// with it.
func TestListen(t *testing.T) {
	t.Parallel()
	e := testutil.Start(t, testutil.WithMembers(3))
	n := e.ClientNet("a process")
	servers, err := n.Listen()
	must(t, err)
	if again, err := n.Listen(); err != nil || again != servers || len(strings.Split(servers, ",")) != 3 {
		t.Errorf("%q, and then %q, %v", servers, again, err)
	}
	lost := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: "/lost"}, testutil.DropAfter())
	defer n.Control(lost.Control)()
	c := wireClient(t, servers, net.DialTimeout, 10*time.Second)
	if _, err := c.Create("/lost", nil, 0, anyACL); !errors.Is(err, zk.ErrConnectionClosed) || !e.Exists("/lost") {
		t.Errorf("%v, exists: %t", err, e.Exists("/lost"))
	}
	n.Cut()
	stranger, err := net.Dial("tcp", strings.Split(servers, ",")[0])
	must(t, err)
	defer stranger.Close()
	io.WriteString(stranger, "ruok")
	stranger.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := stranger.Read(make([]byte, 4)); !isTimeout(err) {
		t.Errorf("through a cut: %d bytes, %v", n, err)
	}
	n.Heal()
	stranger.SetReadDeadline(time.Now().Add(30 * time.Second))
	if b, err := io.ReadAll(stranger); err != nil || string(b) != "imok" {
		t.Errorf("after it: %q, %v", b, err)
	}
	must(t, n.Close())
	if nc, err := net.Dial("tcp", strings.Split(servers, ",")[0]); err == nil {
		nc.Close()
		t.Error("it goes on listening")
	}
	if _, err := n.Dial("tcp", address(e, 0), time.Second); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a dial after the end: %v", err)
	}
}

func TestMatch(t *testing.T) {
	child := testutil.Request{Op: testutil.OpCreate, Path: "/a/b", Member: 1}
	for _, test := range []struct {
		match testutil.Match
		want  bool
	}{
		{testutil.Match{}, true},
		{testutil.Match{Op: testutil.OpCreate}, true},
		{testutil.Match{Op: testutil.OpDelete}, false},
		{testutil.Match{Path: "/a/b"}, true},
		{testutil.Match{Path: "/a"}, false},
		{testutil.Match{Path: "/a/"}, true},
		{testutil.Match{Path: "/b/"}, false},
		{testutil.Match{Path: "/"}, false},
		{testutil.Match{Member: 2}, true},
		{testutil.Match{Member: 1}, false},
	} {
		fault := testutil.NewFault(test.match, testutil.DropBefore())
		if got := fault.Control(child) == testutil.DropBefore(); got != test.want || fault.Count() > 1 {
			t.Errorf("%+v: %t", test.match, got)
		}
	}
	third := testutil.NewFault(testutil.Match{Skip: 2, Times: 2}, testutil.DropAfter())
	for i, want := range []testutil.Action{
		testutil.Pass(), testutil.Pass(), testutil.DropAfter(), testutil.DropAfter(), testutil.Pass(),
	} {
		select {
		case <-third.Hit():
			if i < 3 {
				t.Errorf("hit before request %d", i)
			}
		default:
			if i >= 3 {
				t.Errorf("not hit before request %d", i)
			}
		}
		if got := third.Control(child); got != want {
			t.Errorf("request %d: %+v", i, got)
		}
	}
}

func TestIsolateWhatCan(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		old := e.Leader()
		heal, err := testutil.Isolate(e, old)
		must(t, err)
		time.Sleep(30 * time.Second)
		if e.Leader() == old {
			t.Error("it is not cut off")
		}
		heal()
		must(t, e.WaitServing(t.Context()))
		if _, err := testutil.Isolate(e, 3); err == nil {
			t.Error("there is no such member")
		}
	})
	if _, err := testutil.Isolate(other{}, 0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("another kind of ensemble: %v", err)
	}
}

// other is an ensemble without any faults.
type other struct{ testutil.Ensemble }

func (other) Members() int { return 1 }
