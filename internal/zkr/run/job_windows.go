package run

import (
	"os"
	"os/exec"
	"syscall"
)

// outliveTerminal does nothing: no terminal stops a process.
func outliveTerminal() {}

// job is a command in its own process group.
type job struct {
	process *os.Process
	ended   chan struct{} // closed when the command has ended
	stopped chan struct{} // never: there is no Control-Z
	code    int           // its exit code; read after ended
}

// startJob starts a command with our stdin, stdout and stderr.
func startJob(program string, args, env []string) (*job, error) {
	cmd := exec.Command(program, args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	j := &job{process: cmd.Process, ended: make(chan struct{})}
	go func() { // ends with the command
		defer close(j.ended)
		_ = cmd.Wait() // the exit code tells
		j.code = cmd.ProcessState.ExitCode()
	}()
	return j, nil
}

var generateConsoleCtrlEvent = syscall.NewLazyDLL("kernel32.dll").NewProc("GenerateConsoleCtrlEvent")

// signal sends Control-Break: Control-C does not reach another process group.
func (j *job) signal(os.Signal) error {
	_, _, _ = generateConsoleCtrlEvent.Call(syscall.CTRL_BREAK_EVENT, uintptr(j.process.Pid))
	return nil
}

func (j *job) terminate() error { return j.signal(nil) }

// kill ends the command, but not the processes it has started: Windows cannot
// signal a group.
func (j *job) kill() { _ = j.process.Kill() }

// interrupted returns false: Control-C reaches us, and we pass it to the job.
func (j *job) interrupted() bool { return false }
