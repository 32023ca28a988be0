package ops

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/offers"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file makes room for ephemeral znodes: before a create is refused, and
// before a large sum is logged, it asks the ensemble which ones the session
// has.

// Claim is that of a session, for one operation. What follows shares the
// budget of the scope that it returns.
func (w Scope) Claim(ctx context.Context, op, path string, creates ...any) (_ Scope, c *ephemerals.Claim, err error) {
	size := ephemerals.Size(creates...)
	if size == 0 {
		return w, nil, nil
	}
	if w.Budget == nil {
		w.Budget = w.Client.Config.Retry()
	}
	err = w.Do(ctx, op, path, Repeatable, func(*Attempt) (err error) {
		c, err = w.Client.claim(ctx, w.In, size, w.Allowance)
		return err
	})
	return w, c, err
}

// Claim claims bytes for what operations create in this session. The caller
// must settle the claim, which is nil if nothing ephemeral is created. It fails
// if there is no room, if ctx has ended, or if there was no connection for a
// question. Then nothing was sent, and the error says so to Scope.Do.
func (s *Session) Claim(ctx context.Context, by ephemerals.Allowance, ops ...any) (*ephemerals.Claim, error) {
	return s.Client.claim(ctx, s, ephemerals.Size(ops...), by)
}

func (c *Client) claim(ctx context.Context, in *Session, size int, by ephemerals.Allowance) (claim *ephemerals.Claim, err error) {
	if size == 0 {
		return nil, nil
	}
	var s *ephemerals.Session
	if in != nil {
		s = &in.Ephemerals
	}
	err = c.admit(ctx, func(limit int) (why ephemerals.Refused, ok bool) {
		claim, why = c.Ephemerals.Claim(s, size, by, limit)
		return why, claim != nil
	})
	if err != nil {
		return nil, unsentError{err}
	}
	return claim, nil
}

// KeepRoom reserves room for one ephemeral znode at a path, in this session and
// in all later ones of the client, until drop is called. A sequential one is
// protected as well.
func (s *Session) KeepRoom(ctx context.Context, full string, sequential bool) (r *ephemerals.Room, drop func(), err error) {
	all := s.Client.Ephemerals
	err = s.Client.admit(ctx, func(limit int) (why ephemerals.Refused, ok bool) {
		r, why = all.Keep(full, sequential, limit)
		return why, r != nil
	})
	if err != nil {
		return nil, nil, err
	}
	return r, func() { all.Drop(full, r) }, nil
}

// admit calls try with the limit, until it returns true. In between it gives
// back what lingers, and counts anew. What room was reserved for is refused
// only after a count that has just begun. The rest is also refused if the
// server has not said for three session timeouts whether it can count: that may
// last as long as the connection.
func (c *Client) admit(ctx context.Context, try func(limit int) (ephemerals.Refused, bool)) error {
	for limit := c.Ephemerals.Limit(); ; {
		why, done := try(limit)
		switch {
		case done:
			return nil
		case ctx.Err() != nil:
			return ctxerr.Of(ctx)
		case c.listsNoEphemerals(ctx):
			limit = math.MaxInt
			continue
		case c.above.GiveBack(ctx):
			continue
		}
		switch more, err := c.countAnew(ctx, !why.Reserved); {
		case ctx.Err() != nil:
		case errors.Is(err, offers.ErrUnsaid) && !(!why.Reserved && errors.Is(err, offers.ErrLongUnsaid)):
			return fmt.Errorf("%w: %w", zk.ErrNoServer, err)
		case err != nil && zkerr.Classify(err) != zkerr.Final:
			return zk.ErrNoServer // nothing was sent
		case !more:
			if why, done = try(limit); done { // a delete was answered meanwhile
				return nil
			}
			full := why.Err()
			if err != nil {
				full = fmt.Errorf("%w; not counted anew: %s", full, err.Error())
			}
			return full
		}
	}
}

