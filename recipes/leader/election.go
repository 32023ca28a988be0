// Package leader elects one of several candidates to lead.
//
//	election, err := leader.New(client, "/app/leader")
//	...
//	err = election.Run(ctx, func(ctx context.Context, term *recipes.Lease) error {
//		return lead(ctx) // ctx ends when the term does
//	})
package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Election is one candidate's part in the election at a path: the first in line
// leads, for one term, and goes to the end of the line for the next. It is safe
// for concurrent use; each value has its own place in line, even if other
// values of the same process are in line. A term is never handed off
// in-process: each Acquire of one value, and each term of its Run, waits behind
// all candidates that are in line.
//
//	<path>/_c_<uuid>-latch-NNNNNNNNNN    ephemeral, sequential; data: the id
//
// Each candidate watches its own znode and the one or two before it. When the
// last znode before it is gone, it leads. It never creates a second znode while
// its first one exists. A term is a [recipes.Lease]. Its token distinguishes it
// from every other term. It is declared lost in time if it cannot be proven.
// The znode of a term stays until the term's work has returned, as long as the
// session lives.
//
// What that costs all clients; recipes.Line has more figures:
//
//   - a term, alone: 3 requests, 2 transactions
//   - a turn of ten candidates: 7 requests, 2 transactions, wakes 2
type Election struct {
	client *framework.Client
	line   *recipes.Line
	cfg    config
	terms  broadcast // tells listeners whether this candidate leads

	running atomic.Bool
	inTerm  sync.WaitGroup // goroutines of a term, which end with it

	mu   sync.Mutex // guards term
	term *term      // that Run leads; nil: none
}

var _ recipes.Acquirer = (*Election)(nil)

// ErrNoLeader is returned by Leader while nobody leads.
var ErrNoLeader = errors.New("no leader")

var errNotMade = errors.New("leader: a zero Election has no path: it must be made by New")

// New returns a candidate in the election at path. It does no I/O, and
// campaigns only with Run or Acquire.
func New(c *framework.Client, path string, opts ...Option) (*Election, error) {
	cfg, lineOpts, err := newConfig(opts)
	if err != nil {
		return nil, fmt.Errorf("leader: path %s: %w", path, err)
	}
	line, err := recipes.NewLine(c, path, "election", layout.Exclusive.String(), always, lineOpts...)
	if err != nil {
		return nil, err
	}
	return &Election{client: c, line: line, cfg: cfg}, nil
}

// always is the rule: any two candidates conflict. First come, first to lead.
func always(mine, theirs string) bool { return true }

// Acquire waits until this candidate leads, and returns the term. It never
// re-enters: do not call it inside a term of the same candidate, which would
// wait for itself. WithMaxTerm and WithHealthCheck are Run's.
func (e *Election) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return e.lead(e.line.Acquire(ctx))
}

// TryAcquire leads if there is no other candidate; otherwise it fails with
// recipes.ErrBusy.
func (e *Election) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return e.lead(e.line.TryAcquire(ctx))
}

func (e *Election) lead(term *recipes.Lease, err error) (*recipes.Lease, error) {
	if err != nil {
		return nil, err
	}
	e.terms.begin(term)
	return term, nil
}

// Path returns the path of the election, in its client's view.
func (e *Election) Path() string { return e.line.Path() }

// FullPath returns the path of the election on the ensemble, its client's
// chroot and namespace included.
func (e *Election) FullPath() string { return e.line.FullPath() }

// Held returns the term of this candidate that ctx carries, if it is held. It
// makes no request.
func (e *Election) Held(ctx context.Context) (*recipes.Lease, bool) { return e.line.Held(ctx) }

// Participants lists the leader and the other candidates, in the order in which
// they will lead. It costs a list and a framework.Client.ReadAll.
func (e *Election) Participants(ctx context.Context) ([]recipes.Participant, error) {
	return e.line.Participants(ctx)
}

// Leader returns the present leader, in any process. If nobody leads it fails
// with ErrNoLeader. It may have changed by the time it returns. It costs a list
// and a read.
func (e *Election) Leader(ctx context.Context) (recipes.Participant, error) {
	first, ok, err := e.line.First(ctx)
	if err == nil && !ok {
		err = fmt.Errorf("leader: %s: %w", e.Path(), ErrNoLeader)
	}
	return first, err
}
