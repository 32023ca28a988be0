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
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// A Lease is one acquisition. It belongs to one session, and is over for good
// once it was lost or released. It is safe for concurrent use. The zero Lease
// is not held, and never was.
type Lease struct {
	shares []*line.Share // one, except where a recipe takes several at once
	parts  []*Lease      // of a joined lease: they have the shares; nil: none
	ctx    context.Context
	end    context.CancelCauseFunc
	owner  *Owner
	lost   chan struct{} // closed: lost
	since  time.Time     // when it was granted

	observed     *observedLease // nil: nobody observes it
	lossObserved sync.Once

	mu       sync.Mutex    // guards what follows
	ended    bool          // the observers have heard of its end, or are about to
	asked    bool          // they will hear of a request to release it
	toldLoss *Loss         // that they hear of at the release; nil: none
	loss     *line.Loss    // the first of its shares or parts; nil: it was not lost
	released bool          // Release was called
	wholes   []*Lease      // that it is a part of
	revoked  chan struct{} // of a joined lease, closed: a part is to be released; nil: nobody wants to know
	working  int           // calls of Do under way
	late     *time.Timer   // fires at the deadline of a lost lease that works
}

// newLease makes a lease of shares that were granted to an Acquire with ctx.
// follow must be called before it is used. If ctx, which may be user code,
// panics or ends the goroutine, nobody gets the lease: newLease leaves the
// shares.
func newLease(ctx context.Context, shares ...*line.Share) *Lease {
	l := &Lease{shares: shares}
	defer func() {
		if l.ctx == nil {
			for _, s := range shares {
				s.Leave(context.Background())
			}
		}
	}()
	l.start(ctx)
	return l
}

// follow has the lease hear of its loss from now on, or of one before, and
// gives it to its owner. It returns l.
func (l *Lease) follow() *Lease {
	for _, s := range l.shares {
		s.OnLoss(l.lose)
	}
	l.own()
	return l
}

// own gives the lease to its owner, from which others may have it from now on.
func (l *Lease) own() {
	if l.owner != nil {
		l.owner.add(l)
	}
}

func (l *Lease) start(ctx context.Context) {
	l.lost, l.owner, l.since = make(chan struct{}), ownerOf(ctx), time.Now()
	l.ctx, l.end = context.WithCancelCause(withLease(context.WithoutCancel(ctx), l))
}

// lose is called when any of the shares, or of the parts, is lost.
func (l *Lease) lose(loss *line.Loss) {
	if first := l.deadlineOfShares(); first.Before(loss.Deadline) {
		loss = &line.Loss{Err: loss.Err, Deadline: first} // another share's is nearer
	}
	l.mu.Lock()
	if l.loss != nil {
		l.mu.Unlock()
		return
	}
	l.loss = loss
	if l.working > 0 {
		l.watchWorkLocked()
	}
	l.mu.Unlock()
	// In this order: a caller that sees Lost finds the context ended, and a caller
	// that sees either finds Err.
	l.end(fmt.Errorf("%w: %w", ErrNotHeld, loss.Err))
	for _, whole := range l.partOf() {
		whole.lose(l.lossOfPart(loss))
	}
	close(l.lost)
	l.observeLoss(loss)
}

// Context returns a context that carries the values of Acquire's context and
// this lease: an Acquire with it re-enters. It ends when the lease is lost or
// released, but not when Acquire's context does: a timeout for the wait must
// not end the work. Its cause wraps ErrNotHeld and the reason, or is
// ErrReleased.
func (l *Lease) Context() context.Context {
	if l.ctx == nil {
		return neverHeld
	}
	return l.ctx
}

// neverHeld is the context of the zero Lease.
var neverHeld = func() context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	end(ErrNotHeld)
	return ctx
}()

// Bind returns ctx with this lease added to those that it carries. It also ends
// when the lease does. cancel must be called when it is no longer needed.
func (l *Lease) Bind(ctx context.Context) (bound context.Context, cancel context.CancelFunc) {
	lease := l.Context()
	bound, end := context.WithCancelCause(withLease(ctx, l))
	stop := context.AfterFunc(lease, func() { end(context.Cause(lease)) })
	if lease.Err() != nil {
		end(context.Cause(lease)) // over already: at once
	}
	return bound, func() {
		stop()
		end(context.Canceled)
	}
}

