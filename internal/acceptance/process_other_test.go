//go:build !linux

package acceptance_test

import "os/exec"

// dieWithParent has no counterpart here: a process ends with its input.
func dieWithParent(*exec.Cmd) {}
