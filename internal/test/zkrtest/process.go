//go:build unix

package zkrtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// GateVariable names a file without which a command does not end.
const GateVariable = "ZKR_TEST_GATE"

// BecomeRootVariable makes a command run as root, if its file allows that.
const BecomeRootVariable = "ZKR_TEST_BECOME_ROOT"

// command prints the signals it receives, and ends with exit code 3 at SIGTERM,
// once the file that gateVariable names exists.
func command() {
	heard := make(chan os.Signal, 10)
	signal.Notify(heard)
	if os.Getenv(BecomeRootVariable) != "" {
		if err := syscall.Setuid(0); err != nil {
			fmt.Println("not root:", err)
			os.Exit(1)
		}
		fmt.Printf("root %d\n", os.Getpid())
	}
	fmt.Println("ready")
	for sig := range heard {
		switch sig {
		case syscall.SIGTERM:
			fmt.Println("stopping")
			for gate := os.Getenv(GateVariable); gate != ""; time.Sleep(5 * time.Millisecond) {
				if _, err := os.Stat(gate); err == nil {
					break
				}
			}
			os.Exit(3)
		case syscall.SIGURG, syscall.SIGCONT: // Go's own, and what comes with SIGTERM
		default:
			fmt.Println("heard", sig)
		}
	}
}

// Self returns the path of the test binary. Run by zkr, it acts as command.
func Self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Patience limits every wait for something that should happen soon, even on a
// slow machine.
const Patience = 30 * time.Second

// Process is a running zkr.
type Process struct {
	Cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended, and every process that has its stdout
	Code  int           // its exit code, or -1 if a signal ended it; read after ended

	mu      sync.Mutex // guards what follows
	output  bytes.Buffer
	written chan struct{} // closed and replaced when there is more output
}

// Write takes stdout and stderr.
func (p *Process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.written)
	p.written = make(chan struct{})
	return p.output.Write(text)
}

// Start starts zkr. The process is killed when the test ends.
func Start(t *testing.T, args ...string) *Process {
	t.Helper()
	return StartWith(t, "", args...)
}

func StartWith(t *testing.T, stdin string, args ...string) *Process {
	t.Helper()
	return StartChanged(t, func(cmd *exec.Cmd) { cmd.Stdin = strings.NewReader(stdin) }, args...)
}

// StartChanged lets change replace stdin, stdout and the environment.
func StartChanged(t *testing.T, change func(*exec.Cmd), args ...string) *Process {
	t.Helper()
	p := &Process{Cmd: exec.Command(Self(t), args...), ended: make(chan struct{}), written: make(chan struct{})}
	p.Cmd.Env = append(os.Environ(), "ZKR_TEST_ROLE=zkr")
	p.Cmd.Stdout, p.Cmd.Stderr = p, p
	change(p.Cmd)
	p.Cmd.WaitDelay = 2 * Patience // for processes that keep stdout open: longer than wait waits
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process, which the cleanup kills
		defer close(p.ended)
		if err := p.Cmd.Wait(); err != nil && p.Cmd.ProcessState == nil {
			fmt.Fprintln(p, err)
		}
		p.Code = p.Cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = p.Cmd.Process.Kill() // it may have ended
		<-p.ended
		if t.Failed() {
			t.Logf("zkr %s (exit code %d):\n%s", strings.Join(args, " "), p.Code, p.Text())
		}
	})
	return p
}

func (p *Process) Text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// HasEnded reports whether the process has ended.
func (p *Process) HasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Wait returns the exit code.
func (p *Process) Wait(t *testing.T) int {
	t.Helper()
	return p.WaitFor(t, Patience)
}

// WaitFor is wait for a process that has more to do than others.
func (p *Process) WaitFor(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.Code
	case <-time.After(limit):
		t.Fatalf("zkr %s did not end", strings.Join(p.Cmd.Args[1:], " "))
		return 0
	}
}

// Prints waits until the output contains text.
func (p *Process) Prints(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(Patience)
	for {
		p.mu.Lock()
		found, written := strings.Contains(p.output.String(), text), p.written
		p.mu.Unlock()
		if found {
			return
		}
		select {
		case <-written:
		case <-p.ended:
			if strings.Contains(p.Text(), text) {
				return
			}
			t.Fatalf("zkr %s ended without printing %q", strings.Join(p.Cmd.Args[1:], " "), text)
		case <-timeout:
			t.Fatalf("zkr %s does not print %q", strings.Join(p.Cmd.Args[1:], " "), text)
		}
	}
}

func (p *Process) Signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// GuardianOf returns the child guardian of a process, 0 without one.
func GuardianOf(parent int) (pid int) {
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		stat, err := os.ReadFile(name + "/stat")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		var state string
		var of int
		_, _ = fmt.Sscan(rest, &state, &of)
		if line, _ := os.ReadFile(name + "/cmdline"); of == parent && state != "Z" && bytes.Contains(line, []byte("\x00guard\x00--fd")) {
			_, _ = fmt.Sscan(filepath.Base(name), &pid)
		}
	}
	return pid
}

// InRing3 reports whether real servers are to be used.
var InRing3 = os.Getenv("ZKR_REAL") == "1"

// Parallel lets a test run at the same time as others, which mostly wait. It
// does not with real servers: the JVMs of one ensemble are as much as two cores
// can carry.
func Parallel(t *testing.T) {
	if !InRing3 {
		t.Parallel()
	}
}