// Held reports whether the lease is held, as far as the clock can prove. It
// looks at the clock itself, so it is right also in a process that was stopped
// for a while. Once false it stays false. What it reports was true when it
// looked: work that must not be done by two needs the Token or Guard.
func (l *Lease) Held() bool {
	if l.Err() != nil {
		return false
	}
	for _, s := range l.shares {
		if !s.Held() {
			return false
		}
	}
	return len(l.shares) > 0
}

// Lost is closed when the lease is lost, and only then: the session's deadline
// is near or the session is over, the znode was deleted, the maximum hold time
// is over, or the client closed. The work then has one stop margin to stop. It
// has none if the ensemble ended the lease or the client was closed.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err returns nil while the lease is held, ErrReleased after its release, and
// the reason after a loss.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.loss != nil:
		return l.loss.Err
	case l.released:
		return ErrReleased
	}
	return nil
}

// Deadline returns the instant until which nobody else can be granted what this
// lease holds, as far as is known now; it moves on while heartbeats are
// answered. After a loss, Deadline returns the deadline known at that time. If
// the session expired, the znode was deleted or the client was closed, that is
// the time of the loss.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	loss := l.loss
	l.mu.Unlock()
	if loss != nil {
		return loss.Deadline
	}
	return l.deadlineOfShares()
}

func (l *Lease) deadlineOfShares() (first time.Time) {
	for i, s := range l.shares {
		if d := s.Deadline(); i == 0 || d.Before(first) {
			first = d
		}
	}
	return first
}

// Token returns the fencing token: see Token. Of several locks taken together
// it is the greatest of theirs. That one increases among leases of the same set
// of locks. If a resource is guarded by only one of the locks, or is also used
// with another set of locks, compare the tokens of Parts instead.
func (l *Lease) Token() (greatest Token) {
	for _, s := range l.shares {
		if t := tokenOf(s); t.Compare(greatest) > 0 {
			greatest = t
		}
	}
	return greatest
}

// Path returns the path of the lease's znode, in the view of the recipe's
// client; of several locks taken together, of the first one.
func (l *Lease) Path() string {
	if len(l.shares) == 0 {
		return ""
	}
	return l.shares[0].Path()
}

// LockPath returns the path of the lock, semaphore or election that the lease
// was acquired from; of several locks taken together, all of them, with commas.
func (l *Lease) LockPath() string {
	switch {
	case len(l.parts) > 0:
		return l.ofParts((*Lease).LockPath)
	case len(l.shares) > 0:
		return l.shares[0].Line().Path()
	}
	return ""
}

// fullPath is LockPath at the ensemble, for the log.
func (l *Lease) fullPath() string {
	if len(l.parts) > 0 {
		return l.ofParts((*Lease).fullPath)
	}
	return l.client().Resolve(l.LockPath())
}

// Parts returns the leases that this one is made of, in the order in which they
// were acquired, if it is one of several locks taken together; otherwise none.
// They belong to this lease: the release of one by itself is the loss of the
// whole.
func (l *Lease) Parts() []*Lease { return slices.Clone(l.parts) }

// Revoked is closed when somebody asks for the lease to be released, by writing
// __REVOKE__ to its znode as Apache Curator does, or __REVOKE__, a space and
// any text. Nothing enforces it. The first call begins to look for it, off the
// path of the acquisition: it costs a watch and a read, and another read each
// session timeout, since an event can be lost.
func (l *Lease) Revoked() <-chan struct{} {
	switch {
	case len(l.parts) > 0:
		return l.anyRevoked()
	case len(l.shares) > 0:
		revoked := l.shares[0].Revoked()
		l.observeRevocation()
		return revoked
	}
	return nil
}

// Release gives the lease up, and returns when its znode is gone. ctx bounds
// the wait alone: the removal goes on if it ends, and Release may be called
// again to wait again. A lease that was re-entered keeps the znode until the
// last is released, in whichever order, and makes no request. It makes no
// request either if the znode is handed off in-process, or lingers.
//
// Release returns nil if the lease was held until now, or was released before;
// and ErrNotHeld, wrapping Err, if it was lost, even while it was being
// released. So a checked Release proves the whole section. One case can be
// missed: where Release makes no request, it may not know yet that somebody
// else deleted the znode. With WithAsyncRelease it does not wait, and cannot
// know that either: see there.
func (l *Lease) Release(ctx context.Context) error {
	for _, whole := range l.partOf() {
		if !whole.isReleased() {
			whole.lose(l.lossOfPart(&line.Loss{Err: ErrReleased, Deadline: time.Now()})) // others may be granted it
		}
	}
	err := l.leave(ctx)
	l.observeRelease()
	if err != nil {
		return fmt.Errorf("recipes: release %s: %w", l.LockPath(), err)
	}
	return nil
}

