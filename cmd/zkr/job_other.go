//go:build unix && !linux

package main

import "syscall"

// dieWithParent does nothing here: if zkr is killed, its command goes on
// without the lock.
func dieWithParent(*syscall.SysProcAttr) {}
