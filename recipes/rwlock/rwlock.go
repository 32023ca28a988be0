// Package rwlock has the shared/exclusive lock: many readers at once, or one
// writer alone.
//
//	rw, err := rwlock.New(client, "/app/config")
//	...
//	err = recipes.Do(ctx, rw.Reader(), func(ctx context.Context, l *recipes.Lease) error {
//		return read(ctx) // beside other readers; ctx ends when the lock is lost
//	})
package rwlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// RWLock is a reentrant shared/exclusive lock, first come first served: readers
// that come while a writer waits queue behind it, so that neither side starves the
// other. It is safe for concurrent use, and all values of one client, path and
// layout are one lock; those in use at the same time must agree in data, ACL and
// host.
//
//	<path>/_c_<uuid>-<host>-R-NNNNNNNNNN    a reader: ephemeral, sequential
//	<path>/_c_<uuid>-<host>-W-NNNNNNNNNN    a writer: the same
//
// A reader waits for the last writer before it and watches that one alone, a
// writer waits for whoever is directly before it. So a release wakes exactly those
// who may go on, one look of a writer behind several readers excepted: the one
// that it watched may leave before the others.
//
// The goroutines of a process that wait to read when the turn comes share one
// znode, and those that come later share it too, while no writer waits, here or
// elsewhere; from then on they join the line anew. Writers queue at home, in order,
// behind one znode, which goes from one to the next in memory: see WithHandover and
// WithLinger.
//
// An uncontended Acquire of either side costs a create and a list, in one round
// trip, and Release a delete. That of a reader who shares, or of a writer who is
// served at home, costs nothing, after one list when the first of them comes.
type RWLock struct {
	read, write *line.Line
}

// ErrUpgrade says that the caller holds the lock for reading and wants to write: it
// would wait for itself. Release the read lease first, and look again at what was
// read under it.
var ErrUpgrade = errors.New("held for reading: a read lease cannot be upgraded")

// New makes an RWLock at path. It does no I/O: the path comes into being, as a
// container where the ensemble has those, with the first Acquire.
func New(c *framework.Client, path string, opts ...Option) (*RWLock, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, fmt.Errorf("rwlock: path %s: %w", path, err)
	}
	rule, reading, writing := cfg.layout.rule(cfg.host)
	rule.Kind, rule.Base, rule.Mode = "read", reading, layout.Shared
	read, err := line.New(c, path, rule, cfg.Config)
	if err != nil {
		return nil, fmt.Errorf("rwlock: %w", err)
	}
	rule.Kind, rule.Base, rule.Mode = "write", writing, layout.Exclusive
	write, err := line.New(c, path, rule, cfg.Config)
	if err != nil {
		return nil, fmt.Errorf("rwlock: %w", err)
	}
	return &RWLock{read, write}, nil
}

// blocker: a writer waits for whoever is directly ahead; a reader for the last
// write ahead, so that nothing but that write's end wakes it. The write whose
// number it has is the one that it came from, and no obstacle. It is fair, for the
// order is the ensemble's: a write that waits stands before all reads that came
// later, and those before all writes that come then.
func blocker(own layout.Node, ahead []layout.Node) (layout.Node, bool) {
	if own.Mode == layout.Exclusive {
		return line.Predecessor(own, ahead)
	}
	for i := len(ahead) - 1; i >= 0; i-- {
		if ahead[i].Mode == layout.Exclusive && ahead[i].Seq != own.Seq {
			return ahead[i], true
		}
	}
	return layout.Node{}, false
}

// Reader acquires the lock for reading, beside other readers.
//
// With a context that carries a read lease on it, or whose owner has one, Acquire
// gives another lease at once. With one that carries a write lease it downgrades:
// the read lease has a znode of its own, which stands where the write's does and
// keeps that place when the write lease is released, so that no writer who waits
// gets in between. It has the write lease's token.
func (rw *RWLock) Reader() recipes.Acquirer { return reader{rw} }

// Writer acquires the lock for writing, alone.
//
// With a context that carries a write lease on it, or whose owner has one, Acquire
// gives another lease at once. With one that carries a read lease only it fails at
// once with ErrUpgrade.
func (rw *RWLock) Writer() recipes.Acquirer { return writer{rw} }

// Path is the path of the lock, in its client's view.
func (rw *RWLock) Path() string { return rw.read.Dir() }

// FullPath is the path of the lock on the ensemble, its client's chroot and
// namespace included.
func (rw *RWLock) FullPath() string { return rw.read.Client().Resolve(rw.Path()) }

type reader struct{ *RWLock }

func (r reader) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return r.acquire(ctx, r.read.Wait)
}

func (r reader) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return r.acquire(ctx, r.read.Try)
}

func (r reader) acquire(ctx context.Context, enter func(context.Context) (*line.Place, error)) (*recipes.Lease, error) {
	if writing := recipes.Carried(ctx, r.write); writing != nil && recipes.Carried(ctx, r.read) == nil {
		wait := enter
		enter = func(ctx context.Context) (*line.Place, error) {
			p, err := writing.Beside(ctx, r.read)
			if errors.Is(err, recipes.ErrReleased) { // just now: it is carried no more
				return wait(ctx)
			}
			return p, err
		}
	}
	return enterOrReenter(ctx, r.read, enter)
}

type writer struct{ *RWLock }

func (w writer) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return w.acquire(ctx, w.write.Wait)
}

func (w writer) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return w.acquire(ctx, w.write.Try)
}

func (w writer) acquire(ctx context.Context, enter func(context.Context) (*line.Place, error)) (*recipes.Lease, error) {
	if reading := recipes.Carried(ctx, w.read); reading != nil {
		wait := enter
		enter = func(ctx context.Context) (*line.Place, error) {
			if reading.Held() {
				return nil, ErrUpgrade
			}
			err := reading.Err()
			if errors.Is(err, recipes.ErrReleased) { // just now: it is carried no more
				return wait(ctx)
			}
			return nil, fmt.Errorf("%w: %w", recipes.ErrNotHeld, err)
		}
	}
	return enterOrReenter(ctx, w.write, enter)
}

// enterOrReenter gives another lease on what ctx carries of one side, or enters it.
func enterOrReenter(ctx context.Context, side *line.Line, enter func(context.Context) (*line.Place, error)) (*recipes.Lease, error) {
	l, ok, err := recipes.Reenter(ctx, side)
	if !ok {
		var place *line.Place
		if place, err = enter(ctx); err == nil {
			l = recipes.NewLease(ctx, place)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("rwlock: acquire %s: %w", side.Dir(), err)
	}
	return l, nil
}

// Participants lists who holds and who waits, readers (recipes.Shared) and writers,
// in order, of all processes. It costs a list and a read for each.
func (rw *RWLock) Participants(ctx context.Context) ([]recipes.Participant, error) {
	members, err := rw.read.Members(ctx)
	if err != nil {
		return nil, fmt.Errorf("rwlock: participants of %s: %w", rw.Path(), err)
	}
	return recipes.Participants(members), nil
}

// Revoke asks p to release the lock: its lease's Revoked is closed, if it looks at
// it, and so is a Curator client's listener told. Nothing enforces it. It returns
// zk.ErrNoNode if p has left.
func (rw *RWLock) Revoke(ctx context.Context, p recipes.Participant) error {
	if err := rw.read.Revoke(ctx, p.Path); err != nil {
		return fmt.Errorf("rwlock: revoke: %w", err)
	}
	return nil
}
