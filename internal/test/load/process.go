package load

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/child"
)

// Role is the environment variable that makes the test binary one of the
// processes that tests start. Its arguments say which.
const Role = "ZKR_TEST_ROLE"

// Resource returns the znode that the holders of a lock write to.
func Resource(path string) string { return "/" + strings.ReplaceAll(path[1:], "/", "-") }

// Main ends a process that Start has started. It says why, if with an error.
func Main(err error) {
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	fmt.Println("done")
	os.Exit(0)
}

// Process is one process that a test started.
type Process struct {
	*os.Process
	In    io.Closer
	Say   io.Writer
	Lines chan string   // of its output; closed when it has ended
	ended chan struct{} // closed when it was waited for
}

// Start starts the test binary in a role, and waits until it is ready. It ends
// with the test, and on Linux with the test binary.
func Start(t *testing.T, what string, args ...string) *Process {
	t.Helper()
	return StartWith(t, func(*exec.Cmd) error { return nil }, what, args...)
}

// StartWith is start with a change to the command.
func StartWith(t *testing.T, change func(*exec.Cmd) error, what string, args ...string) *Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), Role+"="+what)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	child.DieWithParent(cmd)
	if err := change(cmd); err != nil {
		t.Fatal(err)
	}
	p := &Process{In: in, Say: in, Lines: make(chan string, 100), ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() { // ends with the process, which the cleanup kills
		// Linux takes the end of the thread that started a child for the end of
		// the parent, so keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			p.Lines <- scanner.Text()
		}
		close(p.Lines)
		_ = cmd.Wait() // mostly killed
		close(p.ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	p.Process = cmd.Process
	t.Cleanup(func() {
		_ = p.Kill() // it may have ended
		for range p.Lines {
		}
		<-p.ended
	})
	p.Expect(t, "ready")
	return p
}

// Expect waits for a line with a prefix, and returns the rest of it.
func (p *Process) Expect(t *testing.T, what string) string {
	t.Helper()
	timeout := time.After(Patience)
	for {
		select {
		case line, ok := <-p.Lines:
			if !ok {
				t.Fatalf("process %d ended without %q", p.Pid, what)
			}
			if rest, found := strings.CutPrefix(line, what); found {
				return strings.TrimSpace(rest)
			}
			t.Fatalf("process %d printed %q, want %q", p.Pid, line, what)
		case <-timeout:
			t.Fatalf("process %d does not print %q", p.Pid, what)
		}
	}
}

// Patience bounds every wait. It only has to be longer than a busy machine
// needs.
const Patience = time.Minute
