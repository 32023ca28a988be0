//go:build unix

package znode

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestWatch: each change is a line, reconnects and a lost session do not end
// the watch, and a signal ends it with 0.
func TestWatch(t *testing.T) {
	zkrtest.Parallel(t)
	e := testutil.Start(t)
	c := zkrtest.Dial(t, e)
	p := zkrtest.Start(t, "watch", "--servers", e.Servers(), "/w")
	p.Prints(t, "/w  missing\n")
	p.Prints(t, "/w  children: 0\n")
	if _, err := c.Create(t.Context(), "/w", []byte("one"), 0); err != nil {
		t.Fatal(err)
	}
	p.Prints(t, "/w  created, version 0: one\n")
	if _, err := c.Create(t.Context(), "/w/kid", nil, 0); err != nil {
		t.Fatal(err)
	}
	p.Prints(t, "/w  child added kid\n")
	for _, session := range e.Sessions() {
		_ = e.ExpireSession(session.ID) // the test's own too: both go on
	}
	bubble.AwaitTrue(t, "the data is set", func() bool {
		_, err := c.Set(t.Context(), "/w", []byte("\x1b[2J"), -1)
		return err == nil
	})
	p.Prints(t, `, version 1: "\x1b[2J"`+"\n")
	if err := c.Delete(t.Context(), "/w/kid", -1); err != nil {
		t.Fatal(err)
	}
	p.Prints(t, "/w  child removed kid\n")
	if err := c.Delete(t.Context(), "/w", -1); err != nil {
		t.Fatal(err)
	}
	p.Prints(t, "/w  deleted\n")
	p.Signal(t, syscall.SIGINT)
	if code := p.Wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestWatchChildrenOfNothing: a znode that does not exist is not shown as one
// without children.
func TestWatchChildrenOfNothing(t *testing.T) {
	t.Parallel()
	e := testutil.Start(t)
	p := zkrtest.Start(t, "watch", "--servers", e.Servers(), "--of", "children", "/nope")
	p.Prints(t, "  /nope  missing\n")
	if text := p.Text(); strings.Count(text, "\n") != 1 {
		t.Errorf("it printed %q", text)
	}
}

// TestWatchTreeOfProcess: a signal ends it with 0, and a chroot that is missing
// with an error.
func TestWatchTreeOfProcess(t *testing.T) {
	zkrtest.Parallel(t)
	e := testutil.Start(t)
	p := zkrtest.Start(t, "watch", "--servers", e.Servers(), "--tree", "/zookeeper")
	p.Prints(t, "/zookeeper/quota  exists, version 0: -\n")
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p = zkrtest.Start(t, "watch", "--servers", e.Servers()+"/app", "--tree", "/w")
	if code := p.Wait(t); code != cli.ExitFailed || !strings.Contains(p.Text(), "chroot /app does not exist") {
		t.Errorf("exit code %d: %s", code, p.Text())
	}
	if code := zkrtest.Start(t, "watch", "--tree", "--of", "data", "/w").Wait(t); code != cli.ExitUsage {
		t.Errorf("exit code %d", code)
	}
}

// TestWatchOnce: --once ends with the first change, and not with the present
// state.
func TestWatchOnce(t *testing.T) {
	zkrtest.Parallel(t)
	e := testutil.Start(t)
	c := zkrtest.Dial(t, e)
	if _, err := c.Create(t.Context(), "/w", nil, 0); err != nil {
		t.Fatal(err)
	}
	p := zkrtest.Start(t, "watch", "--servers", e.Servers(), "--once", "--json", "--of", "data", "/w")
	p.Prints(t, "\n")
	if _, err := c.Create(t.Context(), "/w/kid", nil, 0); err != nil { // not watched
		t.Fatal(err)
	}
	if _, err := c.Set(t.Context(), "/w", []byte("x"), -1); err != nil {
		t.Fatal(err)
	}
	if code := p.Wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	var events []string
	for line := range strings.Lines(p.Text()) {
		var seen change
		if err := json.Unmarshal([]byte(line), &seen); err != nil || seen.Path != "/w" || seen.Time.IsZero() {
			t.Errorf("%v: %s", err, line)
		}
		events = append(events, seen.Event)
	}
	if got := strings.Join(events, ", "); got != "exists, changed" {
		t.Errorf("the events are %s", got)
	}
}

// TestWatchWithoutTheRight: a znode that may not be read is an error, and no
// silence.
func TestWatchWithoutTheRight(t *testing.T) {
	zkrtest.Parallel(t)
	e := testutil.Start(t)
	if _, err := zkrtest.Dial(t, e).Create(t.Context(), "/shut", nil, 0, zk.WorldACL(zk.PermCreate)...); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"both", "data", "children"} {
		p := zkrtest.Start(t, "watch", "--servers", e.Servers(), "--of", of, "/shut")
		if code := p.Wait(t); code != cli.ExitFailed || !strings.Contains(p.Text(), "/shut: not allowed by the ACL") || !strings.Contains(p.Text(), "--auth-file") {
			t.Errorf("--of %s: exit code %d: %s", of, code, p.Text())
		}
	}
}

