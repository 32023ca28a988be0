package framework

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/chance"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

const (
	// closeTimeout bounds how long Close waits for other goroutines.
	closeTimeout = 5 * time.Second
	// flushTimeout bounds the wait for the user's observer and logger.
	flushTimeout = time.Second
	// maxCloseStep bounds each step of closing a session, such as the wait for
	// an answer.
	maxCloseStep = 2 * time.Second
	// orphanTimeout bounds the search for a server that closes the session.
	orphanTimeout = 2 * maxCloseStep
)

// shutDown closes the session of a client that closes. The session is over
// already, so nobody uses it; now the ensemble is told.
func (s *session) shutDown() error {
	s.mu.Lock()
	up, id, alive := s.up, s.id, !s.expired && !s.isSevered()
	s.mu.Unlock()
	if !up || !alive {
		s.sever()
	}
	s.core.tasks.Go(s.conn.Close) // asks the server to close the session, if it can; takes at most 3s
	patience := time.NewTimer(maxCloseStep)
	defer patience.Stop()
	select {
	case <-s.wireEnded:
	case <-patience.C:
	}
	s.sever()
	s.mu.Lock()
	confirmed := s.closeConfirmed || s.expired || id == 0
	s.mu.Unlock()
	s.core.tasks.Go(s.awaitWireEnd)
	if confirmed || s.closeOrphanAtOnce() {
		return nil
	}
	return fmt.Errorf("framework: close: no server answered the request to close session %s: its ephemeral znodes stay until it expires",
		wire.SessionText(id))
}

// tearDown frees what is left of a session that was lost, and closes it at the
// ensemble.
func (s *session) tearDown() {
	s.core.tasks.Go(s.conn.Close)
	s.mu.Lock()
	expired := s.expired
	s.mu.Unlock()
	if !expired {
		s.closeOrphan()
	}
	s.awaitWireEnd()
}

// awaitWireEnd waits for the wire client's goroutines. There is no sure way to
// stop them: if they do not end in time, that is reported, and they are left
// behind.
func (s *session) awaitWireEnd() {
	patience := time.NewTimer(closeTimeout)
	defer patience.Stop()
	select {
	case <-s.wireEnded:
	case <-patience.C:
		s.core.onAbandoned(s, AbandonedStuck)
	}
}

// closeOrphan closes a lost session at the ensemble, by a separate small
// connection. Its ephemeral znodes would otherwise block others until it
// expires.
//
// The connection carries only the connect request and the close request, in one
// write. Each attempt touches the session, which keeps it alive. So the connect
// asks for the shortest timeout, and there are few attempts. If all fail the
// session is left to expire.
func (s *session) closeOrphan() {
	var servers []server
	for try := range 3 {
		if try > 0 && !s.pause(s.closeStepTimeout()/2+chance.N(s.closeStepTimeout()/2)) {
			return
		}
		if len(servers) == 0 {
			servers = s.core.servers.all(context.Background(), s.closeStepTimeout())
		}
		if len(servers) > 0 && s.closeAt(context.Background(), servers[try%len(servers)]) {
			return
		}
	}
}

// closeOrphanAtOnce is closeOrphan for a client that closes, which has no time
// to ask one server after the other. It reports whether the session is known to
// be gone. The dialer is the user's, and may ignore its timeout.
func (s *session) closeOrphanAtOnce() bool {
	ctx, cancel := context.WithTimeout(context.Background(), orphanTimeout)
	defer cancel()
	servers := s.core.servers.all(ctx, s.closeStepTimeout())
	servers = servers[:min(len(servers), 3)]
	results := make(chan bool, len(servers))
	for _, to := range servers {
		s.core.tasks.Go(func() { results <- s.closeAt(ctx, to) })
	}
	for range servers {
		select {
		case closed := <-results:
			if closed {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// closeStepTimeout bounds each step of closing an orphan.
func (s *session) closeStepTimeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(s.timeout/3, maxCloseStep)
}

// closeAt closes the session through one server, and reports whether the
// session is known to be gone.
func (s *session) closeAt(ctx context.Context, to server) bool {
	s.mu.Lock()
	id, password := s.id, s.password
	s.mu.Unlock()
	if id == 0 {
		return true
	}
	err := s.core.closeRemotely(ctx, to, id, password, s.closeStepTimeout())
	if err != nil {
		s.core.cfg.log.Debug("cannot close a session", zap.Stringer("server", to),
			zap.String("session", wire.SessionText(id)), zap.Error(err))
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

// closeRemotely attaches to the session at a server and closes it, in one
// write. It returns nil once the session is known to be gone.
func (c *core) closeRemotely(ctx context.Context, to server, id int64, password []byte, limit time.Duration) error {
	conn, err := c.dialServer("tcp", to, limit)
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

// readAnswer reads one frame. The two that are expected are small.
func readAnswer(r io.Reader, answer wire.Message) error {
	frame, err := wire.ReadFrame(r, 4096, nil)
	if err != nil {
		return err
	}
	return wire.Unmarshal(frame, answer)
}
