//go:build unix

package apache

import (
	"os"
	"syscall"
)

func freeze(p *os.Process, frozen bool) error {
	if frozen {
		return p.Signal(syscall.SIGSTOP)
	}
	return p.Signal(syscall.SIGCONT)
}
