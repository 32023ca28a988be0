package main

import "syscall"

// dieWithParent has the kernel kill the command when zkr is killed: nobody would be left to stop it when the lock is lost.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
