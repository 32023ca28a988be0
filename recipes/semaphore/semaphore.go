// Package semaphore limits how many callers work at once.
//
//	s, err := semaphore.New(client, "/app/workers", 5)
//	...
//	err = recipes.Do(ctx, s, func(ctx context.Context, l *recipes.Lease) error {
//		return work(ctx) // ctx ends when the permit is lost
//	})
package semaphore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/bridge"
)

// Semaphore grants at most a number of permits at once, first come first
// served, to goroutines, processes and Apache Curator's InterProcessSemaphoreV2
// at the same path. It is safe for concurrent use, and all values of one client
// and path are one semaphore; those in use at the same time must agree in data
// and ACL.
//
//	<path>                                     data: the limit, as decimal text
//	<path>/locks/_c_<uuid>-lock-NNNNNNNNNN     a waiter: ephemeral, sequential
//	<path>/leases/_c_<uuid>-lease-NNNNNNNNNN   a permit that is held: the same
//
// Waiters stand in line. Only the first looks at the permits held. When there
// is room for all of its own, it takes them in one Multi, which
//
//  1. checks that it is still first in line,
//  2. checks that the limit is still the one it has seen,
//  3. creates the permits, and
//  4. takes it out of line.
//
// So there are never more permits than the limit, in whatever order holders
// leave. What that costs all clients:
//
//   - alone, acquired and released: 4 requests, 3 transactions
//   - first in line: 8 requests, 1 transaction, 2 watches
//   - second in line: 4 requests, 1 transaction, 2 watches
//   - released before one other: 4 requests, 2 transactions, wakes 1
//   - a turn in a line of ten: 16 requests, 3 transactions, wakes 3
//
// An Acquire alone takes two round trips. On servers before 3.6, and where more
// than about 250 permits are held, it takes three round trips, and costs two
// more requests. The first Acquire of each Semaphore value costs one more read
// and one more list. Release costs a delete for each permit.
//
// Permits are not reentrant: Acquire always takes another permit, whatever
// leases the context carries. In a line with a Curator client that takes
// several permits one after the other, taking more than one at a time needs a
// timeout: the two may wait for each other.
type Semaphore struct {
	client *framework.Client
	path   string
	opts   []recipes.LineOption
	adopt  bool // the recorded limit, whatever max is
	max    int
	one    permits

	// agreed is the path whose limit was this value's, zero if none was: after
	// that, this value follows SetMax.
	agreed *atomic.Pointer[version.Created]
	seen   *atomic.Int64 // the zxid of the latest coming or going of the path's children that were looked at
}

var _ recipes.Acquirer = (*Semaphore)(nil)

// ErrLimit is returned when more permits are wanted than there can be, or when
// the limit that is recorded at the path differs from the number that was
// passed to New.
var ErrLimit = errors.New("limit exceeded, or different from the recorded limit")

var errNotMade = errors.New("semaphore: a zero Semaphore has no permits: it must be made by New")

// Below the path.
const (
	locks  = "locks"
	leases = "leases"
	keeper = "limit" // keeps the path: see SetMax
)

// New returns a Semaphore of maxLeases permits at path. It does no I/O: the
// first Acquire by anybody creates the path and records the limit there. The
// limit lasts as long as the path does, which vanishes when it has not been
// used for a while, if the ensemble has containers: see SetMax.
func New(c *framework.Client, path string, maxLeases int, opts ...Option) (*Semaphore, error) {
	if maxLeases < 1 {
		return nil, fmt.Errorf("semaphore: path %s: %d permits: must be positive", path, maxLeases)
	}
	lineOpts, adopt, err := split(opts)
	if err != nil {
		return nil, fmt.Errorf("semaphore: path %s: %w", path, err)
	}
	s := &Semaphore{client: c, path: path, opts: lineOpts, adopt: adopt, max: maxLeases, agreed: new(atomic.Pointer[version.Created]), seen: new(atomic.Int64)}
	s.agreed.Store(new(version.Created))
	s.one, err = s.permits(1)
	return s, err
}

// fits is the rule: the first in line goes on when there is room for all that
// it wants. Nobody passes it, so that waiters for few do not starve a waiter
// for many.
func fits(n, held, limit int) bool { return held+n <= limit }

// Acquire waits for one permit.
func (s *Semaphore) Acquire(ctx context.Context) (*recipes.Lease, error) { return s.one.Acquire(ctx) }

// TryAcquire is Acquire that fails with recipes.ErrBusy when there is no permit
// left, or another caller waits first. It first waits for callers ahead that
// are about to take a permit; ctx bounds that.
func (s *Semaphore) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return s.one.TryAcquire(ctx)
}

// Path returns the path of the semaphore, in its client's view.
func (s *Semaphore) Path() string { return s.path }

// FullPath returns the path of the semaphore on the ensemble, its client's
// chroot and namespace included.
func (s *Semaphore) FullPath() string { return s.one.line.FullPath() }

// Permits returns an Acquirer of n permits at once, as one lease, all or none.
// It fails with ErrLimit when the limit is, or becomes, less than n, and with
// framework.ErrTooLarge, before it waits in line, when n permits do not fit
// into one request (framework.WithMaxRequest). By default some 8,000 fit, and
// fewer if the path or the data are long.
func (s *Semaphore) Permits(n int) recipes.Acquirer {
	p, err := s.permits(n)
	if err != nil {
		p.err = err
	}
	return p
}

