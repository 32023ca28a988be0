package child

import (
	"os/exec"
	"syscall"
)

// DieWithParent makes the kernel kill a process that has not been started yet
// when the thread that starts it ends. Call it, start the process and wait for
// it in one goroutine that is locked to its thread.
func DieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
