package servers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file closes a session that is over, over a separate connection.

// tries says which servers are asked to close an orphan, and when.
type tries int

const (
	withPauses tries = iota // the servers in turn, with pauses, mostTries times
	inTurn                  // mostTries servers at most, one after the other
	together                // the same, all at the same time
)

// mostTries is how often servers are asked at most. Each try touches the
// session, which keeps it alive.
const mostTries = 3

// CloseLost closes a session that was lost, unless it is known to be gone. It
// asks servers three times, with pauses. It reports whether the session is gone
// now; otherwise it is left to expire. Then it tries again to close the oldest
// of too many earlier sessions, so that their number stays small.
func (s *Servers) CloseLost(o Orphan, gone bool) bool {
	gone = gone || s.close(context.Background(), o, withPauses) == nil
	s.NoteAsked(o.ID, gone)
	if id := s.earlier.oldest(); id != 0 && !s.isClosing() {
		_, _ = s.CloseEarlier(context.Background(), id)
	}
	return gone
}

// CloseLast closes the session of a client that closes. It asks three servers
// at the same time, and waits for them until ctx ends. It returns nil once the
// session is known to be gone. After an error the session is left to expire.
func (s *Servers) CloseLast(ctx context.Context, o Orphan) error { return s.close(ctx, o, together) }

// close closes an orphan, by a separate connection to each server that it asks.
// The orphan's ephemeral znodes would otherwise block others until it expires.
// It returns nil once the session is known to be gone.
func (s *Servers) close(ctx context.Context, o Orphan, how tries) error {
	servers := s.list.Find(ctx, o.StepTimeout())
	most := mostTries
	if how != withPauses {
		most = min(most, len(servers))
	}
	if how == together {
		return s.closeTogether(ctx, o, servers[:most])
	}
	last := zk.ErrNoServer
	for try := range most {
		if how == withPauses && try > 0 {
			if closed.Within(o.StepTimeout()/2+random.N(o.StepTimeout()/2), s.closing) {
				return last
			}
			if len(servers) == 0 {
				servers = s.list.Find(ctx, o.StepTimeout())
			}
		}
		if len(servers) > 0 {
			if last = s.closeThrough(ctx, o, servers[try%len(servers)]); last == nil {
				return nil
			}
		}
		if s.resumesNone.Load() {
			return last
		}
	}
	return last
}

// closeTogether is for a client that closes, which has no time to ask one
// server after the other. It does not wait for the dialer beyond ctx: that is
// the user's, and may ignore its timeout.
func (s *Servers) closeTogether(ctx context.Context, o Orphan, servers []Server) error {
	results := make(chan error, len(servers))
	last := zk.ErrNoServer
	for _, to := range servers {
		s.tasks.Go(func() { results <- s.closeThrough(ctx, o, to) })
	}
	for range servers {
		select {
		case err := <-results:
			if err == nil {
				return nil
			}
			last = err
		case <-ctx.Done():
			return last
		}
	}
	return last
}

// closeThrough closes an orphan through one server. It returns nil once the
// session is known to be gone.
func (s *Servers) closeThrough(ctx context.Context, o Orphan, to Server) error {
	if o.ID == 0 {
		return nil
	}
	to = s.doubted(to)
	if s.resumesNone.Load() {
		return errResumesNone
	}
	try := func(authenticated bool) error {
		return s.CloseAt(ctx, to, o.ID, o.Password, authenticated, o.StepTimeout())
	}
	authenticated := !s.pace.isRefused() // otherwise it would be one more attempt, and without a pause
	err := try(authenticated)
	if authenticated && (errors.Is(err, zk.ErrAuthFailed) || errors.Is(err, zkerr.SASL)) { // most servers close a session without credentials as well
		err = try(false)
	}
	if err != nil {
		s.cfg.Log.Debug("cannot close a session", zap.Stringer("server", to),
			zap.String("session", wire.SessionText(o.ID)), zap.Error(err))
	}
	return err
}