// permits acquires n of them.
type permits struct {
	*Semaphore
	n    int
	line *recipes.Line
	err  error // why that is impossible
}

func (s *Semaphore) permits(n int) (permits, error) {
	p := permits{Semaphore: s, n: n}
	if n < 1 {
		return p, p.failed(fmt.Errorf("%w: %d permits of %d", ErrLimit, n, s.max))
	}
	var err error
	p.line, err = recipes.NewLine(s.client, s.path, "semaphore", layout.Exclusive.String(), always, append(slices.Clip(s.opts), bridge.Inside{
		Package:       "semaphore",
		Sub:           locks,
		Set:           layout.Set{Family: layout.CuratorLock},
		Base:          layout.CuratorLockName,
		IgnoreContext: true,
		Shares:        true,
		Before:        p.possible,
		Permits: &bridge.Permits{
			Dir: s.path + "/" + leases, Name: layout.LeaseName, Set: layout.Set{Family: layout.Lease}, N: n,
			Reads: []request.Read{{Path: s.path}, {Path: s.path + "/" + leases, Children: true}}, Look: p.look,
		},
	})...)
	return p, err
}

// always is the rule of the waiters: any two conflict.
func always(mine, theirs string) bool { return true }

func (p permits) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return p.acquire(ctx, p.line.Acquire)
}

func (p permits) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return p.acquire(ctx, p.line.TryAcquire)
}

func (p permits) acquire(ctx context.Context, acquire func(context.Context) (*recipes.Lease, error)) (*recipes.Lease, error) {
	if p.err != nil {
		return nil, p.err
	}
	return acquire(ctx)
}

func (p permits) failed(err error) error {
	return fmt.Errorf("semaphore: acquire %s: %w", p.path, err)
}

// look is what the first in line does.
func (p permits) look(ctx context.Context, sess *managed.Session, r bridge.Reader, watch bool) (bridge.Room, error) {
	room, err := p.lookOnce(ctx, r)
	if err != nil || room.Free || room.Refused != nil || !watch {
		return room, err
	}
	changed, stop, err := p.watch(ctx, sess)
	if err != nil {
		return room, err
	}
	// Look again, with the watches set: what happened in between is not missed.
	room, err = p.lookOnce(ctx, sess)
	if err != nil || room.Free || room.Refused != nil {
		stop()
		return room, err
	}
	room.Changed, room.Stop = changed, stop
	return room, nil
}

// lookOnce reads the limit and counts the permits held, each child whatever its
// name, as Curator does.
func (p permits) lookOnce(ctx context.Context, r bridge.Reader) (room bridge.Room, err error) {
	var held int
	counted := make(chan error, 1)
	go func() { // both reads travel together
		var err error
		held, err = count(r.Children(ctx, p.path+"/"+leases))
		counted <- err
	}()
	limit, while, taken, err := p.limit(ctx, r)
	if err = oneline.Join(err, <-counted); err == nil && p.n > limit {
		err = fmt.Errorf("%w: %d permits of %d", ErrLimit, p.n, limit)
	}
	switch {
	case errors.Is(err, ErrLimit): // it fails one caller, and any other error fails all
		return bridge.Room{Refused: err}, nil
	case err != nil:
		return bridge.Room{}, err
	case fits(p.n, held, limit):
		return bridge.Room{Free: true, While: []any{while}, Taken: taken}, nil
	}
	return bridge.Room{}, nil
}

// SetMax changes the limit for all users of the semaphore. From then on the
// path is no longer removed when it is unused. Permits that are held are never
// revoked: if the limit was lowered, none is granted until there are fewer. A
// waiter for more than the limit fails with ErrLimit. A process that passed
// another number to New fails with ErrLimit at its first Acquire, unless it has
// WithRecordedLimit. If an answer was lost, framework.MaybeApplied reports true
// for the error: nobody knows whether this limit was set, and others may have
// set theirs since.
func (s *Semaphore) SetMax(ctx context.Context, n int) error {
	if s.client == nil {
		return errNotMade
	}
	if err := s.setMax(ctx, n); err != nil {
		return fmt.Errorf("semaphore: set the limit of %s: %w", s.path, err)
	}
	return nil
}

// Available returns how many permits are left. It may have changed by the time
// it returns. It costs a read and a list.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
	if s.client == nil {
		return 0, errNotMade
	}
	limit, _, err := s.recorded(s.client.Get(ctx, s.path))
	if err != nil {
		return 0, fmt.Errorf("semaphore: available of %s: %w", s.path, err)
	}
	held, err := count(s.client.Children(ctx, s.path+"/"+leases))
	if err != nil {
		return 0, fmt.Errorf("semaphore: available of %s: %w", s.path, err)
	}
	return max(limit-held, 0), nil
}

// Participants lists the holders, one for each permit, and then the waiters, in
// order, of all processes. A process waits once, however many of its goroutines
// do. It costs two lists and two framework.Client.ReadAll.
func (s *Semaphore) Participants(ctx context.Context) ([]recipes.Participant, error) {
	all, err := s.one.line.Participants(ctx)
	for i := range all {
		all[i].Mode = recipes.Shared
	}
	return all, err
}
