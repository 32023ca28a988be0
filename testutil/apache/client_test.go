package apache_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The faults of a ClientNet are the same in front of real servers as in front
// of the embedded ensemble. Another client checks the results.
func TestClientNetwork(t *testing.T) {
	e := apache.Start(t, 1)
	n := e.ClientNet("alice")
	if n != e.ClientNet("alice") || n == e.ClientNet("bob") {
		t.Fatal("clients are not told apart")
	}
	witness := connect(t, e)
	exists := func(path string) bool {
		exists, _, err := witness.Exists(path)
		must(t, err)
		return exists
	}
	conn := connectBy(t, e.Servers(), n.Dial)
	id := conn.SessionID()
	release := make(chan struct{})
	for _, test := range []struct {
		path   string
		action testutil.Action
		err    error
		exists bool
	}{
		{"/before", testutil.DropBefore(), zk.ErrConnectionClosed, false},
		{"/after", testutil.DropAfter(), zk.ErrConnectionClosed, true},
		{"/refused", testutil.Fail(testutil.CodeNoAuth), zk.ErrNoAuth, false},
		{"/late", testutil.Delay(200 * time.Millisecond), nil, true},
		{"/slow", testutil.DelayReply(200 * time.Millisecond), nil, true},
		{"/held", testutil.HoldReply(release), nil, true},
	} {
		fault := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: test.path}, test.action)
		stop := n.Control(fault.Control)
		if test.path == "/held" {
			go func() {
				defer close(release) // always: the create waits for it
				<-fault.Hit()
				bubble.AwaitTrue(t, "executed before it is answered", func() bool { return exists("/held") })
			}()
		}
		if _, err := conn.Create(test.path, nil, 0, zk.WorldACL(zk.PermAll)); !errors.Is(err, test.err) {
			t.Errorf("%s: %v, want %v", test.path, err, test.err)
		}
		if got := exists(test.path); got != test.exists || fault.Count() != 1 {
			t.Errorf("%s: exists: %t, hit %d times", test.path, got, fault.Count())
		}
		stop()
		bubble.AwaitTrue(t, "connected again", func() bool { return conn.State() == zk.StateHasSession })
	}

	began := time.Now()
	n.Latency(100*time.Millisecond, 200*time.Millisecond)
	if _, _, err := conn.Exists("/"); err != nil || time.Since(began) < 300*time.Millisecond {
		t.Errorf("with latency: %v after %v", err, time.Since(began))
	}
	n.Latency(0, 0)

	n.CutOneWay(false)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Create("/unheard", nil, 0, zk.WorldACL(zk.PermAll))
		done <- err
	}()
	bubble.AwaitTrue(t, "executed without a word", func() bool { return exists("/unheard") })
	select {
	case err := <-done:
		t.Errorf("answered through a cut: %v", err)
	default:
	}
	n.Heal()
	if err := <-done; err != nil {
		t.Errorf("after the cut: %v", err)
	}
	n.Drop()
	conn.dropped.wait(t)
	bubble.AwaitTrue(t, "back", func() bool { return conn.State() == zk.StateHasSession })
	if conn.SessionID() != id {
		t.Error("the session was lost")
	}
	if _, err := testutil.Isolate(e, 0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("isolate: %v", err)
	}
}

// A process with the addresses of Listen is on its client's network.
func TestClientNetworkForProcesses(t *testing.T) {
	e := apache.Start(t, 1)
	n := e.ClientNet("a process")
	servers, err := n.Listen()
	must(t, err)
	conn := connectBy(t, servers, net.DialTimeout)
	lost := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: "/lost"}, testutil.DropAfter())
	defer n.Control(lost.Control)()
	if _, err := conn.Create("/lost", nil, 0, zk.WorldACL(zk.PermAll)); !errors.Is(err, zk.ErrConnectionClosed) {
		t.Errorf("its answer was to be lost: %v", err)
	}
	if exists, _, err := connect(t, e).Exists("/lost"); err != nil || !exists || strings.Contains(e.Servers(), servers) {
		t.Errorf("exists: %t, %v", exists, err)
	}
}
