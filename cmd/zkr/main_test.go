//go:build unix

package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// TestMain makes the test binary act as zkr, so that tests can start it as a
// process, built like the tests, with the race detector or without. It can also
// act as a command for zkr to run, one that handles signals more reliably than
// shells do, which can lose one while they fork.
func TestMain(m *testing.M) {
	const role = "ZKR_TEST_ROLE"
	switch os.Getenv(role) {
	case "zkr":
		os.Setenv(role, "command") // for the process that zkr runs
		main()
	case "command":
		if slices.Contains(os.Args, "--"+followFlag) { // zkr bench starts itself
			main()
		}
		command()
	}
	newRoot(&ensemble{}).PersistentFlags().VisitAll(func(f *pflag.Flag) { os.Unsetenv(variableOf(f.Name)) })
	// Built with the race detector, a process sleeps for a second before
	// it ends. There are hundreds here.
	os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	// Under nohup SIGHUP is ignored, and in the background of a script SIGINT
	// and SIGQUIT are. All child processes would inherit that. A caught signal
	// is reset to the default for them.
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	_ = flag.Set("test.parallel", "4") // they mostly wait; -parallel overrides it
	os.Exit(m.Run())
}

// gateVariable names a file without which a command does not end.
const gateVariable = "ZKR_TEST_GATE"

// becomeRootVariable makes a command run as root, if its file allows that.
const becomeRootVariable = "ZKR_TEST_BECOME_ROOT"

// command prints the signals it receives, and ends with exit code 3 at SIGTERM,
// once the file that gateVariable names exists.
func command() {
	heard := make(chan os.Signal, 10)
	signal.Notify(heard)
	if os.Getenv(becomeRootVariable) != "" {
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
			for gate := os.Getenv(gateVariable); gate != ""; time.Sleep(5 * time.Millisecond) {
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

// self returns the path of the test binary. Run by zkr, it acts as command.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// patience limits every wait for something that should happen soon, on a slow
// machine too.
const patience = 30 * time.Second

// process is a running zkr.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended, and every process with its stdout too
	code  int           // its exit code, or -1 if a signal ended it; read after ended

	mu      sync.Mutex // guards what follows
	output  bytes.Buffer
	written chan struct{} // closed and replaced when there is more output
}

// Write takes stdout and stderr.
func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.written)
	p.written = make(chan struct{})
	return p.output.Write(text)
}

// start starts zkr. The process is killed when the test ends.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startWith(t, "", args...)
}

func startWith(t *testing.T, stdin string, args ...string) *process {
	t.Helper()
	return startChanged(t, func(cmd *exec.Cmd) { cmd.Stdin = strings.NewReader(stdin) }, args...)
}

// startChanged lets change replace stdin, stdout and the environment.
func startChanged(t *testing.T, change func(*exec.Cmd), args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(self(t), args...), ended: make(chan struct{}), written: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "ZKR_TEST_ROLE=zkr")
	p.cmd.Stdout, p.cmd.Stderr = p, p
	change(p.cmd)
	p.cmd.WaitDelay = 2 * patience // for processes that keep stdout open: longer than wait waits
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
	return p.waitFor(t, patience)
}

// waitFor is wait for a process that has more to do than others.
func (p *process) waitFor(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.code
	case <-time.After(limit):
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

// inRing3 reports whether real servers are to be used.
var inRing3 = os.Getenv("ZKR_REAL") == "1"

// parallel lets a test run beside others, which mostly wait. It does not with
// real servers: the JVMs of one ensemble are as much as two cores can carry.
func parallel(t *testing.T) {
	if !inRing3 {
		t.Parallel()
	}
}

// eventually polls for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