// leave is Release, also by a lease that l is a part of.
func (l *Lease) leave(ctx context.Context) error {
	l.mu.Lock()
	first := !l.released
	l.released = true
	l.mu.Unlock()
	for _, s := range l.shares {
		s.Held() // a loss that is found only now is the cause, not the release
	}
	if first && l.ctx != nil {
		if l.owner != nil {
			l.owner.remove(l)
		}
		l.end(ErrReleased)
	}
	if len(l.parts) > 0 {
		return l.leaveParts(ctx)
	}
	for _, s := range l.shares {
		s.Leave(ctx) // all at once
	}
	var errs []error
	for _, s := range l.shares {
		if err := s.Left(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	if loss := l.lossNow(); loss != nil {
		l.lose(loss) // which another goroutine may be about to tell
	}
	return oneline.Join(errs...)
}

// lossNow returns how the lease was lost, also if lose has not been called yet.
// It returns nil if the lease was not lost.
func (l *Lease) lossNow() *line.Loss {
	l.mu.Lock()
	loss := l.loss
	l.mu.Unlock()
	for _, s := range l.shares {
		if loss == nil {
			loss = s.Loss()
		}
	}
	return loss
}

func (l *Lease) isReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.released
}

func (l *Lease) client() *managed.Client { return l.shares[0].Line().Client() }

// Guard prepends a check of the lease's znode to ops, for a Multi of yours. The
// ops are applied only while the lease's znode exists, so never after another
// client was granted the lock. A guard that was taken before a loss, or before
// a Release that does not wait (WithAsyncRelease), may still pass for a short
// time; a guard that is taken after the end always fails. The znode of a lease
// that has given out a guard is not handed off in-process, nor does it linger.
// Of several locks taken together each is checked; where they belong to
// different clients, or namespaces of one, no Multi can do that, and every
// Multi refuses what Guard returns.
func (l *Lease) Guard(ops ...any) []any {
	guarded := make([]any, 0, len(l.shares)+len(ops)+1)
	if !l.oneView() {
		guarded = append(guarded, noCommonMulti{})
	}
	for _, s := range l.shares {
		guarded = append(guarded, check(s.Guard()))
	}
	return append(guarded, ops...)
}

// check is that a znode exists. Any version will do: a request to release
// changes it, and changes no ownership.
func check(path string) *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: path, Version: -1}
}

// Multi executes ops, all or none, in the lease's session and behind its Guard.
// It returns the responses to ops alone. If the lease is not held the error is
// ErrNotHeld, and nothing was applied. If the session is lost before the answer
// arrives, the error also wraps ErrNotHeld; framework.MaybeApplied reports
// whether the ops may have been applied.
func (l *Lease) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	responses, err := l.multi(ctx, ops)
	if err != nil {
		err = fmt.Errorf("recipes: multi under %s: %w", l.LockPath(), err)
	}
	return responses, err
}

func (l *Lease) multi(ctx context.Context, ops []any) (_ []zk.MultiResponse, err error) {
	if !l.Held() {
		return nil, l.notHeld()
	}
	if !l.oneView() {
		return nil, errDifferentClients
	}
	all := make([]any, 0, len(l.shares)+len(ops))
	for _, s := range l.shares {
		done, held := s.Guarding()
		if !held {
			return nil, l.notHeld()
		}
		defer func() { done(!framework.MaybeApplied(err)) }()
		all = append(all, check(s.Path()))
	}
	// If another share was lost just now, with its session, its check fails.
	responses, err := l.shares[0].Session().Multi(ctx, append(all, ops...)...)
	if errors.Is(err, framework.ErrSessionLost) || errors.Is(err, framework.ErrClosed) {
		return nil, fmt.Errorf("%w: %w", ErrNotHeld, err)
	}
	for i, s := range l.shares {
		if i < len(responses) && errors.Is(responses[i].Error, zk.ErrNoNode) {
			s.Deleted()
			return nil, fmt.Errorf("%w: %w", ErrNotHeld, err)
		}
	}
	return responses[min(len(responses), len(l.shares)):], err
}

// notHeld wraps the reason.
func (l *Lease) notHeld() error {
	if err := l.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotHeld, err)
	}
	return ErrNotHeld
}
