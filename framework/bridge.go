package framework

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
)

// call bridges one blocking call of the wire client to ctx and to the life of
// the session: it returns as soon as there is a result, ctx ends, or the session
// is over, and in the last two cases the wire call runs on by itself until the
// connection answers or is dropped. What it then yields is given to late, on its
// own goroutine: whoever makes something owns it, however late.
//
// A result of a session that is over by now is not given: it may have been
// valid, but nothing may be concluded from it any more. Whether late has it is in
// the error: see isLeft. Whether ctx has ended is no answer to that, for it may end
// right behind a result.
func call[T any](ctx context.Context, s *session, op string, wire func(*zk.Conn) (T, error), late func(T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, ctxerr.Of(ctx)
	}
	results := make(chan result)
	given := make(chan struct{}) // closed: the caller takes no result any more
	go func() {
		value, err := observed(s, op, wire)
		select {
		case results <- result{value, err}:
		case <-given:
			if late != nil {
				late(value, err)
			}
		}
	}()
	select {
	case r := <-results:
		if err := s.Err(); err != nil {
			if late != nil {
				late(r.value, r.err)
			}
			return none, leftError{err}
		}
		return r.value, r.err
	case <-ctx.Done():
		close(given)
		return none, leftError{ctxerr.Of(ctx)}
	case <-s.over:
		close(given)
		return none, leftError{s.Err()}
	}
}

// leftError is the error of a call whose result is not given to its caller.
type leftError struct{ error }

func (e leftError) Unwrap() error { return e.error }

// isLeft reports whether the result of a call that ended with err is given to late.
// Otherwise, if there was a call at all, its outcome is the caller's to see to.
func isLeft(err error) bool {
	var left leftError
	return errors.As(err, &left)
}

// observed is a call of the wire client that the observer hears of.
func observed[T any](s *session, op string, wire func(*zk.Conn) (T, error)) (T, error) {
	request := s.core.cfg.observer.Request
	if request == nil {
		return wire(s.conn)
	}
	began := time.Now()
	value, err := wire(s.conn)
	request(op, time.Since(began), err)
	return value, err
}
