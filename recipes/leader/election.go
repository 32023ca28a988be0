// Package leader elects one of several candidates to lead.
package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// Election is one candidate's part in the election at a path: the first in line
// leads, for one term, and goes to the end of the line for the next. It is safe
// for concurrent use; each value stands in line for itself, also beside others of
// the same process.
//
//	<path>/_c_<uuid>-latch-NNNNNNNNNN    ephemeral, sequential; data: the id
//
// Each candidate watches only the one before it. When that vanishes it lists
// again, and never creates again while its own znode is there. A term is a
// [recipes.Lease]: its token tells it from every other one, and it is lost in time
// if it cannot be proven. The znode of a term stays until the term's work has
// returned, as long as the session lives.
//
// A term costs a create, a list and a delete. Each time that the candidate before it
// leaves costs one more watch and one more list.
type Election struct {
	line *line.Line
	cfg  config

	running atomic.Bool
	beside  sync.WaitGroup // what runs beside a term, and ends with it

	mu   sync.Mutex // guards term
	term *term      // that Run leads; nil: none
}

var _ recipes.Acquirer = (*Election)(nil)

// ErrNoLeader is Leader's error while nobody leads.
var ErrNoLeader = errors.New("no leader")

// candidates numbers the values, so that each has a place of its own in line.
var candidates atomic.Int64

// New makes a candidate in the election at path. It does no I/O, and campaigns
// only with Run or Acquire.
func New(c *framework.Client, path string, opts ...Option) (*Election, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, fmt.Errorf("leader: path %s: %w", path, err)
	}
	cfg.Config.StayUntilLeft = true
	rule := cfg.layout.rule()
	rule.Kind = fmt.Sprintf("candidate %d", candidates.Add(1))
	l, err := line.New(c, path, rule, cfg.Config)
	if err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}
	return &Election{line: l, cfg: cfg}, nil
}

// Acquire waits until this candidate leads, and gives the term. It never re-enters:
// with a context that carries the candidate's own term it waits for that to end.
// WithMaxTerm and WithHealthCheck are Run's.
func (e *Election) Acquire(ctx context.Context) (*recipes.Lease, error) {
	return e.acquire(ctx, e.line.Wait)
}

// TryAcquire leads if there is no other candidate; otherwise it fails with
// recipes.ErrBusy.
func (e *Election) TryAcquire(ctx context.Context) (*recipes.Lease, error) {
	return e.acquire(ctx, e.line.Try)
}

func (e *Election) acquire(ctx context.Context, enter func(context.Context) (*line.Place, error)) (*recipes.Lease, error) {
	place, err := enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("leader: acquire %s: %w", e.Path(), err)
	}
	return recipes.NewLease(ctx, place), nil
}

// Path is the path of the election, in its client's view.
func (e *Election) Path() string { return e.line.Dir() }

// FullPath is the path of the election on the ensemble, its client's chroot and
// namespace included.
func (e *Election) FullPath() string { return e.line.Client().Resolve(e.Path()) }

// Participants lists the leader and the other candidates, in the order in which
// they will lead. It costs a list and a read for each.
func (e *Election) Participants(ctx context.Context) ([]recipes.Participant, error) {
	members, err := e.line.Members(ctx)
	if err != nil {
		return nil, fmt.Errorf("leader: participants of %s: %w", e.Path(), err)
	}
	return recipes.Participants(members), nil
}

// Leader is who leads, by anybody's candidates; ErrNoLeader if nobody does. It may
// have changed by the time that it returns. It costs a list and a read.
func (e *Election) Leader(ctx context.Context) (recipes.Participant, error) {
	first, err := e.line.First(ctx)
	if err != nil {
		return recipes.Participant{}, fmt.Errorf("leader: leader of %s: %w", e.Path(), err)
	}
	if first == nil {
		return recipes.Participant{}, fmt.Errorf("leader: %s: %w", e.Path(), ErrNoLeader)
	}
	return recipes.Participants([]line.Member{*first})[0], nil
}
