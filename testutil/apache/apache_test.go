package apache_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

func TestStandalone(t *testing.T) {
	e := apache.Start(t, 1)
	if e.Members() != 1 || e.Leader() != 0 {
		t.Errorf("members = %d, leader = %d", e.Members(), e.Leader())
	}
	first := e.PID(0)
	if first == 0 {
		t.Error("it has no process")
	}
	conn := connect(t, e)
	if _, err := conn.Create("/kept", []byte("data"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	must(t, e.Stop(0))
	if e.Leader() != -1 || e.PID(0) != 0 {
		t.Error("a server that was killed leads, or has a process")
	}
	if err := e.Stop(0); err == nil {
		t.Error("stopped twice")
	}
	must(t, e.Restart(0))
	serving(t, e)
	if again := e.PID(0); again == 0 || again == first {
		t.Errorf("process %d after process %d", again, first)
	}
	if err := e.Restart(0); err == nil {
		t.Error("restarted while it runs")
	}
	if data, _, err := connect(t, e).Get("/kept"); err != nil || string(data) != "data" {
		t.Errorf("after a restart: %q, %v", data, err)
	}
	for _, err := range []error{e.Stop(1), e.Restart(-1), e.Pause(7), e.Resume(1)} {
		if err == nil {
			t.Error("there is no such member")
		}
	}
}

func TestThreeMembers(t *testing.T) {
	e := apache.Start(t, 3)
	leader := e.Leader()
	if leader < 0 {
		t.Fatal("serves without a leader")
	}
	for _, fault := range []struct {
		name           string
		inject, repair func(int) error
	}{
		{"stop", e.Stop, e.Restart},
		{"pause", e.Pause, e.Resume},
	} {
		t.Run(fault.name, func(t *testing.T) {
			leader := e.Leader()
			must(t, fault.inject(leader))
			bubble.AwaitTrue(t, "another member leads", func() bool { l := e.Leader(); return l >= 0 && l != leader })
			serving(t, e)
			must(t, fault.repair(leader))
			bubble.AwaitTrue(t, "all members serve again", func() bool { return e.WaitServing(t.Context()) == nil })
		})
	}
}

func TestExpireSession(t *testing.T) {
	for _, members := range []int{1, 3} {
		e := apache.Start(t, members)
		conn := connect(t, e)
		witness := connect(t, e)
		if _, err := conn.Create("/ephemeral", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		id := conn.SessionID()
		must(t, e.ExpireSession(id))
		bubble.AwaitTrue(t, "the session's znode is gone", func() bool {
			if _, err := witness.Sync("/"); err != nil {
				return false
			}
			exists, _, err := witness.Exists("/ephemeral")
			return err == nil && !exists
		})
		bubble.AwaitTrue(t, "its client has another one", func() bool { return conn.SessionID() != id && conn.State() == zk.StateHasSession })
		if err := e.ExpireSession(id); err == nil {
			t.Error("expired a session that is gone")
		}
	}
}

func TestDropConnections(t *testing.T) {
	e := apache.Start(t, 3)
	first, second := connect(t, e), connect(t, e)
	id := first.SessionID()
	must(t, e.DropConnections(id))
	first.dropped.wait(t)
	bubble.AwaitTrue(t, "the client is back", func() bool { return first.State() == zk.StateHasSession })
	if first.SessionID() != id {
		t.Error("the session was lost")
	}
	if err := e.DropConnections(12345); err == nil {
		t.Error("dropped the connection of no session")
	}
	must(t, e.DropConnections(0))
	first.dropped.wait(t)
	second.dropped.wait(t)
}

// client is the wire client, with a signal for each lost connection.
type client struct {
	*zk.Conn
	dropped signal
}

type signal chan struct{}

func (s signal) wait(t *testing.T) {
	t.Helper()
	select {
	case <-s:
	case <-time.After(time.Minute):
		t.Fatal("no connection was dropped within a minute")
	}
}

func connect(t *testing.T, e *apache.Ensemble) client {
	t.Helper()
	return connectBy(t, e.Servers(), e.Dial)
}

func connectBy(t *testing.T, servers string, dial zk.Dialer) client {
	t.Helper()
	c := client{dropped: make(signal, 100)}
	conn, events, err := zk.Connect(strings.Split(servers, ","), 10*time.Second,
		zk.WithDialer(dial), zk.WithLogger(silent{}), zk.WithEventCallback(func(event zk.Event) {
			if event.State == zk.StateDisconnected {
				c.dropped <- struct{}{}
			}
		}))
	must(t, err)
	c.Conn = conn
	t.Cleanup(func() {
		conn.Close()
		for range events { // closed when its goroutines have ended
		}
	})
	bubble.AwaitTrue(t, "connected", func() bool { return conn.State() == zk.StateHasSession })
	return c
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func serving(t *testing.T, e *apache.Ensemble) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, e.WaitServing(ctx))
}
