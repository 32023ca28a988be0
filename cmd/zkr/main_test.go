//go:build unix

package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary be zkr, so that tests can start it as often as they like in processes of its own, built as
// the tests are: under the race detector if they are. And it can be a command for zkr to run, one that handles signals better
// than shells do, which lose some around a fork.
func TestMain(m *testing.M) {
	const role = "ZKR_TEST_ROLE"
	switch os.Getenv(role) {
	case "zkr":
		os.Setenv(role, "command") // for what it runs
		main()
	case "command":
		command()
	}
	os.Unsetenv("ZKR_SERVERS")
	os.Unsetenv("ZKR_AUTH")
	// Under nohup it is ignored, and so it would be by all that are started here. A signal that is caught they have by default.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	_ = flag.Set("test.parallel", "4") // they mostly wait; who asks for another number has it
	os.Exit(m.Run())
}

// command says which signals it hears, and ends at SIGTERM with the exit code 3.
func command() {
	heard := make(chan os.Signal, 10)
	signal.Notify(heard)
	fmt.Println("ready")
	for sig := range heard {
		switch sig {
		case syscall.SIGTERM:
			fmt.Println("stopping")
			os.Exit(3)
		case syscall.SIGURG, syscall.SIGCONT: // Go's own, and what comes with SIGTERM
		default:
			fmt.Println("heard", sig)
		}
	}
}

// self is the path of the test binary: under zkr, that of command.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// patience bounds every wait for something that should happen soon. It only has to be longer than a slow machine.
const patience = 30 * time.Second

// process is a running zkr.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed once it has ended, and so has everything that still had its stdout
	code  int           // its exit code, or -1 if a signal ended it; read after ended

	mu      sync.Mutex // guards what follows
	output  bytes.Buffer
	written chan struct{} // closed, and replaced, when there is more output
}

// Write takes stdout and stderr.
func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.written)
	p.written = make(chan struct{})
	return p.output.Write(text)
}

// start starts zkr. It is killed with the test.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startWith(t, "", args...)
}

func startWith(t *testing.T, stdin string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(self(t), args...), ended: make(chan struct{}), written: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "ZKR_TEST_ROLE=zkr")
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = strings.NewReader(stdin), p, p
	p.cmd.WaitDelay = 2 * patience // for whoever keeps stdout open: longer than wait waits
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process, which the cleanup kills
		defer close(p.ended)
		if err := p.cmd.Wait(); err != nil && p.cmd.ProcessState == nil {
			fmt.Fprintln(p, err)
		}
		p.code = p.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
		if t.Failed() {
			t.Logf("zkr %s (exit code %d):\n%s", strings.Join(args, " "), p.code, p.text())
		}
	})
	return p
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// wait returns the exit code.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.code
	case <-time.After(patience):
		t.Fatalf("zkr %s did not end", strings.Join(p.cmd.Args[1:], " "))
		return 0
	}
}

// prints waits until the output contains text.
func (p *process) prints(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(patience)
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
			if strings.Contains(p.text(), text) {
				return
			}
			t.Fatalf("zkr %s ended without printing %q", strings.Join(p.cmd.Args[1:], " "), text)
		case <-timeout:
			t.Fatalf("zkr %s does not print %q", strings.Join(p.cmd.Args[1:], " "), text)
		}
	}
}

func (p *process) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// inRing3 is whether real servers are wanted.
var inRing3 = os.Getenv("ZKR_REAL") == "1"

// parallel lets a test that is for each kind of ensemble run beside others, which mostly wait; but not beside JVMs, of which two
// cores carry three at most.
func parallel(t *testing.T) {
	if !inRing3 {
		t.Parallel()
	}
}

// eventually polls for what nobody announces.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
