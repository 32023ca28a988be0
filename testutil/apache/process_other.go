//go:build !linux

package apache

import "os/exec"

// dieWithParent does nothing here: a test process that is killed leaves its
// servers running.
func dieWithParent(*exec.Cmd) {}
