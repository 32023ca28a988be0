//go:build unix

package live

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestRevoke: the holder is asked. A command under --revocable gets SIGTERM,
// and the lock is held until it has ended; another one goes on.
func TestRevoke(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		client := e.Client(t)
		for i, args := range [][]string{
			e.Args("lock"), e.Args("read"), e.Args("write", "--layout", "curator"), e.Args("semaphore", "--max", "1"),
		} {
			path := fmt.Sprintf("/revoke/%d", i)
			deaf := zkrtest.Start(t, append(args, path, "--", zkrtest.Self(t))...)
			deaf.Prints(t, "ready\n")
			late := zkrtest.Start(t, e.Args("revoke", "--wait", "2s", path)...)
			if code := late.Wait(t); code != cli.ExitNotAcquired || !strings.Contains(late.Text(), fmt.Sprintf("pid %d: ", deaf.Cmd.Process.Pid)) ||
				!strings.Contains(late.Text(), "has not left within 2s (0 of 1 have)") {
				t.Errorf("%s: asked a holder that does not listen: exit code %d; it printed %q", args[0], code, late.Text())
			}
			deaf.Signal(t, syscall.SIGTERM)
			if code := deaf.Wait(t); code != 3 || strings.Contains(deaf.Text(), "asks for the release") {
				t.Errorf("%s: exit code %d; it printed %q", args[0], code, deaf.Text())
			}

			gate := filepath.Join(t.TempDir(), "gate")
			gated := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, zkrtest.GateVariable+"="+gate) }
			listens := zkrtest.StartChanged(t, gated, append(args, "--revocable", path, "--", zkrtest.Self(t))...)
			listens.Prints(t, "ready\n")
			asks := zkrtest.Start(t, e.Args("revoke", "--wait", "25s", path)...)
			listens.Prints(t, "stopping\n")
			asks.Prints(t, "asked ")
			dir := path
			if args[0] == "semaphore" {
				dir += "/leases"
			}
			if n := len(zkrtest.Line(t, client, dir)); n != 1 {
				t.Errorf("%s: while the command ends there are %d in line", args[0], n)
			}
			if err := os.WriteFile(gate, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if code := asks.Wait(t); code != 0 {
				t.Errorf("%s: revoke: exit code %d; it printed %q", args[0], code, asks.Text())
			}
			if code := listens.Wait(t); code != 3 || !strings.Contains(listens.Text(), path+": another client asks for the release: ") {
				t.Errorf("%s: exit code %d, want the command's own 3; it printed %q", args[0], code, listens.Text())
			}
			if left := zkrtest.Line(t, client, dir); len(left) != 0 {
				judge.Errorf(t, "%s: left in line: %q", args[0], left)
			}
		}
	})
}

// TestRevokeWithoutCommand: zkr prints that the release was asked for, and
// holds until it is told to end: the work that it protects is somewhere else.
func TestRevokeWithoutCommand(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	for flag, want := range map[string]string{"--json=false": "revoked\n", "--json": "{\"revoked\":true}\n"} {
		holder := zkrtest.Start(t, e.Args("lock", "--revocable", flag, "/told/b", "/told/a")...)
		holder.Prints(t, "\n")
		asks := zkrtest.Start(t, e.Args("revoke", "/told/a")...) // any of several
		if code := asks.Wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		holder.Prints(t, want)
		e.InLine(t, client, "/told/a", 1)
		holder.Signal(t, syscall.SIGTERM)
		if code := holder.Wait(t); code != 0 || strings.Count(holder.Text(), want) != 1 {
			t.Errorf("exit code %d; it printed %q", code, holder.Text())
		}
	}
}

