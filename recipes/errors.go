package recipes

import (
	"errors"

	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// The errors to be told apart by errors.Is. Those of the framework (ErrClosed,
// ErrSessionLost) and of the wire client pass through.
var (
	// ErrBusy is TryAcquire's when it would have to wait for somebody else.
	ErrBusy = line.ErrBusy
	// ErrNotHeld says that a lease was needed that is not held any more; what
	// ended it is wrapped beside it.
	ErrNotHeld = line.ErrNotHeld
	// ErrReleased is the Err of a lease that was released, and the cause of the
	// end of its context.
	ErrReleased = line.ErrLeft
	// ErrLayout says that another recipe, or another layout of the same one, uses
	// the path: the two would not see each other.
	ErrLayout = line.ErrLayout
	// ErrExhausted says that the directory's sequence numbers, of 31 bits, are
	// used up: order cannot be relied on any more. Remove the directory while
	// nobody uses it; a new one counts from 0.
	ErrExhausted = line.ErrExhausted
	// ErrMaxHold is the Err of a lease that was held for as long as its recipe's
	// option allows.
	ErrMaxHold = line.ErrMaxHold
)

// errForeign is for operations that no one multi can guard.
var errForeign = errors.New("its parts belong to different clients, or namespaces of one")
