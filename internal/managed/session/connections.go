package session

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// connections is what a session is told of its connections: see link.Told. The
// session may have noted the next connection already. So what is about one is
// compared, under the session's mutex, with the one that the session has noted
// last.
type connections struct{ *Session }

func (s connections) IsUp(l *link.Link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link == l && s.isReadyLocked()
}

func (s connections) Connected(l *link.Link, timeout time.Duration, isNew bool, sent, answered time.Time) {
	if !isNew {
		s.servers.NoteResumed(true)
	}
	if foreign, ok := s.mover.resumed(l.To()); ok {
		s.servers.NoteForeign(foreign)
	}
	s.servers.NoteConnected(l.To())
	s.hungUp.forget()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link, s.useful = l, false
	s.evidence.Connect(timeout, isNew, sent, answered)
}

func (s connections) Sent(l *link.Link, xid int32, op wire.Op, check bool, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l {
		s.evidence.Send(xid, op, check, at)
	}
}

func (s connections) Answered(l *link.Link, xid int32, failed bool, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != l {
		return
	}
	if s.evidence.Answer(xid, failed, at) {
		s.tellProversLocked()
	}
	if xid == wire.XidPing && s.evidence.Unanswered() > 0 {
		s.wake() // it has overtaken another request
	}
}

func (s connections) Received(l *link.Link, n int, inPart bool, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l {
		s.evidence.Receive(n, inPart, at)
	}
}

func (s connections) Expired() { s.onExpired(errExpired) }

func (s connections) NotResumed(l *link.Link) error {
	why := fmt.Errorf("%w: %s does not resume it: %w", zkerr.SessionLost, l.To(), zkerr.AnotherSession)
	s.servers.NoteResumed(false)
	s.End(why)
	s.cfg.Log.Warn("a server does not resume a session", zap.Stringer("server", l.To()), zap.String("session", wire.SessionText(s.chain.ID())))
	return why
}

func (s connections) Ended(l *link.Link, why link.Reason) {
	switch why.Kind {
	case link.Silent:
		s.told.Abandoned(l, Silent)
	case link.NoAnswer:
		s.onNoAnswer(l.To(), l.Seen(), why.Err)
	case link.HungUp:
		s.told.HungUp(l)
	case link.Malformed:
		s.servers.NoteFault(l.To(), why.Err)
		s.cfg.Log.Warn("connection closed after a malformed answer", zap.String("session", wire.SessionText(s.chain.ID())), zap.Error(why.Err))
	case link.Unauthenticated:
		s.servers.NoteFailed(l.To(), why.Err)
	case link.Forgotten:
		s.servers.SkipPause()
	case link.Fault:
		s.servers.NoteFault(l.To(), why.Err)
	}
}

func (s connections) Refused(op wire.Op, err error) { s.told.Refused(op, err) }
