package main

import "syscall"

// dieWithParent makes the kernel kill the command if zkr is killed: nothing
// else would stop it when the lock is lost.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
