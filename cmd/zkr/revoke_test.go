//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestRevoke: the holder is asked. A command under --revocable gets SIGTERM, and
// the lock is held until it has ended; another one goes on.
func TestRevoke(t *testing.T) {
	parallel(t)
	onEach(t, func(t *testing.T, e target) {
		client := e.client(t)
		for i, args := range [][]string{
			e.args("lock"), e.args("read"), e.args("write", "--layout", "curator"), e.args("semaphore", "--max", "1"),
		} {
			path := fmt.Sprintf("/revoke/%d", i)
			deaf := start(t, append(args, path, "--", self(t))...)
			deaf.prints(t, "ready\n")
			late := start(t, e.args("revoke", "--wait", "200ms", path)...)
			if code := late.wait(t); code != exitNotAcquired || !strings.Contains(late.text(), fmt.Sprintf("pid %d: ", deaf.cmd.Process.Pid)) ||
				!strings.Contains(late.text(), "has not left within 200ms (0 of 1 have)") {
				t.Errorf("%s: asked a holder that does not listen: exit code %d; it printed %q", args[0], code, late.text())
			}
			deaf.signal(t, syscall.SIGTERM)
			if code := deaf.wait(t); code != 3 || strings.Contains(deaf.text(), "asks for the release") {
				t.Errorf("%s: exit code %d; it printed %q", args[0], code, deaf.text())
			}

			gate := filepath.Join(t.TempDir(), "gate")
			gated := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, gateVariable+"="+gate) }
			listens := startChanged(t, gated, append(args, "--revocable", path, "--", self(t))...)
			listens.prints(t, "ready\n")
			asks := start(t, e.args("revoke", "--wait", "25s", path)...)
			listens.prints(t, "stopping\n")
			asks.prints(t, "asked ")
			dir := path
			if args[0] == "semaphore" {
				dir += "/leases"
			}
			if n := len(line(t, client, dir)); n != 1 {
				t.Errorf("%s: while the command ends there are %d in line", args[0], n)
			}
			if err := os.WriteFile(gate, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if code := asks.wait(t); code != 0 {
				t.Errorf("%s: revoke: exit code %d; it printed %q", args[0], code, asks.text())
			}
			if code := listens.wait(t); code != 3 || !strings.Contains(listens.text(), path+": another client asks for the release: ") {
				t.Errorf("%s: exit code %d, want the command's own 3; it printed %q", args[0], code, listens.text())
			}
			if left := line(t, client, dir); len(left) != 0 {
				t.Errorf("%s: left in line: %q", args[0], left)
			}
		}
	})
}

