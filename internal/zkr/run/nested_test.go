//go:build unix

package run

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// TestNestedOnTheSamePath: a zkr does not wait for a lock that a zkr holds
// which runs it, however far above: it is refused at once. What does not wait,
// or waits for another lock, goes on.
func TestNestedOnTheSamePath(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	other := zkrtest.StartServer(t)
	zkr := func(servers, verb, path string, more ...string) []string {
		return append([]string{"env", "ZKR_TEST_ROLE=zkr", zkrtest.Self(t), verb, "--servers", servers, path}, more...)
	}
	for _, test := range []struct {
		verb    string
		command []string
		want    int
	}{
		{"lock", zkr(e.Servers, "lock", "/nested"), cli.ExitUsage},
		{"lock", zkr(e.Servers, "lock", "/nested", "--wait", "1h", "--", "true"), cli.ExitUsage},
		{"lock", zkr(e.Servers, "lock", "/nested/other", "/nested", "--", "true"), cli.ExitUsage},
		{"lock", zkr(e.Servers, "elect", "--layout", "selector", "/nested", "--", "true"), cli.ExitUsage},
		{"lock", append(append(zkr(e.Servers, "lock", "/nested/2"), "--"), zkr(e.Servers+"/nested", "lock", "/2", "--", "true")...), cli.ExitUsage},
		{"lock", zkr("nobody.invalid:1, "+e.Servers, "lock", "/nested"), cli.ExitUsage},
		{"lock", append(append(zkr(e.Servers, "lock", "/nested/2"), "--"), zkr(e.Servers, "write", "/nested")...), cli.ExitUsage},
		{"write", zkr(e.Servers, "read", "/nested"), cli.ExitUsage},
		{"read", zkr(e.Servers, "read", "/nested"), cli.ExitUsage}, // a writer may wait between the two
		{"elect", zkr(e.Servers, "elect", "/nested", "--", "true"), cli.ExitUsage},
		{"join", zkr(e.Servers, "join", "/nested", "--id", "a"), cli.ExitUsage},
		{"join", append(append(zkr(e.Servers, "lock", "/nested/2"), "--"), zkr(e.Servers+"/nested", "join", "/", "--id", "a")...), cli.ExitUsage},
		{"join", zkr(e.Servers, "join", "/nested", "--id", "b", "--", "true"), 0},
		{"lock", zkr(e.Servers, "lock", "--try", "/nested"), cli.ExitNotAcquired},
		{"lock", zkr(e.Servers, "lock", "/nested/2", "--", "true"), 0},
		{"lock", zkr(other.Servers, "lock", "/nested", "--", "true"), 0},
		{"lock", zkr(other.Servers+"/nested", "lock", "/nested", "--", "true"), 0},
		{"semaphore", zkr(e.Servers, "semaphore", "--max", "2", "/nested", "--", "true"), 0},
	} {
		for _, file := range []string{"/nested", "/nested/2"} {
			_ = e.Client(t).Delete(t.Context(), file, -1) // it may not exist
		}
		flags := map[string][]string{"semaphore": {"--max", "2"}, "elect": {"--once"}, "join": {"--id", "a"}}[test.verb]
		p := zkrtest.Start(t, e.Args(test.verb, append(append(flags, "/nested", "--"), test.command...)...)...)
		if code := p.Wait(t); code != test.want {
			t.Errorf("in %s, %q: exit code %d, want %d; it printed %q", test.verb, test.command[3:], code, test.want, p.Text())
		} else if code == cli.ExitUsage && (!strings.Contains(p.Text(), ": a zkr that runs this command holds it (session 0x") || strings.Count(p.Text(), "usage:") != 1) {
			t.Errorf("in %s, %q: it printed %q", test.verb, test.command[3:], p.Text())
		}
	}
}

// TestDaemonOutlivesItsLock: what was started under zkr lock can use the lock
// after that one has ended, although its environment still names it.
func TestDaemonOutlivesItsLock(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	for verb, flags := range map[string][]string{"lock": nil, "write": nil, "elect": {"--once"}, "join": {"--id", "a"}} {
		path, held := "/daemon/"+verb, filepath.Join(t.TempDir(), "held")
		args := e.Args(verb, append(flags, path, "--", "sh", "-c", `printf %s "$ZKR_HELD" > "$0"`, held)...)
		if first := zkrtest.Start(t, args...); first.Wait(t) != 0 {
			t.Fatalf("%s: exit code %d; it printed %q", verb, first.Code, first.Text())
		}
		if text := strings.Join(zkrtest.Contents(t, held), ""); !strings.Contains(text, path) {
			t.Fatalf("%s: ZKR_HELD is %q", verb, text)
		}
		again := zkrtest.StartChanged(t, func(cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, heldVariable+"="+strings.Join(zkrtest.Contents(t, held), "\n"))
		}, args...)
		if again.Wait(t) != 0 {
			t.Errorf("%s: exit code %d; it printed %q", verb, again.Code, again.Text())
		}
	}
}

