package framework

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

const (
	// closePatience bounds what Close waits for, beyond the request itself.
	closePatience = 5 * time.Second
	// flushPatience bounds the wait for the user's observer and logger.
	flushPatience = time.Second
	// goodbye bounds the wait for the answer to the request that closes a session.
	goodbye = 2 * time.Second
	// burial bounds the search for a server that takes that request.
	burial = 2 * goodbye
)

// shutDown closes a session whose client closes. It is over already, so nobody
// uses it any more; now the ensemble is told.
func (s *session) shutDown() error {
	s.mu.Lock()
	up, id, alive := s.up, s.id, !s.expired && !s.severedYet
	s.mu.Unlock()
	if !up || !alive {
		s.sever()
	}
	s.core.tasks.Go(s.conn.Close) // asks the server to close the session, if it can; takes 3s at most
	patience := time.NewTimer(goodbye)
	defer patience.Stop()
	select {
	case <-s.gone:
	case <-patience.C:
	}
	s.sever()
	s.mu.Lock()
	confirmed := s.closedOK || s.expired || id == 0
	s.mu.Unlock()
	s.core.tasks.Go(s.awaitGone)
	if confirmed || s.buryAtOnce() {
		return nil
	}
	return fmt.Errorf("framework: close: no server took the request to close session %s: its ephemeral znodes go when it expires",
		sessionText(id))
}

// tearDown ends what is left of a session that was lost.
func (s *session) tearDown() {
	s.core.tasks.Go(s.conn.Close)
	s.mu.Lock()
	expired := s.expired
	s.mu.Unlock()
	if !expired {
		s.bury()
	}
	s.awaitGone()
}

// awaitGone waits for the wire client's goroutines. They have no way to be
// stopped for sure: one that stays is counted and left behind.
func (s *session) awaitGone() {
	patience := time.NewTimer(closePatience)
	defer patience.Stop()
	select {
	case <-s.gone:
	case <-patience.C:
		s.core.abandoned(s, "the wire client does not end")
	}
}

// bury closes a session at the ensemble by a small connection of its own, so
// that its ephemeral znodes do not stand in anybody's way until it expires.
//
// Each connection carries nothing but the connect and the close, in one write:
// attaching touches the session, which would keep alive what was to be closed.
// For the same reason it asks for the smallest time-out and does not try often;
// what fails is left to expire.
func (s *session) bury() {
	var servers []server
	for try := range 3 {
		if try > 0 && !s.pause(s.goodbye()/2+rand.N(s.goodbye()/2)) {
			return
		}
		if len(servers) == 0 {
			servers = s.core.roster.all(context.Background(), s.goodbye())
		}
		if len(servers) > 0 && s.closeAt(context.Background(), servers[try%len(servers)]) {
			return
		}
	}
}

// buryAtOnce is bury when the client closes, which has no time to ask one server
// after the other. It reports whether the session is known to be gone. The dialer
// is the user's: that it keeps its time-out is only hoped for.
func (s *session) buryAtOnce() bool {
	ctx, cancel := context.WithTimeout(context.Background(), burial)
	defer cancel()
	servers := s.core.roster.all(ctx, s.goodbye())
	servers = servers[:min(len(servers), 3)]
	results := make(chan bool, len(servers))
	for _, to := range servers {
		s.core.tasks.Go(func() { results <- s.closeAt(ctx, to) })
	}
	for range servers {
		select {
		case gone := <-results:
			if gone {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// goodbye bounds each step of closing a session by a connection of its own.
func (s *session) goodbye() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(s.timeout/3, goodbye)
}

// closeAt closes the session through one server, until ctx ends, and reports
// whether it is known to be gone.
func (s *session) closeAt(ctx context.Context, to server) bool {
	s.mu.Lock()
	id, password := s.id, s.password
	s.mu.Unlock()
	if id == 0 {
		return true
	}
	err := s.core.closeRemotely(ctx, to, id, password, s.goodbye())
	if err != nil {
		s.core.cfg.log.Debug("cannot close a session", zap.String("session", sessionText(id)),
			zap.Stringer("server", to), zap.Error(err))
	}
	return err == nil
}

// pause waits for d, and reports false when the client closes first.
func (s *session) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.core.closing:
		return false
	case <-timer.C:
		return true
	}
}

var errBadAnswer = errors.New("unexpected answer")

// closeRemotely attaches to the session at a server and closes it, all in one
// write. It returns nil once the session is known to be gone.
func (c *core) closeRemotely(ctx context.Context, to server, id int64, password []byte, limit time.Duration) error {
	conn, err := c.open("tcp", to, limit)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	const shortest = 1 // ms: the server raises it to the shortest timeout that it allows
	request := wire.AppendFrame(nil, &wire.ConnectRequest{Timeout: shortest, SessionID: id, Password: password})
	request = wire.AppendFrame(request, &wire.RequestHeader{Xid: 1, Op: wire.OpCloseSession})
	if _, err := conn.Write(request); err != nil {
		return err
	}
	var session wire.ConnectResponse
	if err := readAnswer(conn, &session); err != nil {
		return err
	}
	switch session.SessionID {
	case 0:
		return nil // gone already
	case id:
	default:
		return errBadAnswer
	}
	var closed wire.ReplyHeader
	if err := readAnswer(conn, &closed); err != nil {
		return err
	}
	if closed.Err != wire.OK {
		return errBadAnswer
	}
	return nil
}

// readAnswer reads one frame. Neither of the two that are expected is large.
func readAnswer(r io.Reader, answer wire.Message) error {
	frame, err := wire.ReadFrame(r, 4096, nil)
	if err != nil {
		return err
	}
	return wire.Unmarshal(frame, answer)
}