// TestRevokeWhom: holders by default, all who hold or wait with --all, one of
// them with --session. A waiter is told when it is granted the lock.
func TestRevokeWhom(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	join := func(verb string, place int) *zkrtest.Process {
		p := zkrtest.Start(t, e.Args(verb, "--revocable", "/whom", "--", zkrtest.Self(t))...)
		e.InLine(t, client, "/whom", place)
		return p
	}
	readers := []*zkrtest.Process{join("read", 1), join("read", 2)}
	for _, p := range readers {
		p.Prints(t, "ready\n")
	}
	writer := join("write", 3)
	pid := func(p *zkrtest.Process) string { return fmt.Sprintf(" pid %d: ", p.Cmd.Process.Pid) }
	revoke := func(args ...string) []Contender {
		t.Helper()
		p := zkrtest.Start(t, e.Args("revoke", append(args, "--json", "/whom")...)...)
		if code := p.Wait(t); code != 0 {
			t.Fatalf("revoke %q: exit code %d; it printed %q", args, code, p.Text())
		}
		var asked []Contender
		for text := range strings.Lines(p.Text()) {
			var one Contender
			if err := json.Unmarshal([]byte(text), &one); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			asked = append(asked, one)
		}
		return asked
	}
	asked := revoke() // both readers, not the writer
	if len(asked) != 2 || !asked[0].Holds || !strings.Contains(asked[0].Data, pid(readers[0])) || !strings.Contains(asked[1].Data, pid(readers[1])) {
		t.Errorf("asked %+v", asked)
	}
	for _, p := range readers {
		if code := p.Wait(t); code != 3 {
			t.Errorf("a reader: exit code %d, want its command's own 3", code)
		}
	}
	writer.Prints(t, "ready\n")
	next := join("write", 2)
	if asked := revoke("--all"); len(asked) != 2 || !asked[0].Holds || asked[1].Holds || !strings.Contains(asked[1].Data, pid(next)) {
		t.Errorf("asked %+v", asked)
	}
	for _, p := range []*zkrtest.Process{writer, next} {
		if code := p.Wait(t); code != 3 && code != 143 || !strings.Contains(p.Text(), "asks for the release") { // 143: before the command has begun to handle signals
			t.Errorf("a writer: exit code %d; it printed %q", code, p.Text())
		}
	}
	holder := join("write", 1)
	holder.Prints(t, "ready\n")
	last := join("write", 2)
	_, stat, err := client.Get(t.Context(), zkrtest.FirstInLine(t, client, "/whom"))
	if err != nil {
		t.Fatal(err)
	}
	if asked := revoke("--session", fmt.Sprintf("0x%016x", uint64(stat.EphemeralOwner))); len(asked) != 1 || !asked[0].Holds {
		t.Errorf("asked %+v", asked)
	}
	holder.Wait(t)
	last.Prints(t, "ready\n")
	last.Signal(t, syscall.SIGTERM)
	if code := last.Wait(t); code != 3 || strings.Contains(last.Text(), "asks for the release") {
		t.Errorf("one that was not asked: exit code %d; it printed %q", code, last.Text())
	}
}

// TestRevokeKeepsTheText: a request does not hide who holds the lock, unless
// that may be a client of Curator, which compares the whole data.
func TestRevokeKeepsTheText(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	for i, test := range []struct{ data, want, shown string }{
		{"web-1 pid 4711", "__REVOKE__ web-1 pid 4711", "web-1 pid 4711 (asked to release)"},
		{"web-1 pid 4711: sh parent=0x1", "__REVOKE__ web-1 pid 4711: sh parent=0x1", "web-1 pid 4711: sh parent=0x1 (asked to release)"},
		{"10.0.0.1", "__REVOKE__", "asked to release"},
		{"", "__REVOKE__", "asked to release"},
		{"__REVOKE__", "__REVOKE__", "asked to release"},
	} {
		path := fmt.Sprintf("/kept/%d", i)
		m, err := locks.NewMutex(client, path, recipes.WithData(nil))
		if err != nil {
			t.Fatal(err)
		}
		lease, err := m.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Set(t.Context(), lease.Path(), []byte(test.data), -1); err != nil {
			t.Fatal(err)
		}
		for range 2 { // once more changes nothing
			if p := zkrtest.Start(t, e.Args("revoke", path)...); p.Wait(t) != 0 {
				t.Errorf("revoke: %s", p.Text())
			}
			if data, _, err := client.Get(t.Context(), lease.Path()); err != nil || string(data) != test.want {
				t.Errorf("%q became %q, want %q; %v", test.data, data, test.want, err)
			}
		}
		p := zkrtest.Start(t, e.Args("inspect", path)...)
		if p.Wait(t); !strings.Contains(p.Text(), "  "+test.shown+"  ") {
			t.Errorf("it printed %q, want %q", p.Text(), test.shown)
		}
		p = zkrtest.Start(t, e.Args("inspect", "--json", path)...)
		if p.Wait(t); !strings.Contains(p.Text(), `"asked_to_release":true`) {
			t.Errorf("it printed %q", p.Text())
		}
		select {
		case <-lease.Revoked():
		case <-time.After(zkrtest.Patience):
			t.Errorf("%q: the holder does not hear of it", test.want)
		}
	}
}