// TestNestedNamesItsParent: the data of a znode ends with the session of the
// zkr that runs this one and holds a lock of the same ensemble, and of no
// other.
func TestNestedNamesItsParent(t *testing.T) {
	t.Parallel()
	e, other := zkrtest.StartServer(t), zkrtest.StartServer(t)
	client := e.Client(t)
	session := func(path string) string {
		_, stat, err := client.Get(t.Context(), zkrtest.FirstInLine(t, client, path))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("0x%x", uint64(stat.EphemeralOwner))
	}
	gate := filepath.Join(t.TempDir(), "gate")
	end := []string{"--", "sh", "-c", `echo ready; until [ -e "$0" ]; do sleep 0.01; done`, gate}
	nest := func(servers, verb, path string) []string {
		return []string{"--", "env", "ZKR_TEST_ROLE=zkr", zkrtest.Self(t), verb, "--servers", servers, path}
	}
	command := append(nest(other.Servers, "lock", "/elsewhere"), nest(e.Servers, "join", "/members")...) // a member is no parent
	command = append(append(append(command, "--id", "a"), nest(e.Servers, "read", "/a/2")...), nest(e.Servers, "elect", "/a/3")...)
	p := zkrtest.Start(t, e.Args("lock", append(append([]string{"/a/1"}, command...), end...)...)...)
	p.Prints(t, "ready\n")
	for path, want := range map[string]string{"/a/1": `: env$`, "/a/2": `: env parent=` + session("/a/1") + `$`, "/a/3": `: sh parent=` + session("/a/2") + `$`} {
		data, _, err := client.Get(t.Context(), zkrtest.FirstInLine(t, client, path))
		if err != nil || !regexp.MustCompile(want).Match(data) {
			t.Errorf("%s: the data is %q, want %q; %v", path, data, want, err)
		}
	}
	if data, _, err := other.Client(t).Get(t.Context(), "/elsewhere/"+zkrtest.Line(t, other.Client(t), "/elsewhere")[0]); err != nil || strings.Contains(string(data), "parent") {
		t.Errorf("the data in another ensemble is %q; %v", data, err)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestNestedCrosswise: two shells that take two locks one inside the other, in
// different orders, wait for each other, and zkr deadlocks finds that, also
// after all of them were asked to release.
func TestNestedCrosswise(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	gate := filepath.Join(t.TempDir(), "gate")
	for _, paths := range [][2]string{{"/cross/a", "/cross/b"}, {"/cross/b", "/cross/a"}} {
		script := `until [ -e "$0" ]; do sleep 0.01; done; exec "$@"`
		p := zkrtest.Start(t, e.Args("lock", paths[0], "--", "sh", "-c", script, gate, "env", "ZKR_TEST_ROLE=zkr", zkrtest.Self(t), "lock", "--servers", e.Servers, paths[1], "--", "true")...)
		t.Cleanup(func() { p.Signal(t, syscall.SIGTERM) }) // it ends both
		e.InLine(t, client, paths[0], 1)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/cross/a", "/cross/b"} {
		e.InLine(t, client, path, 2)
	}
	for _, asked := range []bool{false, true} {
		for _, path := range []string{"/cross/a", "/cross/b"} {
			if asked && zkrtest.Start(t, e.Args("revoke", "--all", path)...).Wait(t) != 0 {
				t.Fatalf("%s: nobody was asked", path)
			}
		}
		p := zkrtest.Start(t, e.Args("deadlocks", "--pause", "10ms", "/cross")...)
		if code := p.Wait(t); code != cli.ExitDeadlock || !strings.Contains(p.Text(), "/cross/a") || !strings.Contains(p.Text(), "/cross/b") {
			t.Errorf("asked to release %v: exit code %d; it printed %q", asked, code, p.Text())
		}
	}
}

// TestACLOfLocks: --acl is the ACL of all znodes that zkr creates, and without
// it credentials are warned once that they protect nothing.
func TestACLOfLocks(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	const warning = "anybody can delete its znodes"
	for verb, more := range map[string][]string{"lock": nil, "read": nil, "write": nil, "semaphore": {"--max", "1"}, "elect": {"--once"}} {
		path := "/protected/" + verb
		run := func(servers string, flags ...string) *zkrtest.Process {
			args := append([]string{verb, "--servers", servers, "--auth", "digest:ops:word"}, flags...)
			return zkrtest.Start(t, append(append(append(args, more...), path), "--", zkrtest.Self(t))...)
		}
		p := run(e.Servers, "--acl", "auth::cdrwa")
		p.Prints(t, "ready\n")
		if strings.Contains(p.Text(), warning) {
			t.Errorf("%s with --acl: it printed %q", verb, p.Text())
		}
		tree := exec.Command(zkrtest.Self(t), "tree", "--servers", e.Servers, path)
		tree.Env = append(os.Environ(), "ZKR_TEST_ROLE=zkr")
		if out, err := tree.CombinedOutput(); err == nil || !strings.Contains(string(out), "not allowed by the ACL") {
			t.Errorf("%s: without credentials: %v: %s", verb, err, out)
		}
		p.Signal(t, syscall.SIGTERM)
		p.Wait(t)
		// The directory is still there and is closed, so that nobody else can
		// delete what is in it, except that of a semaphore.
		p = run(e.Servers)
		p.Prints(t, "ready\n")
		if strings.Contains(p.Text(), warning) {
			t.Errorf("%s in a closed directory: it printed %q", verb, p.Text())
		}
		path = "/open/" + verb
		p = run(e.Servers)
		p.Prints(t, "ready\n")
		if strings.Count(p.Text(), "zkr: "+path+": "+warning) != 1 {
			t.Errorf("%s without --acl: it printed %q", verb, p.Text())
		}
	}
	if p := zkrtest.Start(t, e.Args("lock", "/open/lock/2", "--", "true")...); p.Wait(t) != 0 || p.Text() != "" {
		t.Errorf("without credentials: it printed %q", p.Text())
	}
}
