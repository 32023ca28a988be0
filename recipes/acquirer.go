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
	// somebody else. It looks before it joins, so that a busy lock costs one read.
	//
	// What only lingers (WithLinger) makes room for it: TryAcquire joins the line
	// behind it and waits for the answer, a round trip or two, and fails with ErrBusy
	// if the lock is in use again or there is no answer in a third of the session
	// timeout. That costs a read more than a lock that does not linger.
	//
	// While no server answers it waits for one, as Acquire does, for a whole budget
	// of the client's retry policy: only ctx bounds it further.
	TryAcquire(ctx context.Context) (*Lease, error)
	// Path is the path of the recipe, in its client's view.
	Path() string
}
