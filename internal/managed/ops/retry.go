package ops

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/retry"
)

// Scope says where operations are executed: in any session, or in one.
type Scope struct {
	Client *Client
	Root   request.Prefix  // of the paths
	In     *Session        // nil: any
	Budget backoff.BackOff // of the operation that this is a part of; nil: a new one

	Patient   bool                 // waits for a connection without end, even while the client is refused
	Allowance ephemerals.Allowance // of the ephemeral znodes that are created

	unique bool // a path names one znode for ever, so a write to it may be repeated
}

// Attempt is one try of an operation in a session.
type Attempt struct {
	Session *Session
	Seen    int64           // the latest transaction that the session had seen before this try
	Unsure  bool            // an earlier try, or an earlier step of this one, may have been executed
	Budget  backoff.BackOff // what is left for this try and all further ones
}

// unsentError is the error of a try that has sent nothing.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// Deleted returns the result of a delete whose last try has failed with err, or
// succeeded: that there is no znode is a success after an earlier try whose
// outcome is unknown.
func (a *Attempt) Deleted(err error) error {
	if a.Unsure && errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// Idempotence says what may be done after a try whose outcome is unknown.
type Idempotence bool

// The values of an Idempotence.
const (
	Repeatable Idempotence = true  // a retry does no harm
	OnceOnly   Idempotence = false // a retry might do it twice
)

// Do runs try until it succeeds, fails for good, or the budget of the retry
// policy is used up. Operations inside of try share that budget.
func (w Scope) Do(ctx context.Context, op, path string, again Idempotence, try func(*Attempt) error) error {
	c, in, budget := w.Client, w.In, w.Budget
	if budget == nil {
		budget = c.Config.Retry()
	}
	var s *Session // of the latest try
	unsure := false
	patience := budget
	if w.Patient {
		patience = nil
	}
	began := time.Now()
	fail := func(err error) error {
		return &zkerr.Op{Op: op, Path: path, Root: string(w.Root), Err: s.Naming(zkerr.WithMeaning(err)), Maybe: unsure}
	}
	for {
		next, err := c.above.Await(ctx, in, patience, w.Patient)
		if err != nil {
			return fail(s.explain(err, began))
		}
		s = next
		// A request that is left to itself may still read its try.
		a := &Attempt{Session: s, Seen: s.Chain().Seen(), Unsure: unsure, Budget: budget}
		if err = try(a); err == nil {
			return nil
		}
		unsure = a.Unsure
		what := zkerr.Classify(err)
		if ended := s.Err(); (ended != nil || ctx.Err() != nil) && !errors.As(err, new(unsentError)) {
			// The request was left to itself: its outcome is unknown.
			what = zkerr.Ambiguous
		} else if what == zkerr.Expired {
			s.NoteExpired()
		}
		if what == zkerr.Ambiguous {
			err = s.explain(err, began)
			unsure = unsure || request.IsWrite(op)
		}
		switch {
		case what == zkerr.Final, unsure && again == OnceOnly:
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
		c.Config.Log.Debug("trying again", zap.String("op", op), zap.String("path", w.Root.Fix(path)), zap.Error(err))
		c.observer.Retried(ctx, Retry{Op: op, Path: w.Root.Fix(path), Err: err})
		w.wait(ctx, pause)
	}
}

// Rest waits for the next pause of the budget. It reports false if that is used
// up.
func (w Scope) Rest(ctx context.Context) bool {
	pause := w.Budget.NextBackOff()
	if pause == backoff.Stop {
		return false
	}
	w.wait(ctx, pause)
	return true
}

// wait waits for a pause, or until ctx or the session ends or the client
// closes: the next try finds out which it was.
func (w Scope) wait(ctx context.Context, pause time.Duration) {
	select {
	case <-time.After(pause):
	case <-w.In.ended():
	case <-ctx.Done():
	case <-w.Client.Closing:
	}
}

// Naming adds the server to an answer that says that it requires more of the
// client: the others may not.
func (s *Session) Naming(err error) error {
	if !errors.Is(err, zkerr.AuthRequired) || s == nil || s.Chain().Latest() == nil {
		return err
	}
	return fmt.Errorf("%s: %w", s.Chain().Latest().To(), err)
}

// ended returns a channel that is closed when the session is over, nil if s is
// nil.
func (s *Session) ended() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.Over()
}

// Endless is a schedule of pauses that does not end.
var Endless = retry.Exponential(50*time.Millisecond, 2*time.Second, math.MaxInt)
