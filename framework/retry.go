package framework

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/retry"
)

// guardedPauses are those of a user's policy. If it panics, or NextBackOff ends
// the goroutine, which may be one that has to remove a znode, there are no
// more.
type guardedPauses struct {
	backoff.BackOff // nil: the policy has panicked
	log             *zap.Logger
}

func guarded(p retry.Policy, log *zap.Logger) retry.Policy {
	return func() backoff.BackOff {
		g := &guardedPauses{log: log}
		_ = supplied.Call(log, func() { g.BackOff = p() })
		return g
	}
}

func (g *guardedPauses) NextBackOff() time.Duration {
	pause := backoff.Stop
	if <-supplied.Go(g.log, func() error { pause = g.BackOff.NextBackOff(); return nil }) != nil {
		return backoff.Stop
	}
	return pause
}

// awaitConnected waits until a session is Connected: that of the scope, or any
// session if it has none. Meanwhile it uses up budget, pause by pause. A nil
// budget is endless.
func (w scope) awaitConnected(ctx context.Context, budget backoff.BackOff) (*session, error) {
	c, in := w.core, w.in
	var pause <-chan time.Time // nil: not begun
	for {
		c.mu.Lock()
		s, state, changed, refused := c.session, c.state, c.changed, c.rejected
		c.mu.Unlock()
		switch {
		case c.isClosing():
			return nil, zkerr.Closed
		case in != nil && in.Err() != nil:
			return nil, in.Err()
		case ctx.Err() != nil:
			return nil, zkerr.Because(ctxerr.Of(ctx), c.fault())
		case state == Connected && (in == nil || in == s) && s.isReady():
			return s, nil
		case refused != nil && !w.patient:
			return nil, refused
		}
		if pause == nil && budget != nil {
			d := budget.NextBackOff()
			if d == backoff.Stop {
				return nil, zkerr.Because(zk.ErrNoServer, c.fault())
			}
			pause = time.After(d)
		}
		select {
		case <-changed:
		case <-pause:
			pause = nil
		case <-in.ended():
		case <-ctx.Done():
		case <-c.closing:
		}
	}
}

// attempt is one try of an operation in a session. unsure is true when an
// earlier try, or an earlier step of this one, may have been executed.
type attempt struct {
	session *session
	seen    int64 // the latest transaction that the session had seen before this try
	unsure  bool
	budget  backoff.BackOff // what is left for this try and all further ones
}

// unsentError is the error of a try that has sent nothing.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// deleted returns the result of a delete whose last try has failed with err, or
// succeeded: that there is no znode is a success after an earlier try whose
// outcome is unknown.
func (a *attempt) deleted(err error) error {
	if a.unsure && errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// idempotence says what may be done after a try whose outcome is unknown.
type idempotence bool

const (
	repeatable idempotence = true  // a retry does no harm
	onceOnly   idempotence = false // a retry might do it twice
)

// do runs try until it succeeds, fails for good, or the budget of the retry
// policy is used up. Operations inside of try share that budget.
func (w scope) do(ctx context.Context, op, path string, again idempotence, try func(*attempt) error) error {
	c, in, budget := w.core, w.in, w.budget
	if budget == nil {
		budget = c.cfg.retry()
	}
	a := attempt{budget: budget}
	patience := budget
	if w.patient {
		patience = nil
	}
	began := time.Now()
	fail := func(err error) error {
		return &zkerr.Op{Op: op, Path: path, Root: string(w.root), Err: a.session.naming(zkerr.WithMeaning(err)), Maybe: a.unsure}
	}
	for {
		s, err := w.awaitConnected(ctx, patience)
		if err != nil {
			return fail(a.session.explain(err, began))
		}
		a.session, a.seen = s, s.latestSeen()
		if err = try(&a); err == nil {
			return nil
		}
		what := zkerr.Classify(err)
		if ended := s.Err(); (ended != nil || ctx.Err() != nil) && !errors.As(err, new(unsentError)) {
			// The request was left to itself: its outcome is unknown.
			what = zkerr.Ambiguous
		} else if what == zkerr.Expired {
			s.onExpired(errExpired)
		}
		if what == zkerr.Ambiguous {
			err = s.explain(err, began)
			a.unsure = a.unsure || request.IsWrite(op)
		}
		switch {
		case what == zkerr.Final, a.unsure && again == onceOnly:
			return fail(err)
		case in != nil && in.Err() != nil:
			return fail(in.Err())
		case ctx.Err() != nil:
			return fail(ctxerr.Of(ctx))
		case c.isClosing():
			return fail(zkerr.Closed)
		}
		pause := budget.NextBackOff()
		if pause == backoff.Stop {
			return fail(err)
		}
		c.cfg.log.Debug("trying again", zap.String("op", op), zap.String("path", w.root.Fix(path)), zap.Error(err))
		c.observers.retried(ctx, Retry{Op: op, Path: w.root.Fix(path), Err: err})
		select { // awaitConnected finds out which it was
		case <-time.After(pause):
		case <-in.ended():
		case <-ctx.Done():
		case <-c.closing:
		}
	}
}

// naming adds the server to an answer that says that it requires more of the
// client: the others may not.
func (s *session) naming(err error) error {
	if !errors.Is(err, zkerr.AuthRequired) || s == nil || s.latest() == nil {
		return err
	}
	return fmt.Errorf("%s: %w", s.latest().to, err)
}

// ended returns a channel that is closed when the session is over, nil if s is
// nil.
func (s *session) ended() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.over
}
