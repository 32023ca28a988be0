//go:build unix && !linux

package main

import "syscall"

// dieWithParent has no counterpart here: a command whose zkr is killed goes on without the lock.
func dieWithParent(*syscall.SysProcAttr) {}
