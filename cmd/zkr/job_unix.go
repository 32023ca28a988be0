//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"
)

var passedOn = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
	syscall.SIGWINCH,
}

// harmless reports whether a signal does nothing to a process that does not ask for it.
func harmless(sig syscall.Signal) bool { return sig == syscall.SIGWINCH }

// asksToEnd reports whether a signal is for all of a program, and not for it to go on with.
func asksToEnd(sig os.Signal) bool {
	switch sig {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP:
		return true
	default:
		return false
	}
}

// job is a command in a process group of its own.
type job struct {
	group    int  // its id, which is the command's process id too
	terminal bool // the group has the terminal, which was ours and will be

	ended chan struct{} // closed once the command has ended
	code  int           // its exit code, as a shell gives it; read after ended
}

// startJob starts a command with our stdin, stdout and stderr. Where stdin is a terminal that we may use, the job may use it.
func startJob(program string, args, env []string) (*job, error) {
	cmd := exec.Command(program, args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)

	j := &job{ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() { // ends with the command
		// Linux takes the death of the thread that started a child for the parent's death: keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			j.group = cmd.Process.Pid
			if terminalGroup() == syscall.Getpgrp() {
				// From here on we are a background group, which would be stopped for what giveTerminal and takeTerminal do.
				// The command has been started: it does not inherit this.
				signal.Ignore(syscall.SIGTTOU)
				j.terminal = true
				j.giveTerminal()
			}
		}
		started <- err
		if err == nil {
			j.wait()
		}
	}()
	return j, <-started
}

// wait sees the command stop, too, which os.Process.Wait does not.
func (j *job) wait() {
	defer close(j.ended)
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(j.group, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // somebody reaped our child
			j.code = exitFailed
			j.takeTerminal()
			return
		case status.Stopped():
			if j.terminal {
				// Control-Z, or a read before the terminal was handed over. A shell would take the terminal back and leave the
				// job stopped; but this one holds what others wait for, and zkr would lose it if it stopped with it.
				if status.StopSignal() == syscall.SIGTSTP {
					fmt.Fprintln(os.Stderr, "zkr: cannot be suspended while others may wait for the lock")
				}
				j.giveTerminal()
			}
		case status.Signaled():
			j.code = exitSignal + int(status.Signal())
			j.takeTerminal()
			return
		case status.Exited():
			j.code = status.ExitStatus()
			j.takeTerminal()
			return
		}
	}
}

// The group may be gone already; a signal to nobody is no error.

func (j *job) signal(sig os.Signal) { _ = syscall.Kill(-j.group, sig.(syscall.Signal)) }

// terminate asks the job to end. One that is stopped could not hear it.
func (j *job) terminate() {
	_ = syscall.Kill(-j.group, syscall.SIGTERM)
	_ = syscall.Kill(-j.group, syscall.SIGCONT)
}

func (j *job) kill() { _ = syscall.Kill(-j.group, syscall.SIGKILL) }

// giveTerminal makes the job's group the terminal's foreground group, if it was ours to give, so that it may read from it
// and hears Control-C. It may have been stopped for reading too early.
func (j *job) giveTerminal() {
	if j.terminal {
		setTerminalGroup(j.group)
		_ = syscall.Kill(-j.group, syscall.SIGCONT)
	}
}

// takeTerminal takes it back.
func (j *job) takeTerminal() {
	if j.terminal {
		setTerminalGroup(syscall.Getpgrp())
	}
}

// interrupted reports, once the job has ended, whether it was Control-C at the terminal that ended it. While the terminal is
// the job's we do not hear of that ourselves.
func (j *job) interrupted() bool {
	return j.terminal && (j.code == exitSignal+int(syscall.SIGINT) || j.code == exitSignal+int(syscall.SIGQUIT))
}

// terminalGroup returns the foreground group of the terminal that stdin is, or -1 if it is none.
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
