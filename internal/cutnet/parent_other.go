//go:build !linux

package cutnet

import "os/exec"

// dieWithParent does nothing here: a process ends with its input.
func dieWithParent(*exec.Cmd) {}
