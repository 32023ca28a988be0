//go:build !linux

package child

import "os/exec"

// DieWithParent does nothing here: only Linux can do it.
func DieWithParent(*exec.Cmd) {}
