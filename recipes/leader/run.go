package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/missing"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// ErrStop ends Run, without an error, when a term's function returns it.
var ErrStop = errors.New("stop campaigning")

// The causes for which Run ends a term's context while it still leads.
var (
	ErrResigned  = errors.New("resigned")
	ErrTermOver  = errors.New("maximum term is over")
	ErrUnhealthy = errors.New("health check failed")
)

// term is one term that Run leads. It has an identity: what was meant for one
// never ends another.
type term struct {
	end      context.CancelCauseFunc
	returned chan struct{} // closed: its function has returned, so its znode goes
}

// Run campaigns, calls lead in each term that it wins, and campaigns again, at
// the end of the line, when lead has returned: until ctx ends, which is its
// error then.
//
// lead gets a context that ends when the term does: when it is lost (a stop
// margin before anybody else can lead), at Resign, or by WithMaxTerm and
// WithHealthCheck; context.Cause says which. lead must return then. The znode
// stays until it has, so that no other candidate can lead while it works, as
// long as the session lives. Work that goes on past the deadline of a lost term
// is logged, and counted by the Observer.
//
// An error of lead, and a campaign that fails, are logged and followed by a
// pause (WithBackoff). If lead returns nil within a second, although its
// context has not ended, the next campaign begins at least a second after the
// start of the term. So a lead that does nothing does not keep the ensemble
// busy. Run logs this once. Once the term's context has ended, an error of lead
// is ignored, except ErrStop, which ends Run with nil. Run returns with
// framework.ErrClosed, recipes.ErrLayout, recipes.ErrExhausted, zk.ErrNoAuth,
// zk.ErrAuthFailed or framework.ErrAuthRequired, because another campaign would
// not help. It returns with zk.ErrNoNode if the client's chroot does not exist,
// and it returns when WithBackoff allows no more pauses. After any other error
// Run campaigns again, even if the tree below the chroot was deleted. That
// includes framework.ErrAuthFailed, because a later connection may be accepted.
// A panic of lead passes through, with the term released.
//
// An Election runs once at a time: a second Run at the same time is an error,
// and so is a nil function.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, term *recipes.Lease) error) error {
	if lead == nil {
		return fmt.Errorf("leader: run %s: no function to lead with", e.Path())
	}
	if e.client == nil {
		return errNotMade
	}
	if !e.running.CompareAndSwap(false, true) {
		return fmt.Errorf("leader: run %s: it runs already", e.Path())
	}
	defer e.running.Store(false)
	defer e.inTerm.Wait()
	pauses, said := e.cfg.backoff(), false
	for {
		stop, pause, err := e.campaign(ctx, lead)
		switch {
		case stop:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("leader: run %s: %w", e.Path(), ctxerr.Of(ctx))
		case err == nil:
			pauses = e.cfg.backoff()
			if pause > 0 && !said {
				said = true
				e.client.Logger().Warn("a term's function has returned at once: campaigning once a second", zap.String("path", e.FullPath()))
			}
		case hopeless(err):
			return err
		default:
			e.client.Logger().Warn("campaigning again", zap.String("path", e.FullPath()), zap.Error(err))
			next := pauses.NextBackOff()
			if next == backoff.Stop {
				return err
			}
			pause = max(pause, next)
		}
		if pause > 0 {
			if err := e.rest(ctx, pause); err != nil {
				return err
			}
		}
	}
}

// workError is an error of a term's function, or of the health check. What it
// wraps says nothing about the election.
type workError struct{ error }

func (e workError) Unwrap() error { return e.error }

// hopeless reports whether no further campaign would mend err.
func hopeless(err error) bool {
	if errors.As(err, new(workError)) {
		return false
	}
	if missing.Chroot(err) {
		return true
	}
	if errors.Is(err, framework.ErrAuthFailed) && !errors.Is(err, framework.ErrAuthRequired) { // the client goes on trying to connect
		return false
	}
	for _, target := range []error{framework.ErrClosed, recipes.ErrLayout, recipes.ErrExhausted, zk.ErrNoAuth, zk.ErrAuthFailed} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// rest pauses, and fails when ctx or the client ends first.
func (e *Election) rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("leader: run %s: %w", e.Path(), ctxerr.Of(ctx))
	case <-e.client.Done():
		return fmt.Errorf("leader: run %s: %w", e.Path(), framework.ErrClosed)
	}
}

// shortestTerm is the least time from the beginning of a term whose function
// returns nil by itself to the next campaign.
const shortestTerm = time.Second

