//go:build unix

package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestNobodyReadsStderr: the command is stopped after a loss or a revocation,
// although zkr cannot print why. Its stderr is a full pipe that nobody reads, or
// one whose reader has ended.
func TestNobodyReadsStderr(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	client := e.client(t)
	lose := func(t *testing.T, path string) {
		if err := client.Delete(t.Context(), path+"/"+line(t, client, path)[0], -1); err != nil {
			t.Fatal(err)
		}
	}
	revoke := func(t *testing.T, path string) {
		if code := start(t, e.args("revoke", path)...).wait(t); code != 0 {
			t.Fatalf("revoke: exit code %d", code)
		}
	}
	for _, test := range []struct {
		path string
		full bool
		args []string
		end  func(t *testing.T, path string)
		want int
	}{
		{"/lock/full", true, []string{"lock"}, lose, exitLost},
		{"/lock/closed", false, []string{"lock"}, lose, exitLost},
		{"/elect/full", true, []string{"elect", "--once"}, lose, exitLost},
		{"/elect/closed", false, []string{"elect", "--once"}, lose, exitLost},
		{"/revoke/full", true, []string{"lock", "--revocable"}, revoke, 3},
		{"/revoke/closed", false, []string{"lock", "--revocable"}, revoke, 3},
	} {
		t.Run(test.path[1:], func(t *testing.T) {
			reader, stderr, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			defer stderr.Close()
			if test.full {
				fill(t, stderr)
			} else {
				_ = reader.Close()
			}
			args := append(e.args(test.args[0], test.args[1:]...), append(patientGrace, test.path, "--", self(t))...)
			p := startChanged(t, func(cmd *exec.Cmd) { cmd.Stderr = stderr }, args...)
			p.prints(t, "ready\n")
			test.end(t, test.path)
			p.prints(t, "stopping\n")
			_ = stderr.Close()
			go func() { _, _ = io.Copy(io.Discard, reader) }() // ends with zkr
			if code := p.wait(t); code != test.want {
				t.Errorf("exit code %d, want %d", code, test.want)
			}
		})
	}
}

// TestLossIsToldByTheEnd: zkr ends after a loss, and zkr elect campaigns again,
// although nobody reads what they print: a script that holds the lock by zkr may
// learn of the loss by the end of zkr alone.
func TestLossIsToldByTheEnd(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	client := e.client(t)
	for _, test := range []struct {
		verb, first, again string
		more               []string
	}{
		{"lock", "\n", "", nil},
		{"lock", "\n", "", []string{"--verbose"}},
		{"elect", "ready\n", "ready\n", []string{"--", self(t)}},
	} {
		path := "/unheard/" + test.verb
		_, stderr := pipe(t)
		fill(t, stderr)
		args := append(append(patientGrace, path), test.more...)
		p := startChanged(t, func(cmd *exec.Cmd) { cmd.Stderr = stderr }, e.args(test.verb, args...)...)
		p.prints(t, test.first)
		if err := client.Delete(t.Context(), path+"/"+line(t, client, path)[0], -1); err != nil {
			t.Fatal(err)
		}
		if test.again != "" {
			eventually(t, "it leads again", func() bool { return strings.Count(p.text(), test.again) == 2 })
			continue
		}
		if code := p.wait(t); code != exitLost {
			t.Errorf("%s: exit code %d, want %d", test.verb, code, exitLost)
		}
	}
}

// TestNobodyReadsThePath: an ephemeral znode does not outlive zkr, although zkr
// cannot print its path.
func TestNobodyReadsThePath(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	client := e.client(t)
	reader, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	_ = reader.Close()
	p := startChanged(t, func(cmd *exec.Cmd) { cmd.Stdout = stdout }, e.args("create", "--ephemeral", "/unread")...)
	if code := p.wait(t); code != exitFailed || !strings.Contains(p.text(), "broken pipe") {
		t.Errorf("exit code %d; it printed %q", code, p.text())
	}
	if err := client.Sync(t.Context(), "/unread"); err != nil {
		t.Fatal(err)
	}
	if found, _, err := client.Exists(t.Context(), "/unread"); err != nil || found {
		t.Errorf("after the end of zkr its znode exists: %v, %v", found, err)
	}
}

// TestEndOfZnodeIsToldByTheEnd: zkr ends with its ephemeral znode, although
// nobody reads why.
func TestEndOfZnodeIsToldByTheEnd(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	_, stderr := pipe(t)
	fill(t, stderr)
	p := startChanged(t, func(cmd *exec.Cmd) { cmd.Stderr = stderr }, e.args("create", "--ephemeral", "/deleted")...)
	p.prints(t, "/deleted\n")
	if err := e.client(t).Delete(t.Context(), "/deleted", -1); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
}

// TestNobodyReadsThePathYet: a signal ends zkr, and its ephemeral znode, while it
// cannot print the path because its stdout is full.
func TestNobodyReadsThePathYet(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	client := e.client(t)
	_, stdout := pipe(t)
	fill(t, stdout)
	p := startChanged(t, func(cmd *exec.Cmd) { cmd.Stdout = stdout }, e.args("create", "--ephemeral", "/unread")...)
	exists := func() bool {
		found, _, err := client.Exists(t.Context(), "/unread")
		return err == nil && found
	}
	eventually(t, "the znode exists", exists)
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	if err := client.Sync(t.Context(), "/unread"); err != nil {
		t.Fatal(err)
	}
	if exists() {
		t.Error("after the end of zkr its znode exists")
	}
}

// fill writes to a pipe until it is full. It must be called before a process gets
// the pipe, because then writes have no deadline.
func fill(t *testing.T, pipe *os.File) {
	t.Helper()
	for _, chunk := range []int{4096, 1} {
		if err := pipe.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		for text := make([]byte, chunk); ; {
			if _, err := pipe.Write(text); err != nil {
				break // it is full
			}
		}
	}
}
