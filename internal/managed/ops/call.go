package ops

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	life "github.com/zkrecipes/zkrecipes/internal/managed/session"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/stack"
)

// Call makes one blocking call of the wire client, as Detach does, and tells
// the observers of it.
func Call[T any](ctx context.Context, s *Session, ask Request, wire func(*zk.Conn) (T, error), late func(T, error)) (T, error) {
	return Detach(ctx, s, func() (T, error) { return Observed(ctx, s, ask, wire) }, late)
}

// Observed makes a call of the wire client, and reports it to the observers,
// and a delete also to what counts ephemeral znodes.
func Observed[T any](ctx context.Context, s *Session, ask Request, call func(*zk.Conn) (T, error)) (T, error) {
	end := s.StartObserved(ctx, ask)
	value, err := life.Call(s.Session, call)
	end(err)
	if ask.Op == request.NameDelete {
		s.Client.Ephemerals.OnDelete(ask.Path, err)
	}
	return value, err
}

// StartObserved reports to the observers that a request begins, and returns a
// function that must be called when it has ended. ask has Op and Path, and
// Operations and Began unless these are 1 and now.
func (s *Session) StartObserved(ctx context.Context, ask Request) (end func(error)) {
	if !s.Client.observer.Observes() {
		return func(error) {}
	}
	ask.Operations = max(ask.Operations, 1)
	if ask.Session, ask.Server = s.Chain().ID(), s.Conn().Server(); ask.Began.IsZero() {
		ask.Began = time.Now()
	}
	return s.Client.observer.Began(ctx, ask)
}

// Sync makes the server of this session catch up with its leader.
func (s *Session) Sync(ctx context.Context, full string) error {
	_, err := Call(ctx, s, Request{Op: request.NameSync, Path: full}, func(conn *zk.Conn) (string, error) { return conn.Sync(full) }, nil)
	return err
}

// Detach makes one blocking call. It returns as soon as there is a result, ctx
// ends, or the session is over. In the last two cases the call goes on until
// the connection answers or is closed, and its result is then passed to late,
// on another goroutine: whatever was created must not be forgotten.
//
// If the session is over, the result is passed to late as well, and not
// returned, since nothing may be concluded from it. Whether late gets the
// result is in the error: see IsDetached. Whether ctx has ended does not answer
// that, for it may end right after the result has come.
//
// A context that cannot end needs no other goroutine: the end of the session
// closes the wire client, which ends its calls at once.
func Detach[T any](ctx context.Context, s *Session, blocking func() (T, error), late func(T, error)) (none T, err error) {
	if ctx.Err() != nil {
		return none, ctxerr.Of(ctx)
	}
	ended := ctx.Done() // before there is a goroutine: ctx may be user code, which may panic
	if ended == nil {
		value, err := blocking()
		return inTime(s, value, err, late)
	}
	type result struct {
		value T
		err   error
	}
	results := make(chan result)
	go func() {
		stack.Grow()
		value, err := blocking()
		results <- result{value, err}
	}()
	select {
	case r := <-results:
		return inTime(s, r.value, r.err, late)
	case <-ended:
		err = ctxerr.Of(ctx)
	case <-s.Over():
		err = s.Err()
	}
	go func() { // the one above waits until its result is taken
		if r := <-results; late != nil {
			late(r.value, r.err)
		}
	}()
	return none, detachedError{err}
}

// inTime returns the result of a call, unless the session is over by now.
func inTime[T any](s *Session, value T, err error, late func(T, error)) (none T, _ error) {
	over := s.Err()
	if over == nil {
		return value, err
	}
	if late != nil {
		late(value, err)
	}
	return none, detachedError{over}
}

// detachedError is the error of a call whose result is passed to late.
type detachedError struct{ error }

func (e detachedError) Unwrap() error { return e.error }

// IsDetached reports whether the result of a call that failed with err is
// passed to late. Otherwise, if there was a call at all, its outcome is the
// caller's to handle.
func IsDetached(err error) bool {
	var detached detachedError
	return errors.As(err, &detached)
}

// IsLost reports whether err is of a request that was perhaps sent, and has no
// answer.
func IsLost(err error) bool {
	return err != nil && (IsDetached(err) || zkerr.Classify(err) == zkerr.Ambiguous)
}
