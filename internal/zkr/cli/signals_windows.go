package cli

import (
	"os"
	"syscall"
)

var passedOn = []os.Signal{os.Interrupt}

// Harmless reports whether a signal is ignored by default.
func Harmless(syscall.Signal) bool { return false }

// AsksToEnd returns true: Control-C is the only signal.
func AsksToEnd(os.Signal) bool { return true }