// CloseAt attaches to a session at a server, presents the credentials unless
// that is not wanted, and closes the session, in one write. The connect asks
// for the shortest timeout, since it touches the session. CloseAt returns nil
// once the session is known to be gone.
func (s *Servers) CloseAt(ctx context.Context, to Server, id int64, password []byte, authenticated bool, limit time.Duration) error {
	a, err := s.Converse(ctx, to, limit, &wire.ConnectRequest{Timeout: talk.Shortest, SessionID: id, Password: password}, authenticated, talk.CloseRequest)
	isGone, isAnother := a.Session == 0 && err == nil, a.Session != 0 && a.Session != id
	if isGone || isAnother {
		if err := s.Vouch(ctx, to, 0, limit); err != nil {
			return err
		}
	}
	if a.Session != 0 {
		s.resumesNone.Store(isAnother)
	}
	if isAnother {
		return zkerr.AnotherSession // which was closed in its stead, answered or not
	}
	return err
}

// errResumesNone is why a session cannot be closed by a separate connection.
//
// A server that only speaks the protocol may resume no session, as ClickHouse
// Keeper does: a connect that names one gets another in answer. That one is
// closed, and the client's session is over. The ensemble may still have it,
// with its ephemeral znodes, and nobody can close it: it stays until it
// expires.
//
// Such a server does not answer a close either. It ends the connection, which
// any other server would do only if it failed. So that counts as an answer from
// the servers of a client that have opened another session, and have resumed
// none since.
var errResumesNone = errors.New("the servers resume no session")

// NoteResumed notes whether a server has resumed the session that a connect
// named. One that has opened another session instead resumes none, as far as is
// known: then no orphan can be closed, and nobody tries.
func (s *Servers) NoteResumed(resumed bool) { s.resumesNone.Store(!resumed) }

// ResumesNone reports whether the last server that was asked to resume a
// session has opened another one instead.
func (s *Servers) ResumesNone() bool { return s.resumesNone.Load() }

// NoteEarlier remembers a session that is over, and the latest transaction that
// it has seen. The caller is about to close it, by CloseLost or in another way,
// and then calls NoteAsked.
func (s *Servers) NoteEarlier(o Orphan, seen int64) {
	if o.ID == 0 {
		return
	}
	s.ensemble.noteSeen(seen)
	s.earlier.note(o, func(e *earlierSession) bool { return e.closed || s.resumesNone.Load() })
}

// NoteAsked notes the end of a try to close an earlier session. closed says
// that the ensemble is known not to have it any more.
func (s *Servers) NoteAsked(id int64, closed bool) {
	s.earlier.noteAsked(id, closed)
	s.tellOver(id, closed)
}

// Earlier returns how many earlier sessions are remembered.
func (s *Servers) Earlier() int { return s.earlier.count() }

// CloseEarlier closes an earlier session of this client, so that its ephemeral
// znodes are gone. It reports whether the session is one that is remembered. If
// not, it may be another client's, and nothing was done. After an error its
// znodes stay until it expires.
//
// A try keeps the session alive, because it touches it. So there is one at a
// time, and a pause after each that lets the session expire: the timeout, and a
// tick of the servers, which is half of it at most.
func (s *Servers) CloseEarlier(ctx context.Context, id int64) (ours bool, err error) {
	for waited := false; ; waited = true {
		if s.isClosing() {
			select {
			case <-s.done: // its session is now among the earlier ones
			case <-ctx.Done():
				return true, ctxerr.Of(ctx)
			}
		}
		s.earlier.mu.Lock()
		e := s.earlier.findLocked(id)
		switch {
		case e == nil || e.closed:
			s.earlier.mu.Unlock()
			return e != nil, nil
		case e.asking == nil && (waited || s.isClosing() || time.Since(e.asked) < 2*e.Timeout):
			s.earlier.mu.Unlock()
			return true, fmt.Errorf("no server has closed the earlier session %s: its ephemeral znodes stay until it expires", wire.SessionText(id))
		}
		others := e.asking
		if others == nil {
			e.asking = make(chan struct{})
		}
		s.earlier.mu.Unlock()
		if others == nil {
			s.NoteAsked(id, s.close(ctx, e.Orphan, inTurn) == nil)
			continue
		}
		select {
		case <-others:
		case <-ctx.Done():
			return true, ctxerr.Of(ctx)
		}
	}
}
