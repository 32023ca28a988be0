//go:build unix

package run

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// TestSeveralPaths: processes that take some of the same locks in different
// orders exclude each other, and never wait for each other.
func TestSeveralPaths(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
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
		var all []*zkrtest.Process
		for _, command := range commands {
			all = append(all, zkrtest.Start(t, e.Args("lock", command...)...))
		}
		for _, p := range all {
			if code := p.Wait(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		}
		for name, n := range want {
			if got := zkrtest.Contents(t, filepath.Join(dir, name))[0]; got != strconv.Itoa(n) {
				t.Errorf("%d processes counted %s to %s", n, name, got)
			}
		}
	})
}

// TestSeveralPathsAllOrNothing: while one of the locks is taken, none is held
// after --try, --wait or a signal.
func TestSeveralPathsAllOrNothing(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	holder := zkrtest.Start(t, e.Args("lock", "/all/m")...)
	holder.Prints(t, "\n")
	waiter := func(flags ...string) *zkrtest.Process {
		return zkrtest.Start(t, append(e.Args("lock", flags...), "/all/z", "/all/m", "/all/a", "--", "echo", "granted")...)
	}
	ends := func(p *zkrtest.Process, want int) {
		t.Helper()
		if code := p.Wait(t); code != want || strings.Contains(p.Text(), "granted") {
			t.Errorf("exit code %d, want %d; it printed %q", code, want, p.Text())
		}
		for path, n := range map[string]int{"/all/a": 0, "/all/m": 1, "/all/z": 0} {
			if left := zkrtest.Line(t, client, path); len(left) != n {
				t.Errorf("in line at %s: %q", path, left)
			}
		}
	}
	ends(waiter("--try"), cli.ExitNotAcquired)
	ends(waiter("--wait", "2s"), cli.ExitNotAcquired)
	waits := waiter()
	e.InLine(t, client, "/all/m", 2)
	waits.Signal(t, syscall.SIGTERM)
	ends(waits, 143)
	granted := waiter()
	e.InLine(t, client, "/all/m", 2)
	holder.Signal(t, syscall.SIGTERM)
	if code := granted.Wait(t); code != 0 || granted.Text() != "granted\n" {
		t.Errorf("exit code %d; it printed %q", code, granted.Text())
	}
}

// TestSeveralPathsLost: the loss of any of the locks ends the command.
func TestSeveralPathsLost(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	for _, path := range []string{"/any/a", "/any/b"} {
		p := zkrtest.Start(t, e.Args("lock", append(zkrtest.PatientGrace, "--lost-exit-code", "77", "/any/b", "/any/a", "--", zkrtest.Self(t))...)...)
		p.Prints(t, "ready\n")
		zkrtest.DeleteFirst(t, client, path)
		if code := p.Wait(t); code != 77 || !strings.Contains(p.Text(), "stopping\n") || !strings.Contains(p.Text(), "/any/b, /any/a: lease lost") {
			t.Errorf("exit code %d, want 77; it printed %q", code, p.Text())
		}
		for _, path := range []string{"/any/a", "/any/b"} {
			if left := zkrtest.Line(t, client, path); len(left) != 0 {
				judge.Errorf(t, "left in line at %s: %q", path, left)
			}
		}
	}
}

// TestCommandEnvironment: ZKR_PATHS and ZKR_TOKENS have a line for each path,
// in the order of the arguments, and each token is that of its path. A single
// path has ZKR_PATH and ZKR_TOKEN too, which several do not inherit.
func TestCommandEnvironment(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	for _, test := range []struct {
		args  []string
		paths []string
	}{
		{e.Args("lock"), []string{"/env/z", "/env/a b", "/env/m"}},
		{e.Args("read"), []string{"/env/read/z", "/env/read/a"}},
		{e.Args("write"), []string{"/env/write/z", "/env/write/a"}},
		{e.Args("lock"), []string{"/env/one"}},
		{e.Args("semaphore", "--max", "2"), []string{"/env/permit"}},
		{e.Args("elect", "--once"), []string{"/env/election"}},
	} {
		show := `printf '%s|%s|%s|%s|' "$ZKR_PATHS" "$ZKR_TOKENS" "${ZKR_PATH-unset}" "${ZKR_TOKEN-unset}"`
		args := slices.Concat(test.args, test.paths, []string{"--", "sh", "-c", show})
		p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "ZKR_PATH=/outer", "ZKR_TOKEN=outer") }, args...)
		if code := p.Wait(t); code != 0 {
			t.Errorf("exit code %d", code)
			continue
		}
		got := strings.Split(p.Text(), "|")
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
