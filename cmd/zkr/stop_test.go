//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// TestLostBeforeTheStart: a lease that was lost after its grant, as while zkr
// was paused, starts no command.
func TestLostBeforeTheStart(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		m, err := locks.NewMutex(c, "/l")
		if err != nil {
			t.Fatal(err)
		}
		lease := bubble.Acquire(t, t.Context(), m)
		w.Expire(c)
		bubble.Lost(t, lease)
		file := filepath.Join(t.TempDir(), "ran")
		h := leaseCommand{
			to: &ensemble{}, paths: []string{"/l"}, lostCode: codeFlag{code: exitLost},
			command: []string{"sh", "-c", `echo > "$0"`, file}, program: "/bin/sh",
		}
		err = h.work(lease, nil, &signals{arrived: make(chan os.Signal)})
		var end *exit
		if !errors.As(err, &end) || end.code != exitLost || !strings.Contains(err.Error(), "/l: lease lost before sh was started: ") {
			t.Errorf("%v", err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Error("the command has run")
		}
	})
}

// TestKillBeforeTheDeadline: at a loss the command has the grace, and its
// SIGKILL comes earlier than the lease's deadline. In virtual time.
func TestKillBeforeTheDeadline(t *testing.T) {
	for _, grace := range []time.Duration{0, time.Second, 3 * time.Second, 10 * time.Second / 3} {
		synctest.Test(t, func(t *testing.T) {
			h := &leaseCommand{to: &ensemble{sessionTimeout: 10 * time.Second}, grace: grace}
			_, _, lease, e := heldInVirtualTime(t, h.stopMargin())
			if err := e.Pause(0); err != nil {
				t.Fatal(err)
			}
			<-lease.Lost()
			left := h.untilKill(lease)
			if early := time.Until(lease.Deadline()) - left; early != h.to.slack() || early <= 0 {
				t.Errorf("grace %v: SIGKILL is sent %v before the deadline", grace, early)
			}
			if grace+h.to.slack() <= h.to.sessionTimeout/3 && left != grace {
				t.Errorf("grace %v: the command has %v", grace, left)
			}
			time.Sleep(left + time.Second) // as if zkr was stopped
			if left := h.untilKill(lease); left != 0 {
				t.Errorf("grace %v: after the deadline the command has %v", grace, left)
			}
			if err := e.Resume(0); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestTerminalCannotStopZkr: the signals by which a terminal stops programs do
// not stop a zkr that holds a lock, since its command or its script must be told
// of a loss.
func TestTerminalCannotStopZkr(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	client := e.client(t)
	for _, sig := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU} {
		path := fmt.Sprintf("/terminal/%d", sig)
		ownGroup := func(cmd *exec.Cmd) { // otherwise its group may be one that no terminal stops
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		}
		for _, test := range []struct {
			command     []string
			first, last string
		}{{nil, "\n", ": lease lost: "}, {[]string{"--", self(t)}, "ready\n", "stopping\n"}} {
			p := startChanged(t, ownGroup, e.args("lock", append(append(patientGrace, path), test.command...)...)...)
			p.prints(t, test.first)
			p.signal(t, sig)
			if err := client.Delete(t.Context(), path+"/"+line(t, client, path)[0], -1); err != nil {
				t.Fatal(err)
			}
			if code := p.wait(t); code != exitLost || !strings.Contains(p.text(), test.last) {
				t.Errorf("%v: exit code %d; it printed %q", sig, code, p.text())
			}
		}
	}
}

// TestNothingIgnored: the command ignores no signal that zkr ignores while it
// runs one: also not the second command of zkr elect.
func TestNothingIgnored(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	e := startServer(t)
	p := start(t, e.args("elect", "/ignored", "--", "sed", "-n", "s/^SigIgn:[[:space:]]*/ignored /p", "/proc/self/status")...)
	eventually(t, "two terms", func() bool { return strings.Count(p.text(), "ignored ") >= 2 })
	p.signal(t, syscall.SIGTERM)
	p.wait(t)
	for text := range strings.Lines(p.text()) {
		var ignored uint64
		if n, _ := fmt.Sscanf(text, "ignored %x", &ignored); n != 1 {
			continue
		}
		for _, sig := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU} {
			if ignored&(1<<(sig-1)) != 0 {
				t.Errorf("the command ignores %v", sig)
			}
		}
	}
}

// TestStoppedCommandIsToldToEnd: a command that somebody has stopped hears of a
// signal that asks it to end.
func TestStoppedCommandIsToldToEnd(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	p := start(t, e.args("lock", "/stopped", "--", "sh", "-c", `echo ready; kill -STOP $$; sleep 1000`)...)
	p.prints(t, "ready\n")
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
}

// TestCommandOfAnotherUser: zkr says that it cannot end a command that it must
// not signal, and waits until it has ended.
func TestCommandOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("only root can be two users")
	}
	e := startServer(t)
	client := e.client(t)
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	asNobody, asRoot := filepath.Join(dir, "zkr"), filepath.Join(dir, "command")
	for file, mode := range map[string]string{asNobody: "755", asRoot: "4755"} {
		// Not by this process: a file that it writes may be open in a
		// child process for a moment, and cannot be executed then.
		if out, err := exec.Command("install", "-m", mode, self(t), file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	p := startChanged(t, func(cmd *exec.Cmd) {
		cmd.Path = asNobody
		cmd.Env = append(cmd.Env, becomeRootVariable+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}, e.args("lock", append(patientGrace, "/sudo", "--", asRoot)...)...)
	p.prints(t, "\n")
	var pid int
	if n, _ := fmt.Sscanf(p.text(), "root %d", &pid); n != 1 {
		t.Skip(p.text()) // a file system without such files
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // it has ended, unless the test fails
	p.prints(t, "ready\n")
	p.signal(t, syscall.SIGUSR1)
	const said = "zkr: /sudo: cannot signal command: operation not permitted\n"
	p.prints(t, said)
	if err := client.Delete(t.Context(), "/sudo/"+line(t, client, "/sudo")[0], -1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "zkr says so", func() bool { return strings.Count(p.text(), said) == 2 })
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != exitLost {
		t.Errorf("exit code %d, want %d", code, exitLost)
	}
}

// TestControlZ: Control-Z at the terminal does not stop the command for long,
// also if nobody reads what zkr says about that.
func TestControlZ(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("opens a terminal as Linux does")
	}
	e := startServer(t)
	for _, full := range []bool{false, true} {
		reader, stderr := pipe(t)
		if full {
			fill(t, stderr)
		}
		keyboard, terminal := openTerminal(t)
		p := startChanged(t, func(cmd *exec.Cmd) {
			cmd.Stdin, cmd.Stderr = terminal, stderr
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		}, e.args("lock", "/z", "--", "sh", "-c", `while read line; do echo "heard $line"; done`)...)
		press := func(keys string) {
			t.Helper()
			if _, err := keyboard.WriteString(keys); err != nil {
				t.Fatal(err)
			}
		}
		press("one\n")
		p.prints(t, "heard one\n")
		press("\x1a")
		if !full {
			said := make([]byte, len("zkr: cannot stop the command"))
			if _, err := reader.Read(said); err != nil || string(said) != "zkr: cannot stop the command" {
				t.Errorf("%q, %v", said, err)
			}
		}
		press("two\n")
		p.prints(t, "heard two\n")
		press("\x03")
		if code := p.wait(t); code != 130 {
			t.Errorf("full %v: exit code %d, want 130", full, code)
		}
	}
}

// openTerminal returns the two ends of a terminal.
func openTerminal(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { keyboard.Close() })
	const unlock, number = 0x40045431, 0x80045430 // TIOCSPTLCK, TIOCGPTN
	var n int32
	for _, request := range []uintptr{unlock, number} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, keyboard.Fd(), request, uintptr(unsafe.Pointer(&n))); errno != 0 {
			t.Fatal(errno)
		}
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return keyboard, terminal
}
