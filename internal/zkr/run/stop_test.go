//go:build unix

package run

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

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
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
			jobCommand: jobCommand{to: &cli.Ensemble{}, paths: []string{"/l"}, command: []string{"sh", "-c", `echo > "$0"`, file}, program: "/bin/sh"},
			lostCode:   codeFlag{code: cli.ExitLost},
		}
		err = h.work(lease, nil)
		var end *cli.Exit
		if !errors.As(err, &end) || end.Code != cli.ExitLost || !strings.Contains(err.Error(), "/l: lease lost before sh was started: ") {
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
			h := &leaseCommand{jobCommand: jobCommand{to: &cli.Ensemble{SessionTimeout: 10 * time.Second}}, grace: grace}
			_, _, lease, e := heldInVirtualTime(t, h.stopMargin())
			if err := e.Pause(0); err != nil {
				t.Fatal(err)
			}
			<-lease.Lost()
			left := h.untilKill(lease)
			if early := time.Until(lease.Deadline()) - left; early != h.to.Slack() || early <= 0 {
				t.Errorf("grace %v: SIGKILL is sent %v before the deadline", grace, early)
			}
			if grace+h.to.Slack() <= h.to.SessionTimeout/3 && left != grace {
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
// not stop a zkr that holds a lock, since its command or its script must be
// told of a loss.
func TestTerminalCannotStopZkr(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	for _, sig := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU} {
		path := fmt.Sprintf("/terminal/%d", sig)
		ownGroup := func(cmd *exec.Cmd) { // otherwise its group may be one that no terminal stops
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		}
		for _, test := range []struct {
			command     []string
			first, last string
		}{{nil, "\n", ": lease lost: "}, {[]string{"--", zkrtest.Self(t)}, "ready\n", "stopping\n"}} {
			p := zkrtest.StartChanged(t, ownGroup, e.Args("lock", append(append(zkrtest.PatientGrace, path), test.command...)...)...)
			p.Prints(t, test.first)
			p.Signal(t, sig)
			zkrtest.DeleteFirst(t, client, path)
			if code := p.Wait(t); code != cli.ExitLost || !strings.Contains(p.Text(), test.last) {
				t.Errorf("%v: exit code %d; it printed %q", sig, code, p.Text())
			}
		}
	}
}

// TestLeftInTheGroupIsKilled: after a loss, a process of the command's group
// that ignores SIGTERM is killed although the command itself has ended at
// SIGTERM.
func TestLeftInTheGroupIsKilled(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	for _, verb := range []string{"lock", "elect"} {
		path := "/left/" + verb
		// The rest ignores SIGTERM before the command says that it is ready.
		script := `sh -c 'trap "" TERM; echo "rest $$ ready"; while :; do sleep 0.01; done' & trap 'exit 3' TERM; wait; wait`
		flags := map[string][]string{"elect": {"--once"}}[verb]
		p := zkrtest.Start(t, e.Args(verb, append(append(flags, zkrtest.PatientGrace...), path, "--", "sh", "-c", script)...)...)
		p.Prints(t, " ready\n")
		var rest int
		if _, err := fmt.Sscanf(p.Text(), "rest %d ready", &rest); err != nil {
			t.Fatalf("%v: %q", err, p.Text())
		}
		t.Cleanup(func() { _ = syscall.Kill(rest, syscall.SIGKILL) }) // it has ended, unless the test fails
		zkrtest.DeleteFirst(t, client, path)
		// It ends only when the rest, which has its stdout, has ended, too.
		if code := p.Wait(t); code != cli.ExitLost {
			t.Errorf("%s: exit code %d, want %d", verb, code, cli.ExitLost)
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
	e := zkrtest.StartServer(t)
	p := zkrtest.Start(t, e.Args("elect", "/ignored", "--", "cat", "/proc/self/status")...)
	bubble.AwaitTrue(t, "two terms", func() bool { return strings.Count(p.Text(), "SigIgn:") >= 2 })
	p.Signal(t, syscall.SIGTERM)
	p.Wait(t)
	for text := range strings.Lines(p.Text()) {
		var ignored uint64
		if n, _ := fmt.Sscanf(text, "SigIgn: %x", &ignored); n != 1 {
			continue
		}
		for _, sig := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU} {
			if ignored&(1<<(sig-1)) != 0 {
				t.Errorf("the command ignores %v", sig)
			}
		}
	}
}

// TestStartedToIgnore: the command ignores the signals that zkr was started to
// ignore, as far as zkr can see them, however often it runs one. SIGQUIT it
// cannot see: the help says so.
func TestStartedToIgnore(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	e := zkrtest.StartServer(t)
	p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", `trap "" HUP INT QUIT TSTP TTIN TTOU; exec "$0" "$@"`}, cmd.Args...)
		cmd.Path = "/bin/sh"
	}, e.Args("elect", "/ignored", "--", "cat", "/proc/self/status")...)
	bubble.AwaitTrue(t, "two terms", func() bool { return strings.Count(p.Text(), "SigIgn:") >= 2 })
	p.Signal(t, syscall.SIGTERM)
	p.Wait(t)
	for text := range strings.Lines(p.Text()) {
		var ignored uint64
		if n, _ := fmt.Sscanf(text, "SigIgn: %x", &ignored); n != 1 {
			continue
		}
		for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU} {
			if ignored&(1<<(sig-1)) == 0 {
				t.Errorf("the command does not ignore %v", sig)
			}
		}
		if ignored&(1<<(syscall.SIGQUIT-1)) != 0 {
			t.Error("the command ignores SIGQUIT: the help says that this cannot be kept")
		}
	}
}

