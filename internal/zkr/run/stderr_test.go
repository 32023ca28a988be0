//go:build unix

package run

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// TestNobodyReadsStderr: the command is stopped after a loss or a revocation,
// although zkr cannot print why. Its stderr is a full pipe that nobody reads,
// or one whose reader has ended.
func TestNobodyReadsStderr(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	lose := func(t *testing.T, path string) { zkrtest.DeleteFirst(t, client, path) }
	revoke := func(t *testing.T, path string) {
		if code := zkrtest.Start(t, e.Args("revoke", path)...).Wait(t); code != 0 {
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
		{"/lock/full", true, []string{"lock"}, lose, cli.ExitLost},
		{"/lock/closed", false, []string{"lock"}, lose, cli.ExitLost},
		{"/elect/full", true, []string{"elect", "--once"}, lose, cli.ExitLost},
		{"/elect/closed", false, []string{"elect", "--once"}, lose, cli.ExitLost},
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
			args := append(e.Args(test.args[0], test.args[1:]...), append(zkrtest.PatientGrace, test.path, "--", zkrtest.Self(t))...)
			p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Stderr = stderr }, args...)
			p.Prints(t, "ready\n")
			test.end(t, test.path)
			p.Prints(t, "stopping\n")
			_ = stderr.Close()
			go func() { _, _ = io.Copy(io.Discard, reader) }() // ends with zkr
			if code := p.Wait(t); code != test.want {
				t.Errorf("exit code %d, want %d", code, test.want)
			}
		})
	}
}

// TestLossIsToldByTheEnd: zkr ends after a loss, and zkr elect campaigns again,
// although nobody reads what they print: a script that holds the lock by zkr
// may learn of the loss by the end of zkr alone.
func TestLossIsToldByTheEnd(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	for _, test := range []struct {
		verb, first, again string
		more               []string
	}{
		{"lock", "\n", "", nil},
		{"lock", "\n", "", []string{"--verbose"}},
		{"elect", "ready\n", "ready\n", []string{"--", zkrtest.Self(t)}},
	} {
		path := "/unheard/" + test.verb
		_, stderr := pipe(t)
		fill(t, stderr)
		args := append(append(zkrtest.PatientGrace, path), test.more...)
		p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Stderr = stderr }, e.Args(test.verb, args...)...)
		p.Prints(t, test.first)
		zkrtest.DeleteFirst(t, client, path)
		if test.again != "" {
			bubble.AwaitTrue(t, "it leads again", func() bool { return strings.Count(p.Text(), test.again) == 2 })
			continue
		}
		if code := p.Wait(t); code != cli.ExitLost {
			t.Errorf("%s: exit code %d, want %d", test.verb, code, cli.ExitLost)
		}
	}
}

// TestNobodyReadsThePath: an ephemeral znode does not outlive zkr, although zkr
// cannot print its path.
func TestNobodyReadsThePath(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	reader, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	_ = reader.Close()
	p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Stdout = stdout }, e.Args("create", "--ephemeral", "/unread")...)
	if code := p.Wait(t); code != cli.ExitFailed || !strings.Contains(p.Text(), "broken pipe") {
		t.Errorf("exit code %d; it printed %q", code, p.Text())
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
	e := zkrtest.StartServer(t)
	_, stderr := pipe(t)
	fill(t, stderr)
	p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Stderr = stderr }, e.Args("create", "--ephemeral", "/deleted")...)
	p.Prints(t, "/deleted\n")
	if err := e.Client(t).Delete(t.Context(), "/deleted", -1); err != nil {
		t.Fatal(err)
	}
	if code := p.Wait(t); code != cli.ExitFailed {
		t.Errorf("exit code %d, want %d", code, cli.ExitFailed)
	}
}

// TestNobodyReadsThePathYet: a signal ends zkr, and its ephemeral znode, while
// it cannot print the path because its stdout is full.
func TestNobodyReadsThePathYet(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	_, stdout := pipe(t)
	fill(t, stdout)
	p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Stdout = stdout }, e.Args("create", "--ephemeral", "/unread")...)
	exists := func() bool {
		found, _, err := client.Exists(t.Context(), "/unread")
		return err == nil && found
	}
	bubble.AwaitTrue(t, "the znode exists", exists)
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	if err := client.Sync(t.Context(), "/unread"); err != nil {
		t.Fatal(err)
	}
	if exists() {
		t.Error("after the end of zkr its znode exists")
	}
}

// fill writes to a pipe until it is full. It must be called before a process
// gets the pipe, because then writes block.
func fill(t *testing.T, pipe *os.File) {
	t.Helper()
	raw, err := pipe.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, chunk := range []int{4096, 1} {
		text := make([]byte, chunk)
		for err = nil; err == nil || errors.Is(err, syscall.EINTR); {
			if over := raw.Write(func(fd uintptr) (done bool) {
				_, err = syscall.Write(int(fd), text)
				return true
			}); over != nil {
				t.Fatal(over)
			}
		}
		if !errors.Is(err, syscall.EAGAIN) {
			t.Fatal(err)
		}
	}
}
