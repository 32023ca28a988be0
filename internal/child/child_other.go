//go:build !linux

package child

import "os/exec"

// DieWithParent does nothing here: only Linux can do it.
func DieWithParent(*exec.Cmd) {}

// Start starts a command. The caller waits for it, and then calls Ended.
func Start(cmd *exec.Cmd) error { return cmd.Start() }

// Ended does nothing here.
func Ended(int) {}

// ReapOrphans does nothing here: containers are for Linux.
func ReapOrphans() {}