// TestStoppedCommandIsToldToEnd: a command that somebody has stopped hears of a
// signal that asks it to end.
func TestStoppedCommandIsToldToEnd(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	p := zkrtest.Start(t, e.Args("lock", "/stopped", "--", "sh", "-c", `echo ready; kill -STOP $$; sleep 1000`)...)
	p.Prints(t, "ready\n")
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t); code != 143 {
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
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	asNobody, asRoot := filepath.Join(dir, "zkr"), filepath.Join(dir, "command")
	for file, mode := range map[string]string{asNobody: "755", asRoot: "4755"} {
		// Not by this process: a file that it writes may be open in a
		// child process for a moment, and cannot be executed then.
		if out, err := exec.Command("install", "-m", mode, zkrtest.Self(t), file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) {
		cmd.Path = asNobody
		cmd.Env = append(cmd.Env, zkrtest.BecomeRootVariable+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}, e.Args("lock", append(zkrtest.PatientGrace, "/sudo", "--", asRoot)...)...)
	p.Prints(t, "\n")
	var pid int
	if n, _ := fmt.Sscanf(p.Text(), "root %d", &pid); n != 1 {
		t.Skip(p.Text()) // a file system without such files
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // it has ended, unless the test fails
	p.Prints(t, "ready\n")
	p.Signal(t, syscall.SIGUSR1)
	const said = "zkr: /sudo: cannot signal command: operation not permitted\n"
	p.Prints(t, said)
	zkrtest.DeleteFirst(t, client, "/sudo")
	bubble.AwaitTrue(t, "zkr says so", func() bool { return strings.Count(p.Text(), said) == 2 })
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.Wait(t); code != cli.ExitLost {
		t.Errorf("exit code %d, want %d", code, cli.ExitLost)
	}
}

// TestControlZ: Control-Z at the terminal does not stop the command for long,
// also if nobody reads what zkr says about that.
func TestControlZ(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("opens a terminal as Linux does")
	}
	e := zkrtest.StartServer(t)
	for _, full := range []bool{false, true} {
		reader, stderr := pipe(t)
		if full {
			fill(t, stderr)
		}
		keyboard, terminal := openTerminal(t)
		p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) {
			cmd.Stdin, cmd.Stderr = terminal, stderr
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		}, e.Args("lock", "/z", "--", "sh", "-c", `while read line; do echo "heard $line"; done`)...)
		press := func(keys string) {
			t.Helper()
			if _, err := keyboard.WriteString(keys); err != nil {
				t.Fatal(err)
			}
		}
		press("one\n")
		p.Prints(t, "heard one\n")
		press("\x1a")
		if !full {
			said := make([]byte, len("zkr: cannot stop the command"))
			if _, err := reader.Read(said); err != nil || string(said) != "zkr: cannot stop the command" {
				t.Errorf("%q, %v", said, err)
			}
		}
		press("two\n")
		p.Prints(t, "heard two\n")
		press("\x03")
		if code := p.Wait(t); code != 130 {
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
