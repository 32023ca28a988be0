package framework

import (
	"errors"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// A server that only speaks the protocol may resume no session, as ClickHouse
// Keeper does: a connect that names one gets another in answer. That one is
// closed, and ours is over at once. The ensemble may have ours still, with its
// ephemeral znodes, and nobody can close it: it stays until it expires.
//
// Such a server does not answer a close either. It ends the connection, which
// any other server would do only if it failed. So that is taken for an answer
// from a client's servers that have opened another session, and have resumed
// none since.

// errResumesNone is why a session cannot be closed by a connection of its own.
var errResumesNone = errors.New("the servers resume no session")

// isAnother reports whether id in the answer to a connect is that of another
// session than was asked for.
func (s *session) isAnother(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id != 0 && id != 0 && s.id != id
}

// closeAnother ends the session, since its connect was answered with another
// one. It closes that one, on the same connection, and waits for the answer or
// the end. It returns why the session is over.
func (l *link) closeAnother() error {
	s := l.session
	why := fmt.Errorf("%w: %s does not resume it: %w", zkerr.SessionLost, l.to, zkerr.AnotherSession)
	s.core.resumesNone.Store(true)
	s.mu.Lock()
	s.dialed = nil // the end of ours leaves this connection to us
	s.mu.Unlock()
	s.end(why)
	s.core.cfg.log.Warn("a server does not resume a session", zap.Stringer("server", l.to), zap.String("session", wire.SessionText(s.sessionID())))
	late := time.AfterFunc(min(l.limit, maxCloseStep), func() { _ = l.Conn.Close() })
	defer late.Stop()
	if _, err := l.Conn.Write(closeSession); err == nil {
		_, _ = io.Copy(io.Discard, l.read)
	}
	s.sever() // before the wire client can ask for it again, and be given a third one
	return why
}

// onEnd notes that l has ended with err, between two answers.
func (s *session) onEnd(l *link, err error) {
	if !zkerr.IsHangUp(err) {
		return
	}
	if s.core.containers.onEnd(&l.unanswered) {
		s.core.doubtContainers(l.to, false, nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l && s.closeXid != 0 && errors.Is(err, io.EOF) {
		s.closeEnded = true
	}
}
