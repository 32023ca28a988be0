package recipes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/recipes/internal/bridge"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// A Line is the base of all locks of this module, and of yours: contenders
// stand in one line, and each waits for those ahead that it conflicts with. See
// NewLine. It is safe for concurrent use, and all values of one client, path,
// kind and name share a local queue; those in use at the same time must agree
// in data and ACL.
//
// Each process that wants the line has one znode in it for each name,
//
//	<path>/_c_<uuid>-<kind>~<name>~NNNNNNNNNN    ephemeral, sequential
//
// and watches its own znode and the last one or two ahead that it conflicts
// with.
//
// What a Line does for you: it creates the znode so that none is ever left
// behind, waits in the order in which contenders came, grants only while the
// session is proven alive, tells a holder in time when its lease is lost,
// re-enters by the context, hands a znode off between goroutines of the
// process, lets goroutines share it where the name does not conflict with
// itself, and carries fencing tokens.
//
// The create and the list of an Acquire take one round trip. What that costs
// all clients:
//
//   - alone, acquired and released: 3 requests, 2 transactions
//   - behind one other: 4 requests, 1 transaction, 2 watches
//   - behind two others: 5 requests, 1 transaction, 3 watches
//   - a session timeout of waiting: 3 requests
//   - released before one other: 1 request, 1 transaction, wakes 1
//   - a turn in a line of ten: 7 requests, 2 transactions, wakes 2
//
// When the last znode ahead is deleted, the event grants the lease without a
// request. When another watched znode changes, and after a reconnect, the
// contender lists the line and watches again.
type Line struct {
	line      *line.Line
	pkg       string // the prefix of errors
	noReentry bool
	about     Acquire                          // for observers
	observers observerList                     // nil: none wants to hear of leases
	before    func(ctx context.Context) error  // nil: nothing
	waiting   func(ctx context.Context) func() // nil: nothing

	ignoreContext bool
	downgradeFrom string
}

var _ Acquirer = (*Line)(nil)

// NewLine returns a Line at path. It does no I/O: path is created, as a
// container where the ensemble has those, with the first Acquire. The ensemble
// removes a container after its last child has left. An Acquire can end after
// it has created path and before it has created the contender. If nobody uses
// path, the client then deletes it after a session timeout, or in Close. If the
// process ends before that, path stays until its next use, unless the servers
// have znode.container.maxNeverUsedIntervalMs.
//
// kind says which rule the line follows, in 1 to 32 letters, digits and dots.
// Put the rule's version into it: "range.v1". Contenders of one kind at one
// path stand in one line; a child of another kind, or of another layout, fails
// Acquire with ErrLayout.
//
// name is the contender's name, as its znode shows it, in at most 128 bytes of
// [a-zA-Z0-9._=,+-]. It says what conflicts needs to know.
//
// conflicts reports whether a contender named mine has to wait for a contender
// named theirs that stands ahead. It must be pure, and the same in all
// processes. It is called in both orders: two contenders conflict if one of the
// calls returns true. No contender overtakes another. So two that conflict
// never hold together. A name that it cannot read must conflict with every
// other. It is called without locks held; if it panics, the call fails. It is
// also called by NewLine, with name and name: if these do not conflict,
// goroutines of this process share the lease.
//
// Where holders may stand side by side, tokens only order the leases that
// conflict: a resource must compare the token of a request with the greatest
// token among the requests that this one conflicts with.
func NewLine(c *framework.Client, path, kind, name string, conflicts func(mine, theirs string) bool, opts ...LineOption) (*Line, error) {
	s, err := newSettings(opts)
	if err == nil {
		err = oneline.Join(layout.CheckKind(kind), layout.CheckName(name))
	}
	if err == nil && conflicts == nil {
		err = errors.New("no conflicts function")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: path %s: %w", s.inside.Package, path, err)
	}
	l, err := line.New((*managed.Client)(c), path, s.rule(kind, name, conflicts), s.config())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.inside.Package, err)
	}
	made := &Line{
		line: l, pkg: s.inside.Package, noReentry: s.NoReentry, before: s.inside.Before,
		waiting: s.inside.Waiting, ignoreContext: s.inside.IgnoreContext, downgradeFrom: s.inside.DowngradeFrom,
	}
	made.about, made.observers = made.described(&s, kind), observersOf(l.Client())
	return made, nil
}

// candidates numbers the lines that share no local queue.
var candidates atomic.Int64

func (s *settings) rule(kind, name string, conflicts func(mine, theirs string) bool) line.Rule {
	in := &s.inside
	rule := line.Rule{
		Kind: kind, Name: name, Conflicts: conflicts,
		Set: layout.Set{Family: layout.KindLine, Kind: kind}, Base: layout.KindBase(kind, name),
		Sub: in.Sub, PersistentDir: in.PersistentDir, KeepUntilReleased: in.KeepUntilReleased,
		OtherLayout: bridge.KazooLease, Permits: in.Permits, DowngradeTo: in.DowngradeTo,
	}
	if in.Set != (layout.Set{}) {
		rule.Set, rule.Base = in.Set, in.Base
	}
	if in.OwnQueue {
		rule.Candidate = candidates.Add(1)
	}
	return rule
}