// campaign is one campaign and, if it is won, one term. stop is true when lead
// asked for the end of Run. pause is what a short term asks for, however its
// release ends.
func (e *Election) campaign(ctx context.Context, lead func(context.Context, *recipes.Lease) error) (stop bool, pause time.Duration, err error) {
	if err := e.check(ctx); err != nil {
		return false, 0, workError{fmt.Errorf("leader: run %s: %w: %w", e.Path(), ErrUnhealthy, err)}
	}
	var leadErr error
	err = recipes.Do(ctx, e, func(ctx context.Context, l *recipes.Lease) error {
		pause, leadErr = e.serve(ctx, l, lead)
		return nil
	})
	e.inTerm.Wait() // a health check that hangs keeps the candidate out of line
	switch {
	case errors.Is(leadErr, ErrStop):
		return true, 0, nil
	case errors.Is(err, recipes.ErrNotHeld):
		return false, pause, nil // a term that was lost is over, whatever its function made of it
	case err != nil:
		return false, pause, err
	case leadErr != nil:
		return false, 0, workError{fmt.Errorf("leader: term at %s: %w", e.Path(), leadErr)}
	}
	return false, pause, nil
}

// serve calls lead for one term, and ends its context when the term is to end.
// What lead returns after that is not its own error.
func (e *Election) serve(ctx context.Context, l *recipes.Lease, lead func(context.Context, *recipes.Lease) error) (pause time.Duration, err error) {
	ctx, end := context.WithCancelCause(ctx) // Do ends it when serve has returned
	t := &term{end: end, returned: make(chan struct{})}
	e.setTerm(t)
	defer func() {
		e.setTerm(nil)
		close(t.returned)
	}()
	if e.cfg.maxTerm > 0 {
		e.inTerm.Go(func() { e.rotate(ctx, end) })
	}
	if e.cfg.health != nil {
		e.inTerm.Go(func() { e.watchHealth(ctx, end) })
	}
	began := time.Now()
	err = lead(ctx, l)
	switch {
	case ctx.Err() == nil:
		return shortestTerm - time.Since(began), err
	case errors.Is(err, ErrStop):
		return 0, err
	}
	return 0, nil
}

func (e *Election) setTerm(t *term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = t
}

// Resign ends the term that Run leads, if it leads one: the term's context ends
// with ErrResigned, and Run campaigns again, at the end of the line, once the
// term's function has returned. Resign does not wait for that, so the function
// itself may call it. The channel that it returns is closed when the function
// has returned; it is closed already if there is no term. A term from Acquire
// is ended by its Release instead.
func (e *Election) Resign() (returned <-chan struct{}) {
	e.mu.Lock()
	t := e.term
	e.mu.Unlock()
	if t == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	t.end(ErrResigned)
	return t.returned
}

// rotate ends a term that has lasted for WithMaxTerm, as soon as there is
// another candidate.
func (e *Election) rotate(ctx context.Context, end context.CancelCauseFunc) {
	if e.rest(ctx, e.cfg.maxTerm) != nil {
		return
	}
	for ctx.Err() == nil {
		err := e.awaitCandidates(ctx, 2)
		if err == nil {
			end(ErrTermOver)
			return
		}
		if e.rest(ctx, time.Second) != nil { // there was no server: look later
			return
		}
	}
}

// awaitCandidates returns nil when so many stand in line, or when ctx ends.
func (e *Election) awaitCandidates(ctx context.Context, n int) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lists, err := e.client.WatchChildren(ctx, e.Path())
	if err != nil {
		return err
	}
	var list framework.Children
	for list = range lists {
		if list.Err != nil || e.count(list.Names) >= n {
			break
		}
	}
	return list.Err
}

// count returns how many of the directory's children stand in line.
func (e *Election) count(children []string) int {
	candidates, _ := layout.Line(children, e.cfg.layout.inside().Set)
	return len(candidates)
}

// watchHealth ends a term when the health check fails. The first check is at
// once: the one before was before the candidate joined the line, maybe long
// ago.
func (e *Election) watchHealth(ctx context.Context, end context.CancelCauseFunc) {
	for {
		// A check that ignores the end of its context has failed as well.
		hangs := time.AfterFunc(e.cfg.every, func() { end(fmt.Errorf("%w: %w", ErrUnhealthy, context.DeadlineExceeded)) })
		err := e.check(ctx)
		hangs.Stop()
		if err != nil {
			end(fmt.Errorf("%w: %w", ErrUnhealthy, err))
			return
		}
		if e.rest(ctx, e.cfg.every) != nil {
			return
		}
	}
}

func (e *Election) check(ctx context.Context) error {
	if e.cfg.health == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.every)
	defer cancel()
	if err := e.cfg.health(ctx); err != nil {
		return err
	}
	return ctx.Err()
}
