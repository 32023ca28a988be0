package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// A Lease is one acquisition. It belongs to one session, and is over for good when
// it was lost or released. It is safe for concurrent use.
type Lease struct {
	places []*line.Place // one, except where a recipe takes several at once
	parts  []*Lease      // that it is made of, and that have the places; nil: none
	ctx    context.Context
	end    context.CancelCauseFunc
	owner  *Owner
	lost   chan struct{} // closed: lost
	since  time.Time     // when it was granted

	mu       sync.Mutex    // guards what follows
	ended    bool          // the observer has heard of its end, or is about to
	err      error         // why it was lost
	deadline time.Time     // as known at the loss
	released bool          // Release was called
	wholes   []*Lease      // that it is a part of
	revoked  chan struct{} // of a whole, closed: a part is to be released; nil: nobody wants to know
	working  bool          // under Do
	late     *time.Timer   // fires at the deadline of a lost lease that works
}

// NewLease makes a lease of places that were granted to an Acquire with ctx. It is
// for the recipes: nobody outside can have a place.
func NewLease(ctx context.Context, places ...*line.Place) *Lease {
	l := &Lease{places: places}
	l.start(ctx)
	for _, p := range places {
		p.OnLoss(l.lose)
	}
	l.observeGrant()
	return l
}

func (l *Lease) start(ctx context.Context) {
	l.lost, l.owner, l.since = make(chan struct{}), ownerOf(ctx), time.Now()
	l.ctx, l.end = context.WithCancelCause(withLease(context.WithoutCancel(ctx), l))
	if l.owner != nil {
		l.owner.add(l)
	}
}

// lose is called when any of the places, or of the parts, is lost.
func (l *Lease) lose(why error) {
	deadline := l.Deadline()
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err, l.deadline = why, deadline
	if l.working {
		l.watchWorkLocked()
	}
	l.mu.Unlock()
	// In this order: whoever sees Lost finds the context ended, and whoever sees
	// either finds Err.
	l.end(fmt.Errorf("%w: %w", ErrNotHeld, why))
	for _, whole := range l.partOf() {
		whole.lose(l.partly(why))
	}
	close(l.lost)
	l.observeLoss(why)
}

// Context carries the values of Acquire's context and this lease, so that an
// Acquire with it re-enters. It ends when the lease is lost or released, and not
// when Acquire's context does: a time-out for the wait must not end the work. Its
// cause wraps ErrNotHeld and why, or is ErrReleased.
func (l *Lease) Context() context.Context { return l.ctx }

// Bind gives ctx, carrying this lease too, that also ends when the lease does.
// cancel must be called when it is no longer needed.
func (l *Lease) Bind(ctx context.Context) (bound context.Context, cancel context.CancelFunc) {
	bound, end := context.WithCancelCause(withLease(ctx, l))
	stop := context.AfterFunc(l.ctx, func() { end(context.Cause(l.ctx)) })
	if l.ctx.Err() != nil {
		end(context.Cause(l.ctx)) // over already: at once
	}
	return bound, func() {
		stop()
		end(context.Canceled)
	}
}

// Held reports whether the lease is held, as far as the clock can prove: it looks
// at the clock itself, so it is right also in a process that was stopped for a
// while. Once false it stays false. What it reports was true when it looked: work
// that must not be done by two needs the Token or Guard.
func (l *Lease) Held() bool {
	if l.isReleased() {
		return false
	}
	for _, p := range l.places {
		if !p.Held() {
			return false
		}
	}
	return len(l.places) > 0 // a Lease that nobody was granted holds nothing
}

// Lost is closed when the lease is lost, and only then: the session's deadline is
// near or the session is over, the znode was deleted, the recipe's longest hold is
// over, or the client closed. By then the work has a stop margin left, unless it
// was the ensemble that ended it, or Close, which waits for no work.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err is nil while the lease is held, ErrReleased after its release, and why it
// was lost after a loss.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return l.err
	case l.released:
		return ErrReleased
	}
	return nil
}

// Deadline returns the instant until which nobody else can be granted what this
// lease holds, as far as is known now; it moves on while heartbeats are answered.
// After a loss it is the one that was known then: the loss itself, if the ensemble
// expired the session, somebody deleted the znode, or the client was closed.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	lost, deadline := l.err != nil, l.deadline
	l.mu.Unlock()
	if lost {
		return deadline
	}
	for i, p := range l.places {
		if d := p.Deadline(); i == 0 || d.Before(deadline) {
			deadline = d
		}
	}
	return deadline
}

// Token is the fencing token. See Token. For several locks taken together it is the
// greatest of theirs. That one increases among leases of the same set of locks; what
// one of the locks guards, or what leases of other sets use, too, must look at the
// tokens of Parts, each of which increases by itself.
func (l *Lease) Token() Token {
	greatest := tokenOf(l.places[0])
	for _, part := range l.parts {
		if t := part.Token(); t.Compare(greatest) > 0 {
			greatest = t
		}
	}
	return greatest
}

// Path is the path of the znode that holds, in the view of the recipe's client; of
// several locks taken together, of the first one.
func (l *Lease) Path() string { return l.places[0].Path() }

// Parts are the leases that this one is made of, in the order in which they were
// acquired, if it is one of several locks taken together; otherwise there are
// none. They are this lease's: the release of one by itself is the loss of the
// whole.
func (l *Lease) Parts() []*Lease { return slices.Clone(l.parts) }

// Revoked is closed when somebody asks for the lease to be released, by writing
// __REVOKE__ to its znode as Apache Curator does. Nothing enforces it. The first
// call begins to look for it, which costs a watch and a read, off the path of the
// acquisition.
func (l *Lease) Revoked() <-chan struct{} {
	if len(l.parts) > 0 {
		return l.anyRevoked()
	}
	return l.places[0].Revoked()
}

