package run

import (
	"os"
	"os/exec"
	"syscall"
)

// outliveTerminal does nothing: no terminal stops a process.
func outliveTerminal() {}

// startTold is startJob: there are no guardians to be told.
func startTold(program string, args, env []string, _ func(id int)) (*job, error) {
	return startJob(program, args, env)
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
	j := &job{ended: make(chan struct{})} // never stopped or interrupted: there is no Control-Z, and Control-C reaches us, and we pass it on
	j.signal = func(os.Signal) error {    // Control-Break: Control-C does not reach another process group
		_, _, _ = generateConsoleCtrlEvent.Call(syscall.CTRL_BREAK_EVENT, uintptr(cmd.Process.Pid))
		return nil
	}
	// It ends the command, but not the processes that it has started:
	// Windows cannot signal a group.
	j.kill = func() { _ = cmd.Process.Kill() }
	go func() { // ends with the command
		defer close(j.ended)
		_ = cmd.Wait() // the exit code tells
		j.code = cmd.ProcessState.ExitCode()
	}()
	return j, nil
}

var generateConsoleCtrlEvent = syscall.NewLazyDLL("kernel32.dll").NewProc("GenerateConsoleCtrlEvent")
