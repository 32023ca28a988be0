package locks

import (
	"context"
	"fmt"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// Mutex is a reentrant exclusive lock, first come first served, that goroutines,
// processes and Apache Curator's InterProcessMutex at the same path contend for.
// It is safe for concurrent use, and all values of one client and path are one
// lock; those in use at the same time must agree in data and ACL.
//
// Each process that wants it has one znode in line,
//
//	<path>/_c_<uuid>-lock-NNNNNNNNNN    ephemeral, sequential
//
// and the first in line holds. Each waits for its predecessor only, so a release
// wakes one waiter. Goroutines of one process queue at home, in order, behind that
// one znode, which goes from one to the next in memory: see WithHandover and
// WithLinger.
//
// An uncontended Acquire costs a create and a list, in one round trip, and Release
// a delete. A contended Acquire costs a watch and a list more for each time that its
// predecessor leaves, or nothing where it is served at home, after one list when the
// first of them comes to wait. What is held for longer is watched, against its
// deletion by somebody else.
type Mutex struct {
	line  *line.Line
	keyed *Keyed // that it is a lock of; nil: none
	bad   error  // why no lock can be there; nil: one can
}

var _ recipes.Acquirer = (*Mutex)(nil)

// NewMutex makes a Mutex at path. It does no I/O: the path comes into being, as a
// container where the ensemble has those, with the first Acquire.
func NewMutex(c *framework.Client, path string, opts ...Option) (*Mutex, error) {
	cfg, rule, err := newConfig(opts)
	if err != nil {
		return nil, fmt.Errorf("locks: mutex: path %s: %w", path, err)
	}
	l, err := line.New(c, path, rule, cfg.Config)
	if err != nil {
		return nil, fmt.Errorf("locks: mutex: %w", err)
	}
	return &Mutex{line: l}, nil
}

// mutexRule: whoever is directly ahead goes first. The order is that of the
// ensemble's counter, which nobody can jump.
var mutexRule = line.Rule{
	Kind:    "mutex",
	Base:    layout.CuratorLockName,
	Family:  layout.CuratorLock,
	Blocker: line.Predecessor,
}

var kazooRule = line.Rule{
	Kind:    "mutex",
	Base:    layout.KazooLockName,
	Family:  layout.KazooLock,
	Stays:   true,
	Blocker: line.Predecessor,
}

// Acquire waits until this caller holds the lock. With a context that carries a
// lease on it, or whose owner has one, it returns another lease at once; the znode
// goes when the last of them is released. If that lease was lost the error is
// ErrNotHeld. See recipes.Acquirer for when it fails otherwise.
func (m *Mutex) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return m.acquire(ctx, m.line.Wait)
}

// TryAcquire is Acquire that fails with ErrBusy when it would have to wait for
// somebody else. It looks at the line before it joins: one list more than Acquire,
// and nothing else where the lock is taken.
func (m *Mutex) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return m.acquire(ctx, m.line.Try)
}

func (m *Mutex) acquire(ctx context.Context, enter func(context.Context) (*line.Place, error)) (*recipes.Lease, error) {
	grant := func(ctx context.Context) (*recipes.Lease, error) {
		if l, ok, err := recipes.Reenter(ctx, m.line); ok {
			return l, err
		}
		place, err := enter(ctx)
		if err != nil {
			return nil, err
		}
		return recipes.NewLease(ctx, place), nil
	}
	var l *recipes.Lease
	err := m.bad
	switch {
	case err != nil:
	case m.keyed != nil:
		l, err = m.keyed.acquire(ctx, grant)
	default:
		l, err = grant(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("locks: acquire %s: %w", m.Path(), err)
	}
	return l, nil
}

// Path is the path of the lock, in its client's view.
func (m *Mutex) Path() string { return m.line.Dir() }

// FullPath is the path of the lock on the ensemble, its client's chroot and
// namespace included.
func (m *Mutex) FullPath() string { return m.line.Client().Resolve(m.Path()) }

// Held gives the lease on this lock that ctx carries, or that its owner has, if it
// is held. It makes no request.
func (m *Mutex) Held(ctx context.Context) (*recipes.Lease, bool) { return recipes.Held(ctx, m.line) }

// Participants lists who holds and who waits, in order, of all processes; a
// process is listed once, however many of its goroutines wait. It costs a list and
// a read for each.
func (m *Mutex) Participants(ctx context.Context) ([]recipes.Participant, error) {
	members, err := m.line.Members(ctx)
	if err != nil {
		return nil, fmt.Errorf("locks: participants of %s: %w", m.Path(), err)
	}
	return recipes.Participants(members), nil
}

// Revoke asks p to release the lock: its lease's Revoked is closed, if it looks at
// it, and so is a Curator client's listener told. Nothing enforces it. It returns
// zk.ErrNoNode if p has left.
func (m *Mutex) Revoke(ctx context.Context, p recipes.Participant) error {
	if err := m.line.Revoke(ctx, p.Path); err != nil {
		return fmt.Errorf("locks: revoke: %w", err)
	}
	return nil
}
