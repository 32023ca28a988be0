//go:build unix

package cli

import (
	"os"
	"syscall"
)

var passedOn = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
	syscall.SIGWINCH,
}

// Harmless reports whether a signal is ignored by default.
func Harmless(sig syscall.Signal) bool { return sig == syscall.SIGWINCH }

// AsksToEnd reports whether a signal asks a program to end.
func AsksToEnd(sig os.Signal) bool {
	switch sig {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP:
		return true
	default:
		return false
	}
}
