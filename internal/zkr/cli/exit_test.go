//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	// Who comes with another layout joins /locked before it sees that, and is
	// seen there by others, who refuse the path, too.
	holder := zkrtest.Start(t, e.Args("lock", "/held", "/locked", "--", "sh", "-c", "echo ready; exec sleep 1000")...)
	holder.Prints(t, "ready\n")
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("\x7fELF but not really"), 0o700); err != nil {
		t.Fatal(err)
	}
	nobody := zkrtest.Target{Servers: "127.0.0.1:1"}
	for _, test := range []struct {
		name string
		args []string
		want int
		says string
	}{
		{"the command succeeds", e.Args("lock", "/free", "--", "true"), 0, ""},
		{"Kazoo's layout", e.Args("lock", "--layout", "kazoo", "/free-for-kazoo", "--", "true"), 0, ""},
		{"the command fails", e.Args("lock", "/free", "--", "sh", "-c", "exit 7"), 7, ""},
		{"the command fails with one of zkr's own codes", e.Args("lock", "/free", "--", "sh", "-c", "exit 111"), 111, ""},
		{"the command is killed by a signal", e.Args("lock", "/free", "--", "sh", "-c", "kill -TERM $$"), 143, ""},
		{"the command kills itself the hard way", e.Args("lock", "/free", "--", "sh", "-c", "kill -KILL $$"), 137, ""},
		{"the command's own flags stay its own", e.Args("lock", "/free", "--", "sh", "-c", `test "$1" = --wait`, "sh", "--wait"), 0, ""},
		{"not found", e.Args("lock", "/free", "--", "no-such-command"), 127, "no-such-command"},
		{"not found by its path", e.Args("lock", "/free", "--", "/no/such/command"), 127, "/no/such/command"},
		{"not executable", e.Args("lock", "/free", "--", plain), 126, plain},
		{"no program", e.Args("lock", "/free", "--", broken), 126, broken},
		{"not found, before connecting", nobody.Args("lock", "/free", "--", "no-such-command"), 127, "no-such-command"},

		{"busy", e.Args("lock", "--try", "/held", "--", "true"), 111, "busy"},
		{"not in time", e.Args("lock", "--wait", "2s", "/held", "--", "true"), 111, "timed out after 2s"},
		{"in time", e.Args("lock", "--wait", "20s", "/free", "--", "true"), 0, ""},
		{"free", e.Args("lock", "--try", "/free/for/us/alone", "--", "true"), 0, ""},
		{"no ensemble", nobody.Args("lock", "--connect-timeout", "200ms", "/free", "--", "true"), 113, "127.0.0.1:1"},
		{"no ensemble to inspect", nobody.Args("inspect", "--connect-timeout", "200ms", "/free"), 113, "127.0.0.1:1"},

		{"one term whose command succeeds", e.Args("elect", "--once", "/office", "--", "true"), 0, ""},
		{"one term whose command fails", e.Args("elect", "--once", "--layout", "selector", "/office/too", "--", "sh", "-c", "exit 7"), 7, ""},
		{"a term with a command that cannot run", e.Args("elect", "/office/for/none", "--", broken), 126, broken},
		{"a candidate whose command is not found", nobody.Args("elect", "/office", "--", "no-such-command"), 127, "no-such-command"},
		{"an election on a path of another recipe", e.Args("elect", "--once", "/locked", "--", "true"), 1, "layout"},
		{"no ensemble to elect", nobody.Args("elect", "--connect-timeout", "200ms", "/free", "--", "true"), 113, "127.0.0.1:1"},
		{"an unknown layout", e.Args("elect", "--layout", "curator", "/office", "--", "true"), 2, "latch, selector, kazoo"},
		{"no longest term", e.Args("elect", "--max-term", "0s", "/office", "--", "true"), 2, "--max-term"},
		{"an election without a command", e.Args("elect", "/office"), 2, "PATH -- CMD"},

		{"a reader", e.Args("read", "/rw", "--", "sh", "-c", "exit 7"), 7, ""},
		{"a writer", e.Args("write", "/rw/too", "--", "sh", "-c", "exit 8"), 8, ""},
		{"a reader of another layout", e.Args("read", "/locked", "--", "true"), 1, "layout"},
		{"a layout that a lock does not have", e.Args("lock", "--layout", "plain", "/held", "--", "true"), 2, "curator, kazoo"},
		{"a layout of the wrong recipe", e.Args("write", "--layout", "latch", "/rw", "--", "true"), 2, "plain, curator, kazoo"},

		{"a permit", e.Args("semaphore", "--max", "2", "/permits", "--", "sh", "-c", "exit 9"), 9, ""},
		{"no limit", e.Args("semaphore", "/permits", "--", "true"), 2, "--max"},
		{"a limit of 0", e.Args("semaphore", "--max", "0", "/permits", "--", "true"), 2, "--max 0"},
		{"more permits than there are", e.Args("semaphore", "--max", "2", "--permits", "3", "/permits", "--", "true"), 2, "from 1 to 2"},
		{"no permits", e.Args("semaphore", "--max", "2", "--permits", "0", "/permits", "--", "true"), 2, "from 1 to 2"},

		{"no path", e.Args("lock"), 2, "PATH"},
		{"no path before the dashes", e.Args("lock", "--", "true"), 2, "PATH"},
		{"no command for an election", e.Args("elect", "/free"), 2, "PATH -- CMD"},
		{"no command after the dashes", e.Args("lock", "/free", "--"), 2, "no command"},
		{"no dashes", e.Args("lock", "/free", "true"), 2, "PATH -- CMD"},
		{"no dashes before a program", e.Args("lock", "/free", zkrtest.Self(t)), 2, "PATH -- CMD"},
		{"two paths", e.Args("lock", "/free/two", "/other/two", "--", "true"), 0, ""},
		{"the same path twice", e.Args("lock", "/free/same", "/free/same", "--", "true"), 2, "more than once"},
		{"two paths of a semaphore", e.Args("semaphore", "--max", "2", "/permits/a", "/permits/b", "--", "true"), 2, "one PATH"},
		{"--json with a command", e.Args("lock", "--json", "/free", "--", "true"), 2, "--json"},
		{"--until-eof with a command", e.Args("lock", "--until-eof", "/free", "--", "true"), 2, "--until-eof"},
		{"two elections", e.Args("elect", "/free", "/other", "--", "true"), 2, "one PATH"},
		{"a relative path", e.Args("lock", "free", "--", "true"), 2, `"free"`},
		{"an unknown flag", e.Args("lock", "--never", "/free", "--", "true"), 2, "--never"},
		{"an unknown subcommand", e.Args("luck", "/free"), 2, "luck"},
		{"both --wait and --try", e.Args("lock", "--wait", "1s", "--try", "/free", "--", "true"), 2, "cannot be combined"},
		{"no time to wait", e.Args("lock", "--wait", "0s", "/free", "--", "true"), 2, "--wait"},
		{"a grace too long for the session", e.Args("lock", "--grace", "4s", "/free", "--", "true"), 2, "at most 3.333s"},
		{"a grace too long for the session that the server grants", e.Args("lock", "--session-timeout", "1m", "--grace", "4s", "/free", "--", "true"), 2, "at most 3.333s"},
		{"a negative grace", e.Args("lock", "--grace", "-1s", "/free", "--", "true"), 2, "--grace"},
		{"no session", e.Args("lock", "--session-timeout", "0s", "/free", "--", "true"), 2, "--session-timeout"},
		{"no server in the list", []string{"lock", "--servers", ",", "/free", "--", "true"}, 2, "server"},
		{"half a certificate", e.Args("lock", "--tls-cert", "x", "/free", "--", "true"), 2, "--tls-key"},
		{"credentials without a scheme", e.Args("lock", "--auth", "secret", "/free", "--", "true"), 2, "--auth"},
		{"two paths to inspect", e.Args("inspect", "/free", "/held"), 2, "one PATH"},
		{"a server with an argument", []string{"server", "x"}, 2, "x"},
		{"a server without members", []string{"server", "--members", "0"}, 2, "--members"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := zkrtest.Start(t, test.args...)
			if got := p.Wait(t); got != test.want {
				t.Errorf("exit code %d, want %d", got, test.want)
			}
			if text := p.Text(); !strings.Contains(text, test.says) || test.says == "" && text != "" {
				t.Errorf("it printed %q, want %q in it", text, test.says)
			}
			if strings.Contains(p.Text(), "secret") {
				t.Errorf("it printed the credentials: %q", p.Text())
			}
		})
	}
}

// TestCommandGetsStdin also tests the default for --servers from the
// environment.
func TestCommandGetsStdin(t *testing.T) {
	t.Setenv("ZKR_SERVERS", zkrtest.StartServer(t).Servers)
	p := zkrtest.StartWith(t, "from stdin", "lock", "/stdin", "--", "cat")
	if code := p.Wait(t); code != 0 || p.Text() != "from stdin" {
		t.Errorf("exit code %d; it printed %q", code, p.Text())
	}
}
