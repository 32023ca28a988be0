package acceptance_test

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the child when we die, however we do.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