// Release gives the lease up, and returns when its znode is gone. ctx bounds the
// wait alone: the removal goes on if it ends, and Release may be called again to
// wait again. Where the lease is a re-entered one the znode stays until the last
// is released, in whichever order, and no request is made.
//
// Where the recipe hands its znode over at home, or lets it linger, and may do so,
// it makes no request either.
//
// It returns nil if the lease was held until now, or was released before; and
// ErrNotHeld, wrapping Err, if it was lost, be it while it was being released. So
// a checked Release proves the whole section. Where it makes no request it knows
// of a znode that somebody else deleted only if that was heard of before, as Held
// does.
func (l *Lease) Release(ctx context.Context) error {
	for _, whole := range l.partOf() {
		if !whole.isReleased() {
			whole.lose(l.partly(ErrReleased))
		}
	}
	err := l.leave(ctx)
	l.observeRelease()
	if err != nil {
		return fmt.Errorf("recipes: release %s: %w", l.path(), err)
	}
	return nil
}

// leave is Release, also by the whole.
func (l *Lease) leave(ctx context.Context) error {
	l.mu.Lock()
	first := !l.released
	l.released = true
	l.mu.Unlock()
	if first {
		if l.owner != nil {
			l.owner.remove(l)
		}
		// A loss that is found only now is to be the cause, not the release.
		l.checkHeld()
		l.end(ErrReleased)
	}
	if len(l.parts) > 0 {
		return l.leaveParts(ctx)
	}
	for _, p := range l.places {
		p.Quit() // all at once
	}
	var errs []error
	for _, p := range l.places {
		if err := p.Leave(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	if why := l.lossOfPlace(); why != nil {
		l.lose(why) // which may be about to be told, by another goroutine
	}
	return errors.Join(errs...)
}

// checkHeld has each place look at the clock.
func (l *Lease) checkHeld() {
	for _, p := range l.places {
		p.Held()
	}
}

func (l *Lease) isReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.released
}

// path is the path of the recipe, for messages.
func (l *Lease) path() string {
	if len(l.parts) > 0 {
		return l.pathOfParts()
	}
	return l.places[0].Line().Dir()
}

func (l *Lease) client() *framework.Client { return l.places[0].Line().Client() }

// Guard gives ops behind a check that the lease's znode exists, for a Multi of
// one's own. The whole is applied only while the lease is held, or its znode has
// not been removed yet; what the Guard of a lease that is over gives is never
// applied. So that it cannot be applied under another's lease, the znode of a lease
// that has given out a guard is not handed over at home, nor does it linger. Of several locks taken
// together each is checked; where they belong to different clients, or namespaces
// of one, no Multi can do that, and what Guard gives is refused by any.
func (l *Lease) Guard(ops ...any) []any {
	guarded := make([]any, 0, len(l.places)+len(ops)+1)
	if !l.oneView() {
		guarded = append(guarded, partsOfDifferentClients{})
	}
	for _, p := range l.places {
		guarded = append(guarded, check(p.Guard()))
	}
	return append(guarded, ops...)
}

// check is that a znode exists. Any version will do: a request to release changes
// it, and changes no ownership.
func check(path string) *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: path, Version: -1}
}

// Multi executes ops, all or none, in the lease's session and behind its Guard. It
// returns the responses to ops alone. If the lease is not held the error is
// ErrNotHeld, and nothing was applied; if the session is lost while the answer is
// awaited it wraps ErrNotHeld too, and framework.MaybeApplied tells the rest.
func (l *Lease) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	responses, err := l.multi(ctx, ops)
	if err != nil {
		err = fmt.Errorf("recipes: multi under %s: %w", l.path(), err)
	}
	return responses, err
}

func (l *Lease) multi(ctx context.Context, ops []any) ([]zk.MultiResponse, error) {
	if !l.Held() {
		return nil, l.notHeld()
	}
	sess, err := l.session()
	if err != nil {
		return nil, err
	}
	all := make([]any, 0, len(l.places)+len(ops))
	for _, p := range l.places {
		done, held := p.Guarding()
		if !held {
			return nil, l.notHeld()
		}
		defer func() { done(!framework.MaybeApplied(err)) }()
		all = append(all, check(p.Path()))
	}
	responses, err := sess.Multi(ctx, append(all, ops...)...)
	if errors.Is(err, framework.ErrSessionLost) || errors.Is(err, framework.ErrClosed) {
		return nil, fmt.Errorf("%w: %w", ErrNotHeld, err)
	}
	for i, p := range l.places {
		if i < len(responses) && errors.Is(responses[i].Error, zk.ErrNoNode) {
			p.Deleted()
			return nil, fmt.Errorf("%w: %w", ErrNotHeld, err)
		}
	}
	if len(responses) < len(l.places) {
		return nil, err
	}
	return responses[len(l.places):], err
}

// session is the one that all the places belong to.
func (l *Lease) session() (*framework.Session, error) {
	if !l.oneView() {
		return nil, errForeign
	}
	var first *framework.Session
	for _, p := range l.places {
		sess, err := p.Session()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotHeld, err)
		}
		if first == nil {
			first = sess
		}
		if sess.ID() != first.ID() { // one of them is lost, and has not been told yet
			return nil, fmt.Errorf("%w: %w", ErrNotHeld, framework.ErrSessionLost)
		}
	}
	return first, nil
}

// notHeld wraps why it is not.
func (l *Lease) notHeld() error {
	if err := l.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotHeld, err)
	}
	return ErrNotHeld
}
