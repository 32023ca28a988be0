//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReadyFile: the file appears when all members serve, whole, and is removed
// when the server ends. One that a killed server has left is replaced.
func TestReadyFile(t *testing.T) {
	parallel(t)
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
	server := func() *process {
		p := start(t, "server", "--listen", "127.0.0.1:0", "--members", "3", "--ready-file", file)
		eventually(t, "the file has another text", func() bool {
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
	if code := start(t, target{servers: servers}.args("lock", "--try", "/ready", "--", "true")...).wait(t); code != 0 {
		t.Errorf("a client of those addresses: exit code %d", code)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	alone("ready")
	first.signal(t, syscall.SIGKILL)
	first.wait(t)
	if got := strings.TrimSuffix(read(), "\n"); got != servers {
		t.Errorf("a killed server leaves %q, want %q", got, servers)
	}
	if err := os.WriteFile(file, []byte("stale"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		p := server()
		p.signal(t, sig)
		if code := p.wait(t); code != 0 {
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
	replaced.signal(t, syscall.SIGTERM)
	replaced.wait(t)
	if got := read(); got != "of another server" {
		t.Errorf("the file of another server is %q", got)
	}
}

// TestReadyFileErrors: a server that cannot serve, or cannot write the file,
// leaves none, also not one of an earlier server.
func TestReadyFileErrors(t *testing.T) {
	parallel(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "ready")
	if err := os.WriteFile(file, []byte("stale"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken := strings.Split(startServer(t).servers, ",")[0]
	p := start(t, "server", "--listen", taken, "--ready-file", file)
	if code := p.wait(t); code != exitFailed || !strings.Contains(p.text(), "in use") {
		t.Errorf("on a port that is taken: exit code %d; it printed %q", code, p.text())
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left in the directory: %v, %v", entries, err)
	}
	for _, name := range []string{filepath.Join(dir, "missing", "ready"), dir, os.DevNull} {
		before, _ := os.Lstat(name)
		p := start(t, "server", "--listen", "127.0.0.1:0", "--ready-file", name)
		if code := p.wait(t); code != exitFailed || !strings.Contains(p.text(), "--ready-file") {
			t.Errorf("%s: exit code %d; it printed %q", name, code, p.text())
		}
		if after, err := os.Lstat(name); before != nil && (err != nil || after.Mode().Type() != before.Mode().Type()) || before == nil && !os.IsNotExist(err) {
			t.Errorf("%s is now %v, %v", name, after, err)
		}
	}
}
