package recipes

import (
	"errors"

	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// The errors to tell apart with errors.Is. Those of the framework (ErrClosed,
// ErrSessionLost) and of the wire client pass through.
var (
	// ErrBusy is returned by TryAcquire when the lock is busy.
	ErrBusy = line.ErrBusy
	// ErrNotHeld is returned when the lease is no longer held. It wraps the
	// reason.
	ErrNotHeld = line.ErrNotHeld
	// ErrReleased is the Err of a lease that was released, and the cause of the
	// end of its context.
	ErrReleased = line.ErrReleased
	// ErrLayout is returned when another recipe, or another layout of the same
	// one, uses the path: the two would not see each other.
	ErrLayout = line.ErrLayout
	// ErrExhausted is returned when the directory's sequence numbers, of 31 bits,
	// no longer give an order: they are used up, or two contenders have the same
	// one, as at the end of the numbers or from members whose trees differ. The
	// text says which. Remove the directory while nobody uses it; a new one counts
	// from 0.
	ErrExhausted = line.ErrExhausted
	// ErrMaxHold is the Err of a lease that was held for as long as WithMaxHold
	// allows.
	ErrMaxHold = line.ErrMaxHold
	// ErrDeadlock is returned when the caller's context carries a conflicting
	// lease of the same lock: Acquire would never return.
	ErrDeadlock = errors.New("would deadlock: the context carries a conflicting lease of the same lock")
)

// errDifferentClients is for operations that no single multi can guard.
var errDifferentClients = errors.New("the parts belong to different clients, or namespaces of one")
