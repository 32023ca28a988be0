package line

import (
	"errors"
	"fmt"
)

// The errors of this package that callers tell apart. Package recipes exports
// them.
var (
	ErrBusy      = errors.New("lock is busy")
	ErrNotHeld   = errors.New("not held")
	ErrReleased  = errors.New("released")
	ErrLayout    = errors.New("path is used with another layout")
	ErrExhausted = errors.New("sequence numbers of the directory cannot be relied on")
	ErrMaxHold   = errors.New("maximum hold time exceeded")
)

// errNotInLine says that a contender's znode is not in line. errNoDirectory
// says that it may not be in line: its directory was not found.
var (
	errNotInLine   = errors.New("znode is not in line")
	errNoDirectory = fmt.Errorf("%w: directory not found", errNotInLine)
)

// errExited says that user code has ended the goroutine that has called it.
var errExited = errors.New("the line's conflicts function ended its goroutine")

// notHeld wraps the reason.
func notHeld(reason error) error { return fmt.Errorf("%w: %w", ErrNotHeld, reason) }
