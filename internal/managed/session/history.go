package session

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// A server does not answer the connect request of a client that has seen later
// transactions than the server has. It hangs up. That is right for a server
// that lags. But after an ensemble was restored from a backup, no server ever
// says that the session is gone, and the client would call forever.
//
// So when servers have hung up on a session's connect requests for T, without
// any answer, the client asks one of them in a new session, which has seen
// nothing. A sync first brings that server up to its leader. If the latest
// transaction there is earlier than one that the session has seen, the history
// was replaced, and the session is over. The new session is closed immediately.
//
// This costs a session at most once in T, and only while servers hang up. A
// server without a quorum also hangs up on the new session.

// hangUps is what is known of servers that hang up on the connect request.
type hangUps struct {
	mu      sync.Mutex // guards what follows
	since   time.Time  // of the first one since a connect was answered; zero: none
	askedAt time.Time  // when the new session was opened last
}

// onNoAnswer runs when a connection has ended with err before its connect
// request, which named the transaction seen, was answered.
func (s *Session) onNoAnswer(to servers.Server, seen int64, err error) {
	c := s.servers
	switch {
	case errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe): // we have closed it
		return
	case !zkerr.IsHangUp(err):
		c.NoteFault(to, fmt.Errorf("no answer from %s: %w", to, err))
		return
	}
	s.onHangUp(to, seen)
	why := c.WhyHungUp()
	if seen > 0 {
		why += ", or lags behind what this client has seen"
	}
	c.NoteFault(to, fmt.Errorf("%s has ended the connection without an answer: %s", to, why))
}

// onHangUp runs when a server has ended a connection without an answer to its
// connect request, which named the transaction seen.
func (s *Session) onHangUp(at servers.Server, seen int64) {
	if s.hungUp.note(s.Timeout(), s.chain.ID() != 0 && seen > 0 && !s.chain.IsSevered()) {
		s.tasks.Go(func() { s.askForHistory(at, seen) })
	}
}

// note notes that a server has hung up. It reports whether a server is to be
// asked now: mayAsk says whether one may be.
func (h *hangUps) note(timeout time.Duration, mayAsk bool) (ask bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := clock.Now()
	if h.since.IsZero() {
		h.since = now
	}
	if ask = mayAsk && now.Sub(h.since) >= timeout && now.Sub(h.askedAt) >= timeout; ask {
		h.askedAt = now
	}
	return ask
}

// forget notes that a server has answered a connect.
func (h *hangUps) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since, h.askedAt = time.Time{}, time.Time{}
}

// askForHistory ends the session if the ensemble does not know the transaction
// seen.
func (s *Session) askForHistory(at servers.Server, seen int64) {
	latest, err := s.servers.LatestTransaction(at, seen, s.StepTimeout())
	if err != nil {
		s.cfg.Log.Debug("cannot ask for the latest transaction", zap.Stringer("server", at), zap.Error(err))
		return
	}
	if latest < seen {
		s.onExpired(fmt.Errorf("%w: the ensemble's history was replaced: its latest transaction is 0x%x, and this session has seen 0x%x",
			zkerr.SessionLost, latest, seen))
	}
}