// TestCreateEphemeral: the znode lives as long as zkr, and zkr as long as the
// znode. A signal that arrives before an ephemeral znode exists leads to an
// exit code that is not 0.
func TestCreateEphemeral(t *testing.T) {
	zkrtest.Parallel(t)
	e := testutil.Start(t)
	create := func(args ...string) *zkrtest.Process {
		return zkrtest.Start(t, append([]string{"create", "--servers", e.Servers(), "--ephemeral"}, args...)...)
	}
	t.Run("ended by a signal", func(t *testing.T) {
		p := create("--parents", "/hosts/one", "up")
		p.Prints(t, "/hosts/one\n")
		if stat, ok := e.Stat("/hosts/one"); !ok || stat.EphemeralOwner == 0 {
			t.Errorf("%+v", stat)
		}
		p.Signal(t, syscall.SIGTERM)
		if code := p.Wait(t); code != 0 || e.Exists("/hosts/one") {
			t.Errorf("exit code %d, exists %v", code, e.Exists("/hosts/one"))
		}
	})
	t.Run("deleted by others", func(t *testing.T) {
		p := create("--sequential", "/seq-")
		p.Prints(t, "/seq-000000000")
		p.Prints(t, "\n")
		made := strings.TrimSpace(p.Text())
		if err := zkrtest.Dial(t, e).Delete(t.Context(), made, -1); err != nil {
			t.Fatal(err)
		}
		if code := p.Wait(t); code != cli.ExitFailed || !strings.Contains(p.Text(), made+" was deleted by another client") {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("session lost", func(t *testing.T) {
		p := create("/lost")
		p.Prints(t, "/lost\n")
		stat, _ := e.Stat("/lost")
		if err := e.ExpireSession(stat.EphemeralOwner); err != nil {
			t.Fatal(err)
		}
		if code := p.Wait(t); code != cli.ExitLost || !strings.Contains(p.Text(), "/lost ends with its session: ") {
			t.Errorf("exit code %d", code)
		}
	})
	t.Run("ended before it exists", func(t *testing.T) {
		arrived := make(chan struct{})
		defer e.Control(func(r testutil.Request) testutil.Action {
			if r.Path == "/never" && (r.Op == testutil.OpCreate || r.Op == testutil.OpCreate2) {
				close(arrived)
				return testutil.Hold(nil)
			}
			return testutil.Pass()
		})()
		p := create("/never")
		<-arrived
		p.Signal(t, syscall.SIGTERM)
		if code := p.Wait(t); code != cli.ExitSignal+int(syscall.SIGTERM) {
			t.Errorf("exit code %d, though no path was printed", code)
		}
	})
	t.Run("answer lost", func(t *testing.T) {
		var lost atomic.Bool
		defer e.Control(func(r testutil.Request) testutil.Action {
			if r.Path == "/unsure" && (r.Op == testutil.OpCreate || r.Op == testutil.OpCreate2) && lost.CompareAndSwap(false, true) {
				return testutil.DropAfter()
			}
			return testutil.Pass()
		})()
		p := create("/unsure")
		p.Prints(t, "/unsure\n")
		p.Signal(t, syscall.SIGTERM)
		if code := p.Wait(t); code != 0 || !lost.Load() {
			t.Errorf("exit code %d", code)
		}
	})
}