// Acquire waits until no contender ahead conflicts with this one. With a
// context that carries a lease of this line and name, or whose owner has one,
// it returns another lease at once; the znode is removed when the last of them
// is released. If that lease was lost the error is ErrNotHeld. If the context
// carries a lease under another name that conflicts, Acquire would wait for
// itself: it fails at once with ErrDeadlock. See Acquirer for the other errors.
func (l *Line) Acquire(ctx context.Context) (*Lease, error) {
	return l.acquire(ctx, false)
}

// TryAcquire is Acquire that fails with ErrBusy when it would have to wait for
// another holder. It lists the line before it joins: one list more than
// Acquire. A busy line costs one list.
func (l *Line) TryAcquire(ctx context.Context) (*Lease, error) {
	return l.acquire(ctx, true)
}

func (l *Line) acquire(ctx context.Context, try bool) (*Lease, error) {
	if !l.made() {
		return nil, errNotMade
	}
	if l.observers != nil {
		return l.acquireObserved(ctx, try)
	}
	shares, err := l.shares(ctx, ctx, try)
	if err != nil {
		return nil, l.failed("acquire", err)
	}
	return newLease(ctx, shares...).follow(), nil
}

// shares returns what Acquire, or TryAcquire, is granted: another share of what
// ctx carries, or what the engine waits for. during is ctx with the values that
// the observers have added. They are for requests alone: only ctx says what the
// caller holds.
func (l *Line) shares(ctx, during context.Context, try bool) ([]*line.Share, error) {
	if l.waiting != nil {
		defer l.waiting(ctx)()
	}
	if l.before != nil {
		if err := l.before(during); err != nil {
			return nil, err
		}
	}
	enter := l.line.Acquire
	if try {
		enter = l.line.TryAcquire
	}
	if l.ignoreContext {
		return enter(during)
	}
	for {
		share, err := l.reenter(ctx, during)
		switch {
		case errors.Is(err, errChangedNow):
		case err != nil:
			return nil, err
		case share != nil:
			return []*line.Share{share}, nil
		default:
			return enter(during)
		}
	}
}

// errNotMade is the error of a recipe that no constructor has made.
var errNotMade = errors.New("recipes: zero value: use the constructor")

func (l *Line) made() bool { return l != nil && l.line != nil }

// failed adds what failed, and where.
func (l *Line) failed(what string, err error) error {
	return fmt.Errorf("%s: %s %s: %w", l.pkg, what, l.Path(), err)
}

// Path returns the path of the line, in its client's view.
func (l *Line) Path() string {
	if !l.made() {
		return ""
	}
	return l.line.Path()
}

// FullPath returns the path of the line on the ensemble, its client's chroot
// and namespace included.
func (l *Line) FullPath() string {
	if !l.made() {
		return ""
	}
	return l.line.Client().Resolve(l.line.Path())
}

// Held returns the lease of this line and name that ctx carries, or that its
// owner has, if it is held. It makes no request.
func (l *Line) Held(ctx context.Context) (*Lease, bool) {
	if !l.made() {
		return nil, false
	}
	lease, _, _ := carried(ctx, func(s *line.Share) (bool, error) { return s.Line().SameKey(l.line), nil })
	if lease == nil || !lease.Held() {
		return nil, false
	}
	return lease, true
}

// Participants lists the contenders of all processes, in order: who holds, and
// who waits. A process is listed once for each name, however many of its
// goroutines wait. It costs a list and a framework.Client.ReadAll. A missing
// path is an empty line; a missing chroot of the client is an error, unless
// WithCreateChroot allows it.
func (l *Line) Participants(ctx context.Context) ([]Participant, error) {
	if !l.made() {
		return nil, errNotMade
	}
	all, err := l.line.Participants(ctx)
	if err != nil {
		return nil, l.failed("participants of", err)
	}
	participants := make([]Participant, len(all))
	for i := range all {
		participants[i] = participantOf(&all[i])
	}
	return participants, nil
}

// First returns the first in line, which holds; false if nobody stands there.
// It may have changed by the time First returns. It costs a list and a read.
func (l *Line) First(ctx context.Context) (first Participant, ok bool, err error) {
	if !l.made() {
		return Participant{}, false, errNotMade
	}
	p, err := l.line.First(ctx)
	if err != nil {
		return Participant{}, false, l.failed("first of", err)
	}
	if p == nil {
		return Participant{}, false, nil
	}
	return participantOf(p), true, nil
}

// Revoke asks p to release: its lease's Revoked is closed, if the holder looks
// at it, and a Curator client's listener is called. Nothing enforces it. The
// request replaces p's data. If p.Data begins with a host and a process id, as
// by default, they follow the request. Revoke fails with zk.ErrNoNode if p has
// left. It costs one write.
func (l *Line) Revoke(ctx context.Context, p Participant) error {
	if !l.made() {
		return errNotMade
	}
	if err := l.line.Revoke(ctx, p.Path, p.Data); err != nil {
		return l.failed("revoke at", err)
	}
	return nil
}

// EndLinger removes every znode that the client keeps (WithLinger) in lines
// below path. It waits until they are gone, and those that WithAsyncRelease has
// left behind. If ctx ends first, the removal continues.
func EndLinger(ctx context.Context, c *framework.Client, path string) error {
	if err := framework.ValidatePath(path); err != nil {
		return fmt.Errorf("recipes: end linger: %w", err)
	}
	if err := line.EndLinger(ctx, (*managed.Client)(c), path); err != nil {
		return fmt.Errorf("recipes: end linger below %s: %w", path, err)
	}
	return nil
}
