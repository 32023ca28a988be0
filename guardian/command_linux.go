package guardian

import (
	"os/exec"
	"syscall"

	"github.com/zkrecipes/zkrecipes/internal/guard"
)

// command starts a command, and tells the guardian of its group before anybody
// can wait for it.
func (g *Guardian) command(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pgid = true, 0
	told := g.ward.Starting()
	if err := cmd.Start(); err != nil {
		told.Ended()
		return err
	}
	ended := guard.AwaitEnd(cmd.Process.Pid)
	told.Started(cmd.Process.Pid)
	if ended == nil { // the guardian is lost for the same reason
		return nil
	}
	go func() { // ends with the command
		<-ended
		told.Ended()
	}()
	return nil
}
