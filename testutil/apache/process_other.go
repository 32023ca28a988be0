//go:build !linux

package apache

import "os/exec"

// dieWithParent has no counterpart here: a test process that is killed leaves its servers behind.
func dieWithParent(*exec.Cmd) {}
