//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	holder := start(t, e.args("lock", "/held", "--", "sh", "-c", "echo ready; exec sleep 1000")...)
	holder.prints(t, "ready\n")
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("\x7fELF but not really"), 0o700); err != nil {
		t.Fatal(err)
	}
	nobody := target{servers: "127.0.0.1:1"}
	for _, test := range []struct {
		name string
		args []string
		want int
		says string
	}{
		{"the command succeeds", e.args("lock", "/free", "--", "true"), 0, ""},
		{"Kazoo's layout", e.args("lock", "--layout", "kazoo", "/free-for-kazoo", "--", "true"), 0, ""},
		{"the command fails", e.args("lock", "/free", "--", "sh", "-c", "exit 7"), 7, ""},
		{"the command fails with one of zkr's own codes", e.args("lock", "/free", "--", "sh", "-c", "exit 111"), 111, ""},
		{"the command is killed by a signal", e.args("lock", "/free", "--", "sh", "-c", "kill -TERM $$"), 143, ""},
		{"the command kills itself the hard way", e.args("lock", "/free", "--", "sh", "-c", "kill -KILL $$"), 137, ""},
		{"the command's own flags stay its own", e.args("lock", "/free", "--", "sh", "-c", `test "$1" = --wait`, "sh", "--wait"), 0, ""},
		{"not found", e.args("lock", "/free", "--", "no-such-command"), 127, "no-such-command"},
		{"not found by its path", e.args("lock", "/free", "--", "/no/such/command"), 127, "/no/such/command"},
		{"not executable", e.args("lock", "/free", "--", plain), 126, plain},
		{"no program", e.args("lock", "/free", "--", broken), 126, broken},
		{"not found, before connecting", nobody.args("lock", "/free", "--", "no-such-command"), 127, "no-such-command"},

		{"busy", e.args("lock", "--try", "/held", "--", "true"), 111, "busy"},
		{"not in time", e.args("lock", "--wait", "100ms", "/held", "--", "true"), 111, "timed out after 100ms"},
		{"in time", e.args("lock", "--wait", "20s", "/free", "--", "true"), 0, ""},
		{"free", e.args("lock", "--try", "/free/for/us/alone", "--", "true"), 0, ""},
		{"no ensemble", nobody.args("lock", "--connect-timeout", "200ms", "/free", "--", "true"), 113, "127.0.0.1:1"},
		{"no ensemble to inspect", nobody.args("inspect", "--connect-timeout", "200ms", "/free"), 113, "127.0.0.1:1"},

		{"one term whose command succeeds", e.args("elect", "--once", "/office", "--", "true"), 0, ""},
		{"one term whose command fails", e.args("elect", "--once", "--layout", "selector", "/office/too", "--", "sh", "-c", "exit 7"), 7, ""},
		{"a term with a command that cannot run", e.args("elect", "/office/for/none", "--", broken), 126, broken},
		{"a candidate whose command is not found", nobody.args("elect", "/office", "--", "no-such-command"), 127, "no-such-command"},
		{"an election on a path of another recipe", e.args("elect", "--once", "/held", "--", "true"), 1, "layout"},
		{"no ensemble to elect", nobody.args("elect", "--connect-timeout", "200ms", "/free", "--", "true"), 113, "127.0.0.1:1"},
		{"an unknown layout", e.args("elect", "--layout", "curator", "/office", "--", "true"), 2, "latch, selector, kazoo"},
		{"no longest term", e.args("elect", "--max-term", "0s", "/office", "--", "true"), 2, "--max-term"},
		{"an election without a command", e.args("elect", "/office"), 2, "PATH -- CMD"},

		{"a reader", e.args("read", "/rw", "--", "sh", "-c", "exit 7"), 7, ""},
		{"a writer", e.args("write", "/rw/too", "--", "sh", "-c", "exit 8"), 8, ""},
		{"a reader of another layout", e.args("read", "/held", "--", "true"), 1, "layout"},
		{"a layout that a lock does not have", e.args("lock", "--layout", "plain", "/held", "--", "true"), 2, "curator, kazoo"},
		{"a layout of the wrong recipe", e.args("write", "--layout", "latch", "/rw", "--", "true"), 2, "plain, curator, kazoo"},

		{"a permit", e.args("semaphore", "--max", "2", "/permits", "--", "sh", "-c", "exit 9"), 9, ""},
		{"no limit", e.args("semaphore", "/permits", "--", "true"), 2, "--max"},
		{"a limit of 0", e.args("semaphore", "--max", "0", "/permits", "--", "true"), 2, "--max 0"},
		{"more permits than there are", e.args("semaphore", "--max", "2", "--permits", "3", "/permits", "--", "true"), 2, "from 1 to 2"},
		{"no permits", e.args("semaphore", "--max", "2", "--permits", "0", "/permits", "--", "true"), 2, "from 1 to 2"},

		{"no path", e.args("lock"), 2, "PATH"},
		{"no path before the dashes", e.args("lock", "--", "true"), 2, "PATH"},
		{"no command for an election", e.args("elect", "/free"), 2, "PATH -- CMD"},
		{"no command after the dashes", e.args("lock", "/free", "--"), 2, "no command"},
		{"no dashes", e.args("lock", "/free", "true"), 2, "PATH -- CMD"},
		{"no dashes before a program", e.args("lock", "/free", self(t)), 2, "PATH -- CMD"},
		{"two paths", e.args("lock", "/free/two", "/other/two", "--", "true"), 0, ""},
		{"the same path twice", e.args("lock", "/free/same", "/free/same", "--", "true"), 2, "more than once"},
		{"two paths of a semaphore", e.args("semaphore", "--max", "2", "/permits/a", "/permits/b", "--", "true"), 2, "one PATH"},
		{"--json with a command", e.args("lock", "--json", "/free", "--", "true"), 2, "--json"},
		{"--until-eof with a command", e.args("lock", "--until-eof", "/free", "--", "true"), 2, "--until-eof"},
		{"two elections", e.args("elect", "/free", "/other", "--", "true"), 2, "one PATH"},
		{"a relative path", e.args("lock", "free", "--", "true"), 2, `"free"`},
		{"an unknown flag", e.args("lock", "--never", "/free", "--", "true"), 2, "--never"},
		{"an unknown subcommand", e.args("luck", "/free"), 2, "luck"},
		{"both --wait and --try", e.args("lock", "--wait", "1s", "--try", "/free", "--", "true"), 2, "cannot be combined"},
		{"no time to wait", e.args("lock", "--wait", "0s", "/free", "--", "true"), 2, "--wait"},
		{"a grace too long for the session", e.args("lock", "--grace", "4s", "/free", "--", "true"), 2, "at most 3.333s"},
		{"a grace too long for the session that the server grants", e.args("lock", "--session-timeout", "1m", "--grace", "4s", "/free", "--", "true"), 2, "at most 3.333s"},
		{"a negative grace", e.args("lock", "--grace", "-1s", "/free", "--", "true"), 2, "--grace"},
		{"no session", e.args("lock", "--session-timeout", "0s", "/free", "--", "true"), 2, "--session-timeout"},
		{"no server in the list", []string{"lock", "--servers", ",", "/free", "--", "true"}, 2, "server"},
		{"half a certificate", e.args("lock", "--tls-cert", "x", "/free", "--", "true"), 2, "--tls-key"},
		{"credentials without a scheme", e.args("lock", "--auth", "secret", "/free", "--", "true"), 2, "--auth"},
		{"two paths to inspect", e.args("inspect", "/free", "/held"), 2, "one PATH"},
		{"a server with an argument", []string{"server", "x"}, 2, "x"},
		{"a server without members", []string{"server", "--members", "0"}, 2, "--members"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, test.args...)
			if got := p.wait(t); got != test.want {
				t.Errorf("exit code %d, want %d", got, test.want)
			}
			if text := p.text(); !strings.Contains(text, test.says) || test.says == "" && text != "" {
				t.Errorf("it printed %q, want %q in it", text, test.says)
			}
			if strings.Contains(p.text(), "secret") {
				t.Errorf("it printed the credentials: %q", p.text())
			}
		})
	}
}

// TestCommandGetsStdin also tests the default for --servers from the
// environment.
func TestCommandGetsStdin(t *testing.T) {
	t.Setenv("ZKR_SERVERS", startServer(t).servers)
	p := startWith(t, "from stdin", "lock", "/stdin", "--", "cat")
	if code := p.wait(t); code != 0 || p.text() != "from stdin" {
		t.Errorf("exit code %d; it printed %q", code, p.text())
	}
}
