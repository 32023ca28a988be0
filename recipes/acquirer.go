package recipes

import (
	"context"
	"fmt"
	"time"
)

// An Acquirer acquires leases. Every recipe is one.
type Acquirer interface {
	// Acquire waits in line until it is granted. It fails when ctx ends, and then
	// errors.Is finds both ctx's error and its cause; with framework.ErrClosed when
	// the client closes; with zk.ErrNoAuth, ErrLayout or ErrExhausted, which waiting
	// does not fix; and when no server answers for all of one budget of the
	// client's retry policy, in any of its steps. When it fails, its znode is removed
	// in the background, at the latest when the session ends. A lost session costs it its place in line, not the call.
	Acquire(ctx context.Context) (*Lease, error)
	// TryAcquire is Acquire that fails with ErrBusy when it would have to wait for
	// another holder. It looks before it joins: a busy lock costs one list.
	//
	// A znode that only lingers (WithLinger) makes room for it: TryAcquire joins the
	// line behind it and waits for the answer, a round trip or two. It fails with
	// ErrBusy if the lock is in use again, or if there is no answer in a third of the
	// session timeout. That costs a read more than a lock that does not linger.
	//
	// While no server answers it waits for one, as Acquire does, for a whole budget
	// of the client's retry policy: only ctx bounds it further.
	TryAcquire(ctx context.Context) (*Lease, error)
	// Path returns the path of the recipe, in its client's view.
	Path() string
}

// Try returns an Acquirer whose Acquire is a's TryAcquire: Do fails with ErrBusy
// then, instead of waiting.
func Try(a Acquirer) Acquirer { return try{a} }

type try struct{ Acquirer }

func (t try) Acquire(ctx context.Context) (*Lease, error) { return t.TryAcquire(ctx) }

func (t try) FullPath() string { return FullPath(t.Acquirer) }

// Within returns an Acquirer that waits at most d to acquire a; then errors.Is finds
// context.DeadlineExceeded. d bounds the wait alone: the work under the lease keeps
// its own context.
func Within(a Acquirer, d time.Duration) Acquirer { return within{a, d} }

type within struct {
	Acquirer
	d time.Duration
}

func (w within) Acquire(ctx context.Context) (*Lease, error) {
	return w.bounded(ctx, w.Acquirer.Acquire)
}

func (w within) TryAcquire(ctx context.Context) (*Lease, error) {
	return w.bounded(ctx, w.Acquirer.TryAcquire)
}

func (w within) bounded(ctx context.Context, acquire func(context.Context) (*Lease, error)) (*Lease, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.d, fmt.Errorf("not acquired within %v", w.d))
	defer cancel()
	return acquire(ctx)
}

func (w within) FullPath() string { return FullPath(w.Acquirer) }

// FullPath returns a's path on the ensemble, if a has a method FullPath() string, as
// the recipes of this module have; otherwise its Path.
func FullPath(a Acquirer) string {
	if a, ok := a.(interface{ FullPath() string }); ok {
		return a.FullPath()
	}
	return a.Path()
}
