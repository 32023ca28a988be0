package session

import (
	"fmt"
	"io"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
)

// hostProvider is the wire client's list of servers for one session. It only
// satisfies the wire client: at each attempt the dialer asks package servers
// which server to call, and waits its turn in a way that can be interrupted.
type hostProvider struct{ session *Session }

func (r hostProvider) Init([]string) error { return nil }
func (r hostProvider) Len() int            { return len(r.session.servers.Names()) }
func (r hostProvider) Connected()          {}

// Next reports the start of a new round in three cases, since that makes the
// wire client fail requests that only wait for a connection: once the session
// is severed, for the wire client then checks whether it is being closed; while
// the servers refuse the client, since those requests would wait for as long;
// and when a call still waits a session timeout after the last answer. It has
// come to the wire client just as the connection ended, and would wait for
// longer than its retry policy allows. The wire client pauses for a second
// then, so not before: nothing can be lost by it any more.
func (r hostProvider) Next() (server string, retryStart bool) {
	s := r.session
	refused, waits := s.servers.IsRefused(), s.calls.Load() > 0
	s.mu.Lock()
	fail := refused || waits && clock.Now().Sub(s.chain.LastAnswer()) > s.evidence.Timeout()
	s.pausing = s.pausing || fail
	s.mu.Unlock()
	return s.servers.NextName(), fail || s.chain.IsSevered()
}

// dial opens a connection of the session, at the client's pace. If the session
// moves to a server that connection is there already.
func (s *Session) dial(network, _ string, _ time.Duration) (net.Conn, error) {
	if p := s.mover.take(); p != nil {
		limit := s.Timeout() / moveStepPart
		if p.Exchange != nil { // several round trips
			limit = s.Timeout() / 3
		}
		return s.attach(p.Conn, p.To, p.Exchange, limit)
	}
	s.mu.Lock()
	s.pausing = true
	s.mu.Unlock()
	if !s.servers.AwaitTurn(s.chain.Severed()) {
		return nil, link.ErrSevered
	}
	s.mu.Lock()
	limit := s.evidence.Timeout() / 3
	s.pausing, s.dialedAt = false, clock.Now()
	s.mu.Unlock()
	if back, ok := s.mover.back(); ok {
		limit := limit / 2 // others must have time too, before what is held is lost
		conn, back, x, err := s.servers.DialBack(network, back, s.chain.Severed(), limit)
		if err != nil {
			return nil, err
		}
		return s.attach(conn, back, x, limit)
	}
	conn, to, x, err := s.servers.Dial(network, s.chain.Severed(), limit)
	if err != nil {
		return nil, err
	}
	return s.attach(conn, to, x, limit)
}

// attach makes a connection the next one of the session.
func (s *Session) attach(conn net.Conn, to servers.Server, x talk.Exchange, limit time.Duration) (net.Conn, error) {
	var authenticate link.Authenticate
	if x != nil {
		authenticate = func(conn net.Conn, r io.Reader, limit time.Duration) error {
			return s.servers.Authenticate(x, s.chain.Severed(), to, conn, r, limit)
		}
	}
	s.mu.Lock()
	s.dialedAt = clock.Now() // from here on it is the server that is slow
	s.mu.Unlock()
	l, err := s.chain.Dial(conn, to, authenticate, limit)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// wireLog is the wire client's logger, for debugging only: the states say the
// same in a better way.
type wireLog struct{ log *zap.Logger }

func (w wireLog) Printf(format string, args ...any) {
	if w.log.Core().Enabled(zap.DebugLevel) {
		w.log.Debug("wire client", zap.String("text", fmt.Sprintf(format, args...)))
	}
}
