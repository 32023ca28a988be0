//go:build unix

package run

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// membersAre waits until a group has these members.
func membersAre(t *testing.T, c *framework.Client, group, want string) {
	t.Helper()
	g, err := presence.NewGroup(c, group)
	if err != nil {
		t.Fatal(err)
	}
	bubble.AwaitTrue(t, "the members are "+want, func() bool {
		all, err := g.Members(t.Context())
		var ids []string
		for _, m := range all {
			ids = append(ids, m.ID)
		}
		return err == nil && strings.Join(ids, " ") == want
	})
}

// TestJoin: a member is there while its command runs, also after somebody has
// deleted its znode, and leaves before the command hears of SIGTERM.
func TestJoin(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		client := e.Client(t)
		var all []*zkrtest.Process
		for _, id := range []string{"a", "b"} {
			p := zkrtest.Start(t, e.Args("join", "/join", "--id", id, "--data", "at "+id, "--", zkrtest.Self(t))...)
			p.Prints(t, "ready\n")
			all = append(all, p)
		}
		membersAre(t, client, "/join", "a b")
		waits := zkrtest.Start(t, e.Args("join", "/join", "--id", "a", "--wait", "1s", "--", "false")...)
		if code := waits.Wait(t); code != cli.ExitNotAcquired || !strings.Contains(waits.Text(), "/join/a: ") {
			t.Errorf("a name that is taken: exit code %d; it printed %q", code, waits.Text())
		}
		for range 3 { // the first time is at once
			if err := client.Delete(t.Context(), "/join/a", -1); err != nil {
				t.Fatal(err)
			}
			membersAre(t, client, "/join", "a b")
		}
		all[0].Signal(t, syscall.SIGHUP)
		all[0].Prints(t, "heard hangup\n")
		membersAre(t, client, "/join", "a b")
		all[0].Signal(t, syscall.SIGTERM)
		all[0].Prints(t, "stopping\n")
		if code := all[0].Wait(t); code != 3 {
			t.Errorf("exit code %d, want the command's own 3", code)
		}
		membersAre(t, client, "/join", "b")
		all[1].Signal(t, syscall.SIGKILL)
		membersAre(t, client, "/join", "")
	})
}

// TestJoinLeavesFirst: when the command hears of SIGTERM its znode is gone.
func TestJoinLeavesFirst(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	look := []string{"env", "ZKR_TEST_ROLE=zkr", zkrtest.Self(t), "ls", "--servers", e.Servers, "/leaves"}
	script := `trap '"$@"; echo "those are left"; exit 4' TERM; "$@"; echo ready; while :; do sleep 0.01; done`
	p := zkrtest.Start(t, e.Args("join", append([]string{"/leaves", "--id", "a", "--", "sh", "-c", script, "sh"}, look...)...)...)
	p.Prints(t, "a\nready\n")
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t); code != 4 || !strings.HasSuffix(p.Text(), "those are left\n") || strings.Count("\n"+p.Text(), "\na\n") != 1 {
		t.Errorf("exit code %d; it printed %q", code, p.Text())
	}
}

// TestJoinUnread: nobody reads what zkr prints, on a full pipe. It makes its
// znode again and ends its command all the same.
func TestJoinUnread(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	_, full := pipe(t)
	fill(t, full)
	impatient := func(cmd *exec.Cmd) {
		cmd.Stderr, cmd.Env = full, append(cmd.Env, zkrtest.ImpatientVariable+"=1")
	}
	holder := zkrtest.Start(t, e.Args("join", "/unread", "--id", "a")...)
	holder.Prints(t, "/unread/a\n")
	p := zkrtest.StartChanged(t, impatient, e.Args("join", "/unread", "--id", "a", "--", zkrtest.Self(t))...)
	time.Sleep(2 * time.Second) // it says whom it waits for
	holder.Signal(t, syscall.SIGINT)
	if code := holder.Wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p.Prints(t, "ready\n")
	if err := client.Delete(t.Context(), "/unread/a", -1); err != nil {
		t.Fatal(err)
	}
	membersAre(t, client, "/unread", "a")
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	unread := zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Stdout = full }, e.Args("join", "/unread", "--id", "b", "--json")...)
	membersAre(t, client, "/unread", "b")
	unread.Signal(t, syscall.SIGTERM)
	if code := unread.Wait(t); code != 143 { // nobody knows that it has stood
		t.Errorf("exit code %d, want 143", code)
	}
	membersAre(t, client, "/unread", "")
}

// TestJoinUsage: what is wrong is said before anything is done.
func TestJoinUsage(t *testing.T) {
	t.Parallel()
	nobody := zkrtest.Target{Servers: "127.0.0.1:1"}
	for want, args := range map[string][]string{
		"want one GROUP, got 0":            {"--id", "a"},
		"want one GROUP, got 2":            {"/g", "/h", "--id", "a"},
		`--id "": want a name`:             {"/g"},
		`--id "a/b": want a name`:          {"/g", "--id", "a/b"},
		`path "g"`:                         {"g", "--id", "a"},
		"/g/..":                            {"/g", "--id", ".."},
		"--wait 0s: must be more than 0":   {"/g", "--id", "a", "--wait", "0"},
		"no command after --":              {"/g", "--id", "a", "--"},
		"--json: only without a command":   {"/g", "--id", "a", "--json", "--", "true"},
		"/zookeeper is for the servers":    {"/zookeeper", "--id", "a"},
		"want one of: member, protected":   {"/g", "--id", "a", "--layout", "kazoo"},
		"--data: with --layout party the ": {"/g", "--id", "a", "--layout", "party", "--data", "x"},
		"unknown flag: --grace":            {"/g", "--id", "a", "--grace", "1s"},
		"--session-timeout -1s: must be m": {"/g", "--id", "a", "--session-timeout", "-1s"},
	} {
		p := zkrtest.Start(t, nobody.Args("join", args...)...)
		if code := p.Wait(t); code != cli.ExitUsage || !strings.Contains(p.Text(), want) {
			t.Errorf("%q: exit code %d; it printed %q, want %q", args, code, p.Text(), want)
		}
	}
	p := zkrtest.Start(t, nobody.Args("join", "/g", "--id", "a", "--", "no-such-command")...)
	if code := p.Wait(t); code != cli.ExitNotFound {
		t.Errorf("exit code %d, want %d", code, cli.ExitNotFound)
	}
}
