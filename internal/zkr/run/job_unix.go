//go:build unix

package run

import (
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/zkrecipes/zkrecipes/internal/child"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// group is a job's process group.
type group struct {
	*job
	id       int  // which is also the command's process id
	terminal bool // it owns the terminal, which was ours before
}

// startJob starts a command with our stdin, stdout and stderr. If stdin is a
// terminal and we own it, the job gets it.
func startJob(program string, args, env []string) (*job, error) {
	return startTold(program, args, env, func(int) {})
}

// startTold is startJob. It calls began with the id of the command, which leads
// its group, before anything waits for it.
func startTold(program string, args, env []string, began func(id int)) (*job, error) {
	cmd := exec.Command(program, args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	child.DieWithParent(cmd) // nothing else would stop it when the lock is lost

	j := &group{job: &job{ended: make(chan struct{}), stopped: make(chan struct{}, 1)}}
	j.signal, j.kill = j.pass, func() { _ = syscall.Kill(-j.id, syscall.SIGKILL) }
	started := make(chan error, 1)
	go func() { // ends with the command
		// Linux treats the end of the thread that started a child as
		// the parent's death, so keep the thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := startOnTerminal(cmd)
		if err == nil {
			j.id = cmd.Process.Pid
			began(j.id)
			if terminalGroup() == syscall.Getpgrp() {
				j.terminal = true
				j.giveTerminal()
			}
		}
		started <- err
		if err == nil {
			j.wait()
		}
	}()
	return j.job, <-started
}

// stopping returns the signals by which a terminal would stop zkr, which then
// could not stop its command: Control-Z, and reads and writes in the
// background, where zkr is once it has given the terminal to the command. The
// ones that zkr was started to ignore are not among them: the command is to
// ignore them as well.
var stopping = sync.OnceValue(func() []os.Signal {
	return slices.DeleteFunc([]os.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}, isIgnored)
})

// isIgnored reports whether a signal is ignored that Go has not touched, of
// which signal.Ignored knows nothing. On systems other than Linux it does not
// know it, either.
func isIgnored(sig os.Signal) bool {
	status, _ := os.ReadFile("/proc/self/status") // elsewhere there is none
	_, mask, _ := strings.Cut(string(status), "\nSigIgn:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	ignored, _ := strconv.ParseUint(mask, 16, 64)
	return ignored&(1<<(sig.(syscall.Signal)-1)) != 0
}

// outliveTerminal keeps a terminal from stopping zkr, which then could not tell
// of a loss.
func outliveTerminal() {
	for _, sig := range stopping() {
		signal.Ignore(sig)
	}
}

// startOnTerminal starts the command. From then on no terminal can stop zkr.
func startOnTerminal(cmd *exec.Cmd) error {
	for _, sig := range stopping() {
		signal.Notify(make(chan os.Signal, 1), sig) // the command inherits what is ignored, but not this
		defer signal.Ignore(sig)
	}
	return child.Start(cmd)
}

// wait also sees the command stop, which os.Process.Wait does not.
func (j *group) wait() {
	defer close(j.ended)
	defer child.Ended(j.id)
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(j.id, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // something else has reaped our child
			j.code = cli.ExitFailed
			j.takeTerminal()
			return
		case status.Stopped():
			if j.terminal {
				// Control-Z, or a read before the job got the terminal. A shell would take
				// the terminal back and leave the job stopped. But others may wait for this
				// lock, and zkr would lose it if it stopped as well.
				j.giveTerminal()
				if status.StopSignal() == syscall.SIGTSTP {
					select {
					case j.stopped <- struct{}{}:
					default: // it is about to be told
					}
				}
			}
		case status.Signaled():
			j.code = cli.ExitSignal + int(status.Signal())
			j.takeTerminal()
			return
		case status.Exited():
			j.code = status.ExitStatus()
			j.takeTerminal()
			return
		}
	}
}

// The group may be gone already. A signal to no process is no error.

// pass passes a signal on. A stopped job must be continued to receive it.
func (j *group) pass(sig os.Signal) error {
	err := syscall.Kill(-j.id, sig.(syscall.Signal))
	if cli.AsksToEnd(sig) {
		_ = syscall.Kill(-j.id, syscall.SIGCONT)
	}
	if err == syscall.EPERM {
		return err
	}
	return nil
}

// giveTerminal makes the job's group the terminal's foreground group if we own
// the terminal, so that the job can read from it and receives Control-C. The
// job may have been stopped for reading too early, and is continued.
func (j *group) giveTerminal() {
	if j.terminal {
		setTerminalGroup(j.id)
		_ = syscall.Kill(-j.id, syscall.SIGCONT)
	}
}

// takeTerminal takes the terminal back from a job that has ended. While the job
// has it we do not receive Control-C.
func (j *group) takeTerminal() {
	if j.terminal {
		j.interrupted = j.code == cli.ExitSignal+int(syscall.SIGINT) || j.code == cli.ExitSignal+int(syscall.SIGQUIT)
		setTerminalGroup(syscall.Getpgrp())
	}
}

// terminalGroup returns the foreground group of the terminal at stdin, or -1 if
// stdin is no terminal.
func terminalGroup() int {
	group := int32(-1)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, os.Stdin.Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group))); errno != 0 {
		return -1
	}
	return int(group)
}

func setTerminalGroup(id int) {
	group := int32(id)
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, os.Stdin.Fd(), syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&group)))
}
