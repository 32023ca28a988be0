// Package rwlock has the shared/exclusive lock: many readers at once, or one
// writer alone.
//
//	rw, err := rwlock.New(client, "/app/config")
//	...
//	err = recipes.Do(ctx, rw.Reader(), func(ctx context.Context, l *recipes.Lease) error {
//		return read(ctx) // other readers may read now; ctx ends when the lock is lost
//	})
package rwlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// RWLock is a reentrant shared/exclusive lock, first come first served: readers
// that come while a writer waits queue behind it, so that neither side starves
// the other. It is safe for concurrent use, and all values of one client, path
// and layout are one lock; those in use at the same time must agree in data,
// ACL and host.
//
//	<path>/_c_<uuid>-<host>-R-NNNNNNNNNN    a reader: ephemeral, sequential
//	<path>/_c_<uuid>-<host>-W-NNNNNNNNNN    a writer: the same
//
// A reader waits for the last writer before it. It watches the znode of that
// writer and its own. A writer waits for all contenders before it. It watches
// its own znode and up to 16 readers, or one writer.
//
// The goroutines of a process that wait to read when its znode is first share
// that znode. Those that come later share it too, while no writer waits, here
// or elsewhere; after that they join the line again. Writers wait in-process,
// in order, behind one znode, which goes from one to the next in memory: see
// recipes.WithHandoffs and recipes.WithLinger.
//
// What that costs all clients:
//
//   - alone, acquired and released: 3 requests, 2 transactions
//   - a reader behind a writer: 4 requests, 1 transaction, 2 watches
//   - a writer behind ten readers: 13 requests, 1 transaction, 11 watches
//   - a writer leaves before ten readers: 1 request, 1 transaction, wakes 10
//   - a reader leaves before a writer: 1 request, 1 transaction, wakes 1
//   - a turn in a line of ten writers: 6 requests, 2 transactions, wakes 1
//
// A reader that shares a znode, or a writer that gets one in a handoff, makes
// no request. Only the first such caller costs one list.
type RWLock struct {
	read, write *recipes.Line
}

// ErrUpgrade is returned when the caller holds the lock for reading and wants
// to write: it would wait for itself. Release the read lease first, and look
// again at what was read under it. It wraps recipes.ErrDeadlock.
var ErrUpgrade = fmt.Errorf("held for reading: a read lease cannot be upgraded: %w", recipes.ErrDeadlock)

// What a contender's znode says of itself.
var (
	reader = layout.Shared.String()
	writer = layout.Exclusive.String()
)

// conflicts is the rule: readers stand side by side, and a writer alone. So a
// writer waits for its predecessor, and a reader for the last writer ahead.
// That is fair, for the order is the ensemble's: a writer that waits stands
// before all readers that come later, and those before all writers that come
// after them.
func conflicts(mine, theirs string) bool { return layout.ModesConflict(mine, theirs) }

// New returns an RWLock at path. It does no I/O: path is created, as a
// container where the ensemble has those, with the first Acquire.
func New(c *framework.Client, path string, opts ...Option) (*RWLock, error) {
	forReaders, forWriters, lineOpts, err := newConfig(opts)
	if err != nil {
		return nil, fmt.Errorf("rwlock: path %s: %w", path, err)
	}
	read, err := recipes.NewLine(c, path, "rwlock", reader, conflicts, append(lineOpts, forReaders)...)
	if err != nil {
		return nil, err
	}
	write, err := recipes.NewLine(c, path, "rwlock", writer, conflicts, append(lineOpts, forWriters)...)
	if err != nil {
		return nil, err
	}
	return &RWLock{read, write}, nil
}

// Reader returns an Acquirer for reading, at the same time as other readers.
//
// With a context that carries a read lease on the lock, or whose owner has one,
// Acquire returns another lease at once. With one that carries a write lease it
// downgrades: the read lease has a znode of its own, which stands where the
// write's does and keeps that place when the write lease is released, so that
// no waiting writer gets in between. It has the write lease's token. A
// downgrade costs two round trips: a create with a list, and a read.
func (rw *RWLock) Reader() recipes.Acquirer { return rw.read }

// Writer returns an Acquirer for writing, alone.
//
// With a context that carries a write lease on the lock, or whose owner has
// one, Acquire returns another lease at once. With one that carries a read
// lease only it fails at once with ErrUpgrade.
func (rw *RWLock) Writer() recipes.Acquirer { return writing{rw.write} }

// writing is the line of the writers, which names the deadlock of an upgrade.
type writing struct{ *recipes.Line }

func (w writing) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return w.acquire(ctx, w.Line.Acquire)
}

func (w writing) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return w.acquire(ctx, w.Line.TryAcquire)
}

func (w writing) acquire(ctx context.Context, acquire func(context.Context) (*recipes.Lease, error)) (*recipes.Lease, error) {
	l, err := acquire(ctx)
	if _, holds := w.Held(ctx); !holds && errors.Is(err, recipes.ErrDeadlock) {
		return nil, fmt.Errorf("rwlock: acquire %s: %w", w.Path(), ErrUpgrade)
	}
	return l, err
}

// Path returns the path of the lock, in its client's view.
func (rw *RWLock) Path() string { return rw.read.Path() }

// FullPath returns the path of the lock on the ensemble, its client's chroot
// and namespace included.
func (rw *RWLock) FullPath() string { return rw.read.FullPath() }

// Participants lists holders and waiters of all processes, readers
// (recipes.Shared) and writers, in order. It costs a list and a
// framework.Client.ReadAll.
func (rw *RWLock) Participants(ctx context.Context) ([]recipes.Participant, error) {
	return rw.read.Participants(ctx)
}

// Revoke asks p to release the lock: its lease's Revoked is closed, if the
// holder looks at it, and a Curator client's listener is called. Nothing
// enforces it. It fails with zk.ErrNoNode if p has left. It costs one write.
func (rw *RWLock) Revoke(ctx context.Context, p recipes.Participant) error {
	return rw.read.Revoke(ctx, p)
}
