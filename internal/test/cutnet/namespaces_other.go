//go:build !linux

package cutnet

import (
	"errors"
	"os/exec"
)

// Namespaces is a network of namespaces, which only Linux has.
type Namespaces struct{ Relays }

var errNoNamespaces = errors.New("only Linux has network namespaces")

// NewNamespaces fails.
func NewNamespaces(int) (*Namespaces, error) { return nil, errNoNamespaces }

// Main returns.
func Main() {}

// Isolate does nothing.
func Isolate(*exec.Cmd) {}

// Isolated returns false.
func Isolated() bool { return false }

func tryNamespace() error { return errNoNamespaces }
