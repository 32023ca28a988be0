// Package semaphore limits how many work at once.
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
	"sync/atomic"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// Semaphore grants at most a number of permits at once, first come first served, to
// goroutines, processes and Apache Curator's InterProcessSemaphoreV2 at the same
// path. It is safe for concurrent use, and all values of one client and path are
// one semaphore; those in use at the same time must agree in data and ACL.
//
//	<path>                                     data: the limit, as decimal text
//	<path>/locks/_c_<uuid>-lock-NNNNNNNNNN     one who waits: ephemeral, sequential
//	<path>/leases/_c_<uuid>-lease-NNNNNNNNNN   a permit that is held: the same
//
// Those who wait stand in line; the first alone looks at the permits held, and
// takes its own, all or none, when there is room for them: in one step that proves
// that it is still first, that the limit is still the one it has seen, and takes it
// out of line. So there are never more than the limit, in whatever order holders
// leave, and each departure wakes one waiter.
//
// An uncontended Acquire costs a create and two lists, a read and a Multi in three
// round trips, the first ones of a value a read and a list more; Release a delete for
// each permit.
//
// A permit is never re-entered: with the context of a lease, too, Acquire waits for
// another one. Beside a Curator client that takes several permits one by one, taking
// more than one at a time needs a time-out: the two may wait for each other.
type Semaphore struct {
	client *framework.Client
	path   string
	cfg    config
	max    int
	one    permits

	// agreed is the creation, as its zxid, of the path whose limit was this value's:
	// from then on it follows as SetMax changes it.
	agreed *atomic.Int64
	seen   *atomic.Int64 // the zxid of the latest coming or going of the path's children that were looked at
}

var _ recipes.Acquirer = (*Semaphore)(nil)

// ErrLimit says that more permits are wanted than there can be, or that the limit
// that is recorded at the path is another one than this process was made with.
var ErrLimit = line.ErrLimit

// Below the path.
const (
	locks  = "locks"
	leases = "leases"
	keeper = "limit" // keeps the path: see SetMax
)

// New makes a Semaphore of maxLeases permits at path. It does no I/O: the first
// Acquire by anybody makes the path and records the limit there; it lasts for as
// long as the path does, which vanishes when it has not been used for a while, if
// the ensemble has containers. See SetMax.
func New(c *framework.Client, path string, maxLeases int, opts ...Option) (*Semaphore, error) {
	if maxLeases < 1 {
		return nil, fmt.Errorf("semaphore: path %s: %d permits: must be positive", path, maxLeases)
	}
	s := &Semaphore{client: c, path: path, cfg: newConfig(opts), max: maxLeases, agreed: new(atomic.Int64), seen: new(atomic.Int64)}
	one, err := s.permits(1)
	if err != nil {
		return nil, fmt.Errorf("semaphore: %w", err)
	}
	s.one = one
	return s, nil
}

// fits is the rule: the first in line goes on when there is room for all that it
// wants. Nobody passes it, so that who wants many is not starved by who want few.
func fits(n, held, limit int) bool { return held+n <= limit }

// Acquire waits for one permit.
func (s *Semaphore) Acquire(ctx context.Context) (*recipes.Lease, error) { return s.one.Acquire(ctx) }

// TryAcquire is Acquire that fails with recipes.ErrBusy when there is no permit
// left, or another waits first. It waits for those in line who are merely passing
// to take theirs; ctx bounds that.
func (s *Semaphore) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return s.one.TryAcquire(ctx)
}

// Path is the path of the semaphore, in its client's view.
func (s *Semaphore) Path() string { return s.path }

// FullPath is the path of the semaphore on the ensemble, its client's chroot and
// namespace included.
func (s *Semaphore) FullPath() string { return s.client.Resolve(s.path) }

// Permits acquires n permits at once, as one lease, all or none. It fails with
// ErrLimit when the limit is, or becomes, less than n.
func (s *Semaphore) Permits(n int) recipes.Acquirer {
	p, err := s.permits(n)
	if err != nil {
		p.err = err
	}
	return p
}

