//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestSeveralPaths: processes that take some of the same locks in different
// orders exclude each other, and never wait for each other.
func TestSeveralPaths(t *testing.T) {
	parallel(t)
	onEach(t, func(t *testing.T, e target) {
		dir := t.TempDir()
		want := map[string]int{}
		var commands [][]string
		for _, set := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "a"}, {"c", "a"}, {"b"}, {"b", "c"}} {
			var paths, files []string
			for _, name := range set {
				want[name]++
				paths, files = append(paths, "/several/"+name), append(files, filepath.Join(dir, name))
			}
			script := `for f in "$@"; do n=$(cat "$f"); sleep 0.01; echo $((n+1)) > "$f"; done`
			commands = append(commands, slices.Concat(paths, []string{"--", "sh", "-c", script, "sh"}, files))
		}
		for name := range want {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("0"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var all []*process
		for _, command := range commands {
			all = append(all, start(t, e.args("lock", command...)...))
		}
		for _, p := range all {
			if code := p.wait(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		}
		for name, n := range want {
			if got := contents(t, filepath.Join(dir, name))[0]; got != strconv.Itoa(n) {
				t.Errorf("%d processes counted %s to %s", n, name, got)
			}
		}
	})
}

// TestSeveralPathsAllOrNothing: while one of the locks is taken, none is held
// after --try, --wait or a signal.
func TestSeveralPathsAllOrNothing(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	client := e.client(t)
	holder := start(t, e.args("lock", "/all/m")...)
	holder.prints(t, "\n")
	waiter := func(flags ...string) *process {
		return start(t, append(e.args("lock", flags...), "/all/z", "/all/m", "/all/a", "--", "echo", "granted")...)
	}
	ends := func(p *process, want int) {
		t.Helper()
		if code := p.wait(t); code != want || strings.Contains(p.text(), "granted") {
			t.Errorf("exit code %d, want %d; it printed %q", code, want, p.text())
		}
		for path, n := range map[string]int{"/all/a": 0, "/all/m": 1, "/all/z": 0} {
			if left := line(t, client, path); len(left) != n {
				t.Errorf("in line at %s: %q", path, left)
			}
		}
	}
	ends(waiter("--try"), exitNotAcquired)
	ends(waiter("--wait", "200ms"), exitNotAcquired)
	waits := waiter()
	e.inLine(t, client, "/all/m", 2)
	waits.signal(t, syscall.SIGTERM)
	ends(waits, 143)
	granted := waiter()
	e.inLine(t, client, "/all/m", 2)
	holder.signal(t, syscall.SIGTERM)
	if code := granted.wait(t); code != 0 || granted.text() != "granted\n" {
		t.Errorf("exit code %d; it printed %q", code, granted.text())
	}
}

// TestSeveralPathsLost: the loss of any of the locks ends the command.
func TestSeveralPathsLost(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	client := e.client(t)
	for _, path := range []string{"/any/a", "/any/b"} {
		p := start(t, e.args("lock", append(patientGrace, "--lost-exit-code", "77", "/any/b", "/any/a", "--", self(t))...)...)
		p.prints(t, "ready\n")
		if err := client.Delete(t.Context(), path+"/"+line(t, client, path)[0], -1); err != nil {
			t.Fatal(err)
		}
		if code := p.wait(t); code != 77 || !strings.Contains(p.text(), "stopping\n") || !strings.Contains(p.text(), "/any/b, /any/a: lease lost") {
			t.Errorf("exit code %d, want 77; it printed %q", code, p.text())
		}
		for _, path := range []string{"/any/a", "/any/b"} {
			if left := line(t, client, path); len(left) != 0 {
				t.Errorf("left in line at %s: %q", path, left)
			}
		}
	}
}

// TestCommandEnvironment: ZKR_PATHS and ZKR_TOKENS have a line for each path, in
// the order of the arguments, and each token is that of its path. A single path
// has ZKR_PATH and ZKR_TOKEN too, which several do not inherit.
func TestCommandEnvironment(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	client := e.client(t)
	for _, test := range []struct {
		args  []string
		paths []string
	}{
		{e.args("lock"), []string{"/env/z", "/env/a b", "/env/m"}},
		{e.args("read"), []string{"/env/read/z", "/env/read/a"}},
		{e.args("write"), []string{"/env/write/z", "/env/write/a"}},
		{e.args("lock"), []string{"/env/one"}},
		{e.args("semaphore", "--max", "2"), []string{"/env/permit"}},
		{e.args("elect", "--once"), []string{"/env/election"}},
	} {
		show := `printf '%s|%s|%s|%s|' "$ZKR_PATHS" "$ZKR_TOKENS" "${ZKR_PATH-unset}" "${ZKR_TOKEN-unset}"`
		args := slices.Concat(test.args, test.paths, []string{"--", "sh", "-c", show})
		p := startChanged(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "ZKR_PATH=/outer", "ZKR_TOKEN=outer") }, args...)
		if code := p.wait(t); code != 0 {
			t.Errorf("exit code %d", code)
			continue
		}
		got := strings.Split(p.text(), "|")
		if got[0] != strings.Join(test.paths, "\n") {
			t.Errorf("ZKR_PATHS is %q, want %q", got[0], test.paths)
		}
		tokens := strings.Split(got[1], "\n")
		if len(tokens) != len(test.paths) {
			t.Fatalf("ZKR_TOKENS is %q for %q", got[1], test.paths)
		}
		for i, path := range test.paths {
			if test.args[0] == "semaphore" {
				path += "/locks"
			}
			tokenIsOf(t, client, tokens[i], path)
		}
		wantPath, wantToken := test.paths[0], tokens[0]
		if len(test.paths) > 1 {
			wantPath, wantToken = "unset", "unset"
		}
		if got[2] != wantPath || got[3] != wantToken {
			t.Errorf("ZKR_PATH is %q, ZKR_TOKEN %q; want %q, %q", got[2], got[3], wantPath, wantToken)
		}
	}
}
