package framework

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// A server does not answer the connect request of a client that has seen later
// transactions than the server has. It hangs up. That is right for a server
// that lags. But after an ensemble was restored from a backup, no server ever
// says that the session is gone, and the client would call for good.
//
// So when servers have hung up on a session's connect requests for T, without
// any answer, the client asks one of them in a new session, which has seen
// nothing. A sync first brings that server up to its leader. If the latest
// transaction there is earlier than one that the session has seen, the history
// was replaced, and the session is over. The new session is closed at once.
//
// This costs a session at most once in T, and only while servers hang up. A
// server without a quorum hangs up on the new session as well.

// hangUps is what is known of servers that hang up on the connect request.
type hangUps struct {
	since   time.Time // of the first one since a connect was answered; zero: none
	askedAt time.Time // when the new session was opened last
}

// whyHungUp says why a server may hang up before it has answered the connect
// request. Servers do not say it, except that they refuse a certificate: in TLS
// 1.3 only the first read says that.
func (c *core) whyHungUp() string {
	const why = "it has no quorum, or has as many connections from this address as it allows (maxClientCnxns), or "
	if c.cfg.tls != nil {
		return why + "refuses the client's certificate"
	}
	return why + "expects TLS"
}

// onNoAnswer runs when the connection has ended with err before the connect
// request was answered.
func (l *link) onNoAnswer(err error) {
	c := l.session.core
	switch {
	case errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe): // we have closed it
		return
	case !zkerr.IsHangUp(err):
		c.servers.noteFault(l.to, fmt.Errorf("no answer from %s: %w", l.to, err))
		return
	}
	l.session.onHangUp(l.to, l.seen)
	why := c.whyHungUp()
	if l.seen > 0 {
		why += ", or lags behind what this client has seen"
	}
	c.servers.noteFault(l.to, fmt.Errorf("%s has ended the connection without an answer: %s", l.to, why))
}

// onHangUp runs when a server has ended a connection without an answer to its
// connect request, which named the transaction seen.
func (s *session) onHangUp(at server, seen int64) {
	now := clock.Now()
	s.mu.Lock()
	if s.hungUp.since.IsZero() {
		s.hungUp.since = now
	}
	ask := s.id != 0 && seen > 0 && !s.isSevered() &&
		now.Sub(s.hungUp.since) >= s.evidence.Timeout() && now.Sub(s.hungUp.askedAt) >= s.evidence.Timeout()
	if ask {
		s.hungUp.askedAt = now
	}
	s.mu.Unlock()
	if ask {
		s.core.tasks.Go(func() { s.askForHistory(at, seen) })
	}
}

// askForHistory ends the session if the ensemble does not know the transaction
// seen.
func (s *session) askForHistory(at server, seen int64) {
	s.core.ensemble.noteSeen(seen)
	err := s.core.vouch(context.Background(), at, s.closeStepTimeout())
	latest := int64(0)
	if err == nil {
		latest, err = s.core.latestTransaction(at, s.closeStepTimeout())
	}
	if err != nil {
		s.core.cfg.log.Debug("cannot ask for the latest transaction", zap.Stringer("server", at), zap.Error(err))
		return
	}
	if latest < seen {
		s.onExpired(fmt.Errorf("%w: the ensemble's history was replaced: its latest transaction is 0x%x, and this session has seen 0x%x",
			zkerr.SessionLost, latest, seen))
	}
}

// latestTransaction opens a session at a server, syncs it with its leader,
// returns the latest transaction there, and closes the session.
func (c *core) latestTransaction(at server, limit time.Duration) (zxid int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	defer cancel()
	const shortest = 1 // ms: the server raises it to the shortest timeout that it allows
	r, err := c.converse(ctx, at, limit, &wire.ConnectRequest{Timeout: shortest, Password: make([]byte, passwordSize)}, true, syncRoot)
	if r.session != 0 {
		_ = c.closeAt(ctx, orphan{r.session, r.password, 3 * limit}, at) // it is logged
	}
	if err == nil && r.session == 0 {
		err = errBadAnswer
	}
	return r.zxid, err
}
