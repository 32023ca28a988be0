package recipes

import "context"

// An Acquirer is what every recipe is to those who use it.
type Acquirer interface {
	// Acquire waits in line until it is granted. It fails when ctx ends, and then
	// errors.Is finds both ctx's error and its cause; with framework.ErrClosed when
	// the client closes; with zk.ErrNoAuth, ErrLayout or ErrExhausted, which no
	// waiting would mend; and when no server answers for all of one budget of the
	// client's retry policy, in any of its steps. Whenever it fails nothing of it
	// stays in line. A lost session costs it its place in line, not the call.
	Acquire(ctx context.Context) (*Lease, error)
	// TryAcquire is Acquire that fails with ErrBusy when it would have to wait for
	// somebody else. It looks before it joins.
	TryAcquire(ctx context.Context) (*Lease, error)
	// Path is the path of the recipe, in its client's view.
	Path() string
}
