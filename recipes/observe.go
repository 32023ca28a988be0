package recipes

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// Observers get the start and the result of each call of Acquire on a Line, and
// one end of each lease that it has returned. For a joined lease they get the
// events of its parts.

// observedLease is what observers get about a lease.
type observedLease struct {
	by      observerList
	acquire Acquire
	grant   Grant
}

// described returns what observers get about each Acquire.
func (l *Line) described(s *settings, kind string) Acquire {
	in := &s.inside
	a := Acquire{Recipe: kind, Mode: Exclusive.String(), Path: l.FullPath(), Permits: 1}
	if in.Recipe != "" {
		a.Recipe = in.Recipe
	}
	if in.Shares || l.line.Shares() {
		a.Mode = Shared.String()
	}
	if in.Permits != nil {
		a.Permits = in.Permits.N
	}
	a.Label = a.Path
	for _, label := range []string{in.Label, s.Label} {
		if label != "" {
			a.Label = label
		}
	}
	return a
}

// errExited is the result that observers get if the goroutine ends before the
// call does: a function of the user has called runtime.Goexit, or panicked.
var errExited = errors.New("the goroutine has ended")

// acquireObserved is acquire for a client whose observers get something about
// it. It reports the end of the call before the lease is followed, so before
// any other event of the lease.
func (l *Line) acquireObserved(ctx context.Context, try bool) (*Lease, error) {
	what := l.about
	what.Try = try
	during, end := l.observers.startAcquire(ctx, what)
	told := false
	defer func() {
		if !told {
			end(AcquireResult{Err: errExited})
		}
	}()
	shares, err := l.shares(ctx, during, try)
	if err != nil {
		told = true
		err = l.failed("acquire", err)
		end(AcquireResult{Err: err})
		return nil, err
	}
	lease := newLease(ctx, shares...)
	lease.observed = &observedLease{l.observers, what, lease.describeGrant()}
	told = true
	heard := false
	defer func() {
		if !heard { // an observer has ended the goroutine: nobody gets the lease
			go func() { _ = lease.follow().Release(context.Background()) }()
		}
	}()
	end(AcquireResult{Grant: lease.observed.grant})
	heard = true
	return lease.follow(), nil
}

func (l *Lease) describeGrant() Grant {
	first := l.shares[0]
	return Grant{
		How: How(first.How()), At: l.since, Token: l.Token().String(), Session: first.SessionID(),
		Znode: first.Line().Client().Resolve(first.Path()),
	}
}

// observeRelease is called by the goroutine that has released the lease, after
// all of its znodes have left. So slow observers delay only that goroutine.
func (l *Lease) observeRelease() {
	for _, part := range l.parts {
		defer part.observeRelease() // the last part's first; deferred: if an observer ends the goroutine, the others follow
	}
	if len(l.shares) == 0 || len(l.parts) > 0 {
		return
	}
	if loss := l.lossNow(); loss != nil { // lose, on another goroutine, may not have come to this yet
		l.observeLoss(loss)
		l.observeLostRelease()
		return
	}
	if !l.endsNow() || l.observed == nil {
		return
	}
	l.observed.by.released(l.values(), Release{
		Acquire: l.observed.acquire, Grant: l.observed.grant, Held: time.Since(l.since),
	})
}

// observeLoss is called at a loss, and neither blocks nor waits for anything.
func (l *Lease) observeLoss(loss *line.Loss) {
	l.lossObserved.Do(func() {
		if len(l.shares) == 0 || len(l.parts) > 0 || !l.endsNow() {
			return
		}
		reason := lossReason(loss.Err)
		l.client().Logger().Warn("lease lost", zap.String("path", l.fullPath()), zap.String("znode", l.client().Resolve(l.Path())),
			zap.String("session", wire.SessionText(l.shares[0].SessionID())), zap.String("reason", string(reason)), zap.Error(loss.Err))
		if l.observed == nil {
			return
		}
		now := time.Now()
		told := Loss{
			Acquire: l.observed.acquire, Grant: l.observed.grant, At: now, Held: now.Sub(l.since), Reason: reason, Err: loss.Err,
		}
		l.mu.Lock()
		l.toldLoss = &told
		l.mu.Unlock()
		l.observed.by.lost(l.values(), told)
	})
}

// observeLostRelease is called by the goroutine that has released a lost lease.
func (l *Lease) observeLostRelease() {
	l.mu.Lock()
	told := l.toldLoss
	l.toldLoss = nil // once
	l.mu.Unlock()
	if told != nil {
		l.observed.by.lostReleased(l.values(), *told)
	}
}

// lossReason returns the reason in err, the Err of a lost lease.
func lossReason(err error) LossReason {
	for _, known := range []struct {
		err    error
		reason LossReason
	}{
		{ErrMaxHold, LostMaxHold},
		{framework.ErrClosed, LostClosed},
		{framework.ErrUnproven, LostUnproven},
		{framework.ErrSuspended, LostConnection},
		{framework.ErrSessionLost, LostSession},
		{zk.ErrNoNode, LostDeleted},
	} {
		if errors.Is(err, known.err) {
			return known.reason
		}
	}
	return LostOtherwise
}

// endsAtOnce reports whether a loss for the reason err is the lease's deadline
// itself, so that nothing can tell the work before it.
func endsAtOnce(err error) bool {
	switch lossReason(err) {
	case LostUnproven, LostConnection, LostMaxHold:
		return false
	}
	return true
}

// observeOverrun reports an overrun for each of the locks. It is called on the
// goroutine of the work.
func (l *Lease) observeOverrun(by time.Duration) {
	for _, part := range slices.Backward(l.parts) {
		defer part.observeOverrun(by) // as in observeRelease
	}
	if len(l.parts) > 0 || l.observed == nil {
		return
	}
	l.observed.by.overran(l.values(), Overrun{
		Acquire: l.observed.acquire, Grant: l.observed.grant, By: by,
	})
}

// observeRevocation makes the observers get a request to release.
func (l *Lease) observeRevocation() {
	if l.observed == nil {
		return
	}
	l.mu.Lock()
	asked := l.asked
	l.asked = true
	l.mu.Unlock()
	if !asked {
		l.shares[0].OnRevoked(func() {
			l.observed.by.revoked(l.values(), Revocation{Acquire: l.observed.acquire, Grant: l.observed.grant})
		})
	}
}

// values returns a context for observers: it has the values of the lease's
// context and never ends.
func (l *Lease) values() context.Context { return context.WithoutCancel(l.ctx) }

// endsNow returns true for the first end of the lease, which observers get.
func (l *Lease) endsNow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.ended
	l.ended = true
	return first
}
