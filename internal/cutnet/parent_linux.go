package cutnet

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the child when this process dies.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