// TestRevokeWithoutCommand: zkr prints that the release was asked for, and holds
// until it is told to end: the work that it protects is somewhere else.
func TestRevokeWithoutCommand(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	client := e.client(t)
	for flag, want := range map[string]string{"--json=false": "revoked\n", "--json": "{\"revoked\":true}\n"} {
		holder := start(t, e.args("lock", "--revocable", flag, "/told/b", "/told/a")...)
		holder.prints(t, "\n")
		asks := start(t, e.args("revoke", "/told/a")...) // any of several
		if code := asks.wait(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		holder.prints(t, want)
		e.inLine(t, client, "/told/a", 1)
		holder.signal(t, syscall.SIGTERM)
		if code := holder.wait(t); code != 0 || strings.Count(holder.text(), want) != 1 {
			t.Errorf("exit code %d; it printed %q", code, holder.text())
		}
	}
}

// TestRevokeWhom: holders by default, all who hold or wait with --all, one of
// them with --session. A waiter is told when it is granted the lock.
func TestRevokeWhom(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	client := e.client(t)
	join := func(verb string, place int) *process {
		p := start(t, e.args(verb, "--revocable", "/whom", "--", self(t))...)
		e.inLine(t, client, "/whom", place)
		return p
	}
	readers := []*process{join("read", 1), join("read", 2)}
	for _, p := range readers {
		p.prints(t, "ready\n")
	}
	writer := join("write", 3)
	pid := func(p *process) string { return fmt.Sprintf(" pid %d: ", p.cmd.Process.Pid) }
	revoke := func(args ...string) []contender {
		t.Helper()
		p := start(t, e.args("revoke", append(args, "--json", "/whom")...)...)
		if code := p.wait(t); code != 0 {
			t.Fatalf("revoke %q: exit code %d; it printed %q", args, code, p.text())
		}
		var asked []contender
		for text := range strings.Lines(p.text()) {
			var one contender
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
		if code := p.wait(t); code != 3 {
			t.Errorf("a reader: exit code %d, want its command's own 3", code)
		}
	}
	writer.prints(t, "ready\n")
	next := join("write", 2)
	if asked := revoke("--all"); len(asked) != 2 || !asked[0].Holds || asked[1].Holds || !strings.Contains(asked[1].Data, pid(next)) {
		t.Errorf("asked %+v", asked)
	}
	for _, p := range []*process{writer, next} {
		if code := p.wait(t); code != 3 && code != 143 || !strings.Contains(p.text(), "asks for the release") { // 143: before the command has begun to handle signals
			t.Errorf("a writer: exit code %d; it printed %q", code, p.text())
		}
	}
	holder := join("write", 1)
	holder.prints(t, "ready\n")
	last := join("write", 2)
	_, stat, err := client.Get(t.Context(), "/whom/"+line(t, client, "/whom")[0])
	if err != nil {
		t.Fatal(err)
	}
	if asked := revoke("--session", fmt.Sprintf("0x%016x", uint64(stat.EphemeralOwner))); len(asked) != 1 || !asked[0].Holds {
		t.Errorf("asked %+v", asked)
	}
	holder.wait(t)
	last.prints(t, "ready\n")
	last.signal(t, syscall.SIGTERM)
	if code := last.wait(t); code != 3 || strings.Contains(last.text(), "asks for the release") {
		t.Errorf("one that was not asked: exit code %d; it printed %q", code, last.text())
	}
}

// TestRevokeNobody: with nobody to ask the exit code is 1, and the text says why.
func TestRevokeNobody(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	client := e.client(t)
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
	held := start(t, e.args("lock", "/nobody")...)
	held.prints(t, "\n")
	for _, test := range []struct {
		args []string
		says string
		want int
	}{
		{e.args("revoke", "/absent"), "/absent: does not exist, so there is nobody to ask", exitFailed},
		{e.args("revoke", "/empty"), "/empty: no holder recognized, so there is nobody to ask", exitFailed},
		{e.args("revoke", "--all", "/strange"), "/strange: ", exitFailed}, // one has a contender's name, but belongs to no session
		{e.args("revoke", "--session", "0x17", "/nobody"), "/nobody: session 0x17 neither holds nor waits", exitFailed},
		{e.args("revoke", "--session", "mine", "/nobody"), "--session mine", exitUsage},
		{e.args("revoke", "--session", "0x17", "--all", "/nobody"), "cannot be combined", exitUsage},
		{e.args("revoke", "--wait", "0s", "/nobody"), "--wait", exitUsage},
		{e.args("revoke"), "one PATH", exitUsage},
	} {
		p := start(t, test.args...)
		if code := p.wait(t); code != test.want || !strings.Contains(p.text(), test.says) {
			t.Errorf("%q: exit code %d, want %d; it printed %q, want %q", test.args, code, test.want, p.text(), test.says)
		}
	}
	for _, child := range []string{"/strange/child", "/strange/job-lock-0000000001"} {
		if data, _, err := client.Get(t.Context(), child); err != nil || string(data) != "precious" {
			t.Errorf("%s, which is no contender, has %q, %v", child, data, err)
		}
	}
}

// TestRevokeOfOneWhoLeaves: a holder that leaves before it is asked is nobody to
// ask.
func TestRevokeOfOneWhoLeaves(t *testing.T) {
	t.Parallel()
	e := testutil.Start(t)
	client := dial(t, e)
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
	if code, text := zkr(e, "revoke", "/leaves"); code != exitFailed || text != "zkr: /leaves: those to ask have left meanwhile\n" {
		t.Errorf("exit code %d; it printed %q (%s)", code, text, holder)
	}
}