// countAnew asks the ensemble which ephemeral znodes the session has, and
// reports whether there may be more room. If pauses is true it asks three times
// in a session timeout at most: an answer is large.
func (c *Client) countAnew(ctx context.Context, pauses bool) (more bool, err error) {
	s, err := c.current()
	if err != nil {
		return false, err
	}
	on, err := s.Offers(ctx, wire.OpGetEphemerals)
	if err != nil {
		return false, s.orNoServer(err)
	}
	pause := time.Duration(0)
	if pauses {
		pause = s.Timeout() / 3
	}
	begun, under := c.Ephemerals.BeginCount(pause)
	switch {
	case under != nil:
		select {
		case <-under:
		case <-ctx.Done():
		}
		return true, nil // try again
	case !begun:
		return false, nil
	}
	found, err := s.ephemeralPaths(ctx, on)
	return c.Ephemerals.EndCount(found, func() error { return s.orNoServer(err) }) // the next session has not begun if this one is not over
}

// CountEphemerals asks the ensemble which ephemeral znodes the session has, and
// counts these from then on.
func (c *Client) CountEphemerals(ctx context.Context) error {
	_, err := c.countAnew(ctx, false)
	return err
}

// orNoServer returns zk.ErrNoServer if the session is over, and otherwise err.
func (s *Session) orNoServer(err error) error {
	if s.Err() != nil {
		return zk.ErrNoServer
	}
	return err
}

// ephemeralPaths returns the paths of the session's ephemeral znodes, as of a
// time after the call. on is the connection that there was before.
func (s *Session) ephemeralPaths(ctx context.Context, on *link.Link) ([]string, error) {
	if err := s.Sync(ctx, "/"); err != nil { // the member may lag
		return nil, err
	}
	r, err := Call(ctx, s, Request{Op: request.NameEphemerals, Path: "/"}, func(*zk.Conn) (link.Reply, error) {
		return s.Chain().Ask(ctx, on, wire.OpGetEphemerals, &wire.PathRequest{Path: "/"}, link.MostAsked)
	}, nil)
	if err != nil {
		return nil, err
	}
	var found wire.ChildrenResponse
	err = wire.Unmarshal(r.Body, &found)
	return found.Children, err
}

// listsNoEphemerals reports whether the server has a version before 3.6, in
// which the end of a session lists no paths.
func (c *Client) listsNoEphemerals(ctx context.Context) bool {
	s, err := c.current()
	if err == nil {
		_, err = s.Offers(ctx, wire.OpGetEphemerals)
	}
	return errors.Is(err, offers.ErrOlder)
}

// current returns the session that there is.
func (c *Client) current() (*Session, error) {
	if s := c.above.Live(); s != nil {
		return s, nil
	}
	return nil, zk.ErrNoServer
}

// told is what the account of a client tells: see ephemerals.Told.
type told struct{ *Client }

func (c told) Changed(change ephemerals.Change) { c.observer.EphemeralsChanged(change) }

// Unsure asks what creates of unknown outcome have created, so that they do not
// add up. On servers whose sessions have no limit they do not matter.
func (c told) Unsure() {
	ctx, cancel := context.WithTimeout(context.Background(), c.Config.SessionTimeout)
	defer cancel()
	err := Scope{Client: c.Client, Budget: Endless()}.Do(ctx, request.NameEphemerals, "/", Repeatable, func(*Attempt) error {
		return c.CountEphemerals(ctx)
	})
	c.Ephemerals.Resolved(errors.Is(err, offers.ErrOlder))
}

// Large logs that the sum is large, unless it is not, or no harm is in that.
func (c told) Large() {
	if !c.Ephemerals.BeginLook() || c.isClosing() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Config.SessionTimeout)
	defer cancel()
	_ = c.CountEphemerals(ctx) // if that fails, the sum is what it may be at most
	off := c.listsNoEphemerals(ctx)
	if sum, large := c.Ephemerals.EndLook(); large && !off {
		c.Config.Log.Warn("the paths of this session's ephemeral znodes are long, or many: use several clients, or shorter paths",
			zap.Int("bytes", sum), zap.Int("limit", c.Ephemerals.Limit()))
	}
}
