//go:build unix

package serve

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// TestReadyFile: the file appears when all members serve, whole, and is removed
// when the server ends. One that a killed server has left is replaced.
func TestReadyFile(t *testing.T) {
	zkrtest.Parallel(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "ready")
	read := func() string {
		text, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(text)
	}
	alone := func(want ...string) {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		if strings.Join(names, " ") != strings.Join(want, " ") {
			t.Errorf("in the directory: %q, want %q", names, want)
		}
	}
	server := func() *zkrtest.Process {
		p := zkrtest.Start(t, "server", "--listen", "127.0.0.1:0", "--members", "3", "--ready-file", file)
		bubble.AwaitTrue(t, "the file has another text", func() bool {
			text := read()
			return text != "" && !strings.HasPrefix(text, "stale")
		})
		return p
	}
	if err := os.WriteFile(file, []byte("stale and longer than the addresses of three members are, "+strings.Repeat("by far ", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	first := server()
	servers := strings.TrimSuffix(read(), "\n")
	if strings.Count(servers, ",") != 2 || strings.ContainsAny(servers, " \n") {
		t.Errorf("the file has %q, want three addresses in one line", servers)
	}
	if code := zkrtest.Start(t, zkrtest.Target{Servers: servers}.Args("lock", "--try", "/ready", "--", "true")...).Wait(t); code != 0 {
		t.Errorf("a client of those addresses: exit code %d", code)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	alone("ready")
	first.Signal(t, syscall.SIGKILL)
	first.Wait(t)
	if got := strings.TrimSuffix(read(), "\n"); got != servers {
		t.Errorf("a killed server leaves %q, want %q", got, servers)
	}
	if err := os.WriteFile(file, []byte("stale"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		p := server()
		p.Signal(t, sig)
		if code := p.Wait(t); code != 0 {
			t.Errorf("%v: exit code %d", sig, code)
		}
		alone()
	}
	replaced := server() // by another server, which does not end
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("of another server"), 0o600); err != nil {
		t.Fatal(err)
	}
	replaced.Signal(t, syscall.SIGTERM)
	replaced.Wait(t)
	if got := read(); got != "of another server" {
		t.Errorf("the file of another server is %q", got)
	}
}

// TestReadyFileErrors: a server that cannot serve, or cannot write the file,
// leaves none, also not one of an earlier server.
func TestReadyFileErrors(t *testing.T) {
	zkrtest.Parallel(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "ready")
	if err := os.WriteFile(file, []byte("stale"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken := strings.Split(zkrtest.StartServer(t).Servers, ",")[0]
	p := zkrtest.Start(t, "server", "--listen", taken, "--ready-file", file)
	if code := p.Wait(t); code != cli.ExitFailed || !strings.Contains(p.Text(), "in use") {
		t.Errorf("on a port that is taken: exit code %d; it printed %q", code, p.Text())
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		judge.Errorf(t, "left in the directory: %v, %v", entries, err)
	}
	for _, name := range []string{filepath.Join(dir, "missing", "ready"), dir, os.DevNull} {
		before, _ := os.Lstat(name)
		p := zkrtest.Start(t, "server", "--listen", "127.0.0.1:0", "--ready-file", name)
		if code := p.Wait(t); code != cli.ExitFailed || !strings.Contains(p.Text(), "--ready-file") {
			t.Errorf("%s: exit code %d; it printed %q", name, code, p.Text())
		}
		if after, err := os.Lstat(name); before != nil && (err != nil || after.Mode().Type() != before.Mode().Type()) || before == nil && !os.IsNotExist(err) {
			t.Errorf("%s is now %v, %v", name, after, err)
		}
	}
}