// TestRevokeNobody: with nobody to ask the exit code is 1, and the text says
// why.
func TestRevokeNobody(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	if _, err := client.Create(t.Context(), "/empty", nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), "/strange", nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), "/strange/child", []byte("precious"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), "/strange/job-lock-0000000001", []byte("precious"), 0); err != nil {
		t.Fatal(err)
	}
	held := zkrtest.Start(t, e.Args("lock", "/nobody")...)
	held.Prints(t, "\n")
	for _, test := range []struct {
		args []string
		says string
		want int
	}{
		{e.Args("revoke", "/absent"), "/absent: does not exist, so there is nobody to ask", cli.ExitFailed},
		{e.Args("revoke", "/empty"), "/empty: no holder recognized, so there is nobody to ask", cli.ExitFailed},
		{e.Args("revoke", "--all", "/strange"), "/strange: ", cli.ExitFailed}, // one has a contender's name, but belongs to no session
		{e.Args("revoke", "--session", "0x17", "/nobody"), "/nobody: session 0x17 neither holds nor waits", cli.ExitFailed},
		{e.Args("revoke", "--session", "mine", "/nobody"), "--session mine", cli.ExitUsage},
		{e.Args("revoke", "--session", "0x17", "--all", "/nobody"), "cannot be combined", cli.ExitUsage},
		{e.Args("revoke", "--wait", "0s", "/nobody"), "--wait", cli.ExitUsage},
		{e.Args("revoke"), "one PATH", cli.ExitUsage},
	} {
		p := zkrtest.Start(t, test.args...)
		if code := p.Wait(t); code != test.want || !strings.Contains(p.Text(), test.says) {
			t.Errorf("%q: exit code %d, want %d; it printed %q, want %q", test.args, code, test.want, p.Text(), test.says)
		}
	}
	for _, child := range []string{"/strange/child", "/strange/job-lock-0000000001"} {
		if data, _, err := client.Get(t.Context(), child); err != nil || string(data) != "precious" {
			t.Errorf("%s, which is no contender, has %q, %v", child, data, err)
		}
	}
}

// TestRevokeOfOneWhoLeaves: a holder that leaves before it is asked is nobody
// to ask.
func TestRevokeOfOneWhoLeaves(t *testing.T) {
	t.Parallel()
	e := testutil.Start(t)
	client := zkrtest.Dial(t, e)
	if _, err := client.Create(t.Context(), "/leaves", nil, 0); err != nil {
		t.Fatal(err)
	}
	holder, err := client.Create(t.Context(), "/leaves/_c_0-lock-", nil, zk.FlagEphemeral|zk.FlagSequence)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Control(func(r testutil.Request) testutil.Action {
		if r.Op == testutil.OpSetData {
			return testutil.Fail(testutil.CodeNoNode)
		}
		return testutil.Pass()
	}))
	if code, text := zkrtest.Zkr(e, "revoke", "/leaves"); code != cli.ExitFailed || text != "zkr: /leaves: those to ask have left meanwhile\n" {
		t.Errorf("exit code %d; it printed %q (%s)", code, text, holder)
	}
}