// permits is the way to n of them.
type permits struct {
	*Semaphore
	n    int
	line *line.Line
	err  error // why there is no way
}

func (s *Semaphore) permits(n int) (permits, error) {
	p := permits{Semaphore: s, n: n}
	if n < 1 {
		return p, fmt.Errorf("%w: %d permits of %d", ErrLimit, n, s.max)
	}
	var err error
	p.line, err = line.New(s.client, s.path, line.Rule{
		Kind:    "semaphore",
		Sub:     locks,
		Base:    layout.CuratorLockName,
		Family:  layout.CuratorLock,
		Blocker: line.Predecessor,
		Take:    &line.Take{Dir: s.path + "/" + leases, Name: layout.LeaseName, N: n, Look: p.look},
	}, s.cfg.Config)
	return p, err
}

func (p permits) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return p.acquire(ctx, (*line.Line).WaitAll)
}

func (p permits) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return p.acquire(ctx, (*line.Line).TryAll)
}

func (p permits) acquire(ctx context.Context, enter func(*line.Line, context.Context) ([]*line.Place, error)) (*recipes.Lease, error) {
	err := p.err
	if err == nil {
		err = p.possible(ctx)
	}
	var places []*line.Place
	if err == nil {
		places, err = enter(p.line, ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("semaphore: acquire %s: %w", p.path, err)
	}
	return recipes.NewLease(ctx, places...), nil
}

// look is what the first in line does: it reads the limit and counts the permits
// held, each child whatever its name, as Curator does.
func (p permits) look(ctx context.Context, sess *framework.Session, watch bool) (line.Room, error) {
	var room line.Room
	for {
		var held int
		counted := make(chan error, 1)
		go func() { // both reads travel together
			var err error
			held, err = count(sess.Children(ctx, p.path+"/"+leases))
			counted <- err
		}()
		limit, while, taken, err := p.limit(ctx, sess)
		if err := errors.Join(err, <-counted); err != nil {
			return line.Room{}, err
		}
		if p.n > limit {
			return line.Room{}, fmt.Errorf("%w: %d permits of %d", ErrLimit, p.n, limit)
		}
		if room.Free = fits(p.n, held, limit); room.Free {
			room.While, room.Taken = []any{while}, taken
		}
		if room.Free || !watch {
			return room, nil
		}
		// Look once more, with the watches set, lest what happens in between be missed.
		watch = false
		if room.Changed, err = p.watch(ctx, sess); err != nil {
			return line.Room{}, err
		}
	}
}

// SetMax changes the limit for all who use the semaphore, now and from now on: the
// path does not vanish any more. Permits that are held are never revoked: after the
// limit was lowered nobody is let in until there are fewer. Who waits for more than
// it fails with ErrLimit. A process that was made with another number than the one
// recorded when it comes first fails with ErrLimit too, unless WithRecordedLimit.
// The error is one of framework.MaybeApplied if nobody knows whether the limit was
// set: an answer was lost, and others may have set theirs since.
func (s *Semaphore) SetMax(ctx context.Context, n int) error {
	if err := s.setMax(ctx, n); err != nil {
		return fmt.Errorf("semaphore: set the limit of %s: %w", s.path, err)
	}
	return nil
}

// Available is how many permits are left. It may have changed by the time that it
// returns. It costs a read and a list.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
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

// Participants lists those who hold, one for each permit, and then those who wait,
// in order, of all processes; a process waits once, however many of its goroutines
// do. It costs two lists and a read for each.
func (s *Semaphore) Participants(ctx context.Context) ([]recipes.Participant, error) {
	members, err := s.one.line.Members(ctx)
	if err != nil {
		return nil, fmt.Errorf("semaphore: participants of %s: %w", s.path, err)
	}
	all := recipes.Participants(members)
	for i := range all {
		all[i].Mode = recipes.Shared
	}
	return all, nil
}
