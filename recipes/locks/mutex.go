package locks

import (
	"context"
	"fmt"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/bridge"
)

// Mutex is a reentrant exclusive lock, first come first served. Goroutines,
// processes and Apache Curator's InterProcessMutex at the same path contend for
// it. It is safe for concurrent use, and all values of one client and path are
// one lock; those in use at the same time must agree in data and ACL.
//
// Each process that wants it has one znode in line,
//
//	<path>/_c_<uuid>-lock-NNNNNNNNNN    ephemeral, sequential
//
// and the first in line holds. A release wakes the next two in line. The first
// of them gets the lock, and the second lists the line to see what is ahead
// now. Goroutines of one process wait in-process, in order, behind that one
// znode, which goes from one to the next in memory: see recipes.WithHandoffs
// and recipes.WithLinger.
//
// It costs what a recipes.Line costs. With recipes.WithAsyncRelease the caller
// does not wait for the release, which can share a request with the next
// create:
//
//   - alone, acquired and released: 3 requests, 2 transactions
//   - acquired again after WithAsyncRelease: 1 request, 1 transaction
//   - a handoff in-process: nothing
//   - a turn in a line of ten: 7 requests, 2 transactions, wakes 2
//
// The first goroutine that waits in-process costs one list. A znode that is
// held for longer is watched, in case somebody else deletes it.
type Mutex struct {
	line  *recipes.Line
	keyed *Keyed // that it is a lock of; nil: none
	bad   error  // why no lock can be there; nil: one can
}

var _ recipes.Acquirer = (*Mutex)(nil)

// NewMutex returns a Mutex at path. It does no I/O: path is created, as a
// container where the ensemble has those, with the first Acquire.
func NewMutex(c *framework.Client, path string, opts ...Option) (*Mutex, error) {
	line, err := newLine(c, path, opts, bridge.Inside{})
	if err != nil {
		return nil, err
	}
	return &Mutex{line: line}, nil
}

// newLine returns the line of a mutex: each contender waits for every other
// ahead, so for its predecessor. That is fair, for the order is that of the
// ensemble's counter.
func newLine(c *framework.Client, path string, opts []Option, in bridge.Inside) (*recipes.Line, error) {
	in, lineOpts, err := newConfig(in, opts)
	if err != nil {
		return nil, fmt.Errorf("locks: path %s: %w", path, err)
	}
	return recipes.NewLine(c, path, "mutex", layout.Exclusive.String(), always, append(lineOpts, in)...)
}

// always is the rule of a mutex: any two contenders conflict.
func always(mine, theirs string) bool { return true }

// Acquire waits until this caller holds the lock. With a context that carries a
// lease on it, or whose owner has one, it returns another lease at once; the
// znode is removed when the last of them is released. If that lease was lost
// the error is ErrNotHeld. See recipes.Acquirer for the other errors.
func (m *Mutex) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return m.acquire(ctx, (*recipes.Line).Acquire)
}

// TryAcquire is Acquire that fails with ErrBusy when it would have to wait for
// another holder. It lists the line before it joins: one list more than
// Acquire. A busy lock costs one list, and one read more if the holder uses
// recipes.WithLinger.
func (m *Mutex) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return m.acquire(ctx, (*recipes.Line).TryAcquire)
}

func (m *Mutex) acquire(ctx context.Context, acquire func(*recipes.Line, context.Context) (*recipes.Lease, error)) (*recipes.Lease, error) {
	switch {
	case m.bad != nil:
		return nil, fmt.Errorf("locks: acquire %s: %w", m.Path(), m.bad)
	case m.keyed != nil:
		return m.keyed.acquire(ctx, m, acquire)
	}
	return acquire(m.line, ctx)
}

// Path returns the path of the lock, in its client's view.
func (m *Mutex) Path() string { return m.line.Path() }

// FullPath returns the path of the lock on the ensemble, its client's chroot
// and namespace included.
func (m *Mutex) FullPath() string { return m.line.FullPath() }

// Held returns the lease on this lock that ctx carries, or that its owner has,
// if it is held. It makes no request.
func (m *Mutex) Held(ctx context.Context) (*recipes.Lease, bool) { return m.line.Held(ctx) }

// Participants lists the holder and the waiters of all processes, in order. A
// process is listed once, however many of its goroutines wait. It costs a list
// and a framework.Client.ReadAll.
func (m *Mutex) Participants(ctx context.Context) ([]recipes.Participant, error) {
	return m.line.Participants(ctx)
}

// Revoke asks p to release the lock: its lease's Revoked is closed, if the
// holder looks at it, and a Curator client's listener is called. Nothing
// enforces it. It fails with zk.ErrNoNode if p has left. It costs one write.
func (m *Mutex) Revoke(ctx context.Context, p recipes.Participant) error {
	return m.line.Revoke(ctx, p)
}
