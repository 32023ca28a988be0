package framework

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/random"
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
	if up && alive {
		s.deleteUnused()
	} else {
		s.sever()
	}
	s.closeWire()
	select {
	case <-s.wireEnded:
	case <-time.After(maxCloseStep):
	}
	s.sever()
	s.mu.Lock()
	confirmed, ended := s.closeConfirmed || s.expired || id == 0, s.closeEnded
	s.mu.Unlock()
	s.core.tasks.Go(s.awaitWireEnd)
	if confirmed && (id != 0 || s.orphan().id == 0) {
		return nil
	}
	err := s.closeOrphanAtOnce()
	if err == nil || confirmed { // nothing was made in a session that is only remembered
		return nil
	}
	if ended && s.core.resumesNone.Load() {
		return nil
	}
	return fmt.Errorf("framework: close: no server has closed session %s: its ephemeral znodes stay until it expires (%w)",
		wire.SessionText(id), zkerr.Explanation(err))
}

// tearDown frees what is left of a session that was lost, and closes it at the
// ensemble.
func (s *session) tearDown() {
	s.closeWire()
	s.mu.Lock()
	expired := s.expired
	s.mu.Unlock()
	s.core.noteAsked(s.orphan().id, expired || s.closeOrphan())
	s.core.closeOldest()
	s.awaitWireEnd()
}

// closeWire tells the wire client to end. That asks the server to close the
// session, if it can, and takes at most 3s.
func (s *session) closeWire() {
	s.core.tasks.Go(s.conn.Close)
	go func() {
		for range s.wireEvents { //nolint:revive // onEvent gets the events; that the channel is closed is the only sign of the end
		}
		close(s.wireEnded)
	}()
}

// awaitWireEnd waits for the wire client's goroutines. There is no sure way to
// stop them: if they do not end in time, that is reported, and they are left
// behind.
func (s *session) awaitWireEnd() {
	select {
	case <-s.wireEnded:
	case <-time.After(closeTimeout):
		s.core.onAbandoned(s, s.latest(), AbandonedStuck)
	}
}

// closeOrphan closes a lost session at the ensemble, by a separate small
// connection. Its ephemeral znodes would otherwise block others until it
// expires.
//
// The connection carries only the connect request, the credentials and the
// close request, in one write. Each attempt touches the session, which keeps it
// alive. So the connect asks for the shortest timeout, and there are few
// attempts. If all fail the session is left to expire. It reports whether the
// session is known to be gone.
func (s *session) closeOrphan() bool {
	var servers []server
	o := s.orphan()
	for try := range 3 {
		if try > 0 && !s.pause(o.stepTimeout()/2+random.N(o.stepTimeout()/2)) {
			return false
		}
		if len(servers) == 0 {
			servers = s.core.servers.all(context.Background(), o.stepTimeout())
		}
		if len(servers) > 0 && s.core.closeAt(context.Background(), o, servers[try%len(servers)]) == nil {
			return true
		}
		if s.core.resumesNone.Load() {
			return false
		}
	}
	return false
}

// closeOrphanAtOnce is closeOrphan for a client that closes, which has no time
// to ask one server after the other. It returns nil once the session is known
// to be gone. The dialer is the user's, and may ignore its timeout.
func (s *session) closeOrphanAtOnce() error {
	ctx, cancel := context.WithTimeout(context.Background(), orphanTimeout)
	defer cancel()
	o := s.orphan()
	servers := s.core.servers.all(ctx, o.stepTimeout())
	servers = servers[:min(len(servers), 3)]
	results := make(chan error, len(servers))
	last := zk.ErrNoServer
	for _, to := range servers {
		s.core.tasks.Go(func() { results <- s.core.closeAt(ctx, o, to) })
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

// orphan is a session that is over, and that the ensemble may still have.
type orphan struct {
	id       int64 // 0: no server has ever answered
	password []byte
	timeout  time.Duration
}

func (s *session) orphan() orphan {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == 0 {
		return orphan{s.remembered.id, s.remembered.password, s.timeout}
	}
	return orphan{s.id, s.password, s.timeout}
}

// stepTimeout bounds each step of closing an orphan.
func (o orphan) stepTimeout() time.Duration { return min(o.timeout/3, maxCloseStep) }

func (s *session) closeStepTimeout() time.Duration { return s.orphan().stepTimeout() }

// closeAt closes an orphan through one server. It returns nil once the session
// is known to be gone.
func (c *core) closeAt(ctx context.Context, o orphan, to server) error {
	if o.id == 0 {
		return nil
	}
	if c.resumesNone.Load() {
		return errResumesNone
	}
	try := func(authenticated bool) error {
		return c.closeRemotely(ctx, to, o.id, o.password, authenticated, o.stepTimeout())
	}
	authenticated := !c.pace.isRefused() // otherwise it would be one more attempt, and without a pause
	err := try(authenticated)
	if authenticated && (errors.Is(err, zk.ErrAuthFailed) || errors.Is(err, zkerr.SASL)) { // most servers close a session without credentials as well
		err = try(false)
	}
	if err != nil {
		c.cfg.log.Debug("cannot close a session", zap.Stringer("server", to),
			zap.String("session", wire.SessionText(o.id)), zap.Error(err))
	}
	return err
}

// pause waits for d, and reports false when the client closes first.
func (s *session) pause(d time.Duration) bool {
	select {
	case <-s.core.closing:
		return false
	case <-time.After(d):
		return true
	}
}

// closeRemotely attaches to the session at a server, presents the credentials
// and closes the session, in one write. It returns nil once the session is
// known to be gone.
func (c *core) closeRemotely(ctx context.Context, to server, id int64, password []byte, authenticated bool, limit time.Duration) error {
	const shortest = 1 // ms: the server raises it to the shortest timeout that it allows
	r, err := c.converse(ctx, to, limit, &wire.ConnectRequest{Timeout: shortest, SessionID: id, Password: password}, authenticated, closeSession)
	isGone, isAnother := r.session == 0 && err == nil, r.session != 0 && r.session != id
	if isGone || isAnother {
		if err := c.vouch(ctx, to, limit); err != nil {
			return err
		}
	}
	if r.session != 0 {
		c.resumesNone.Store(isAnother)
	}
	if isAnother {
		return zkerr.AnotherSession // which was closed in its stead, answered or not
	}
	return err
}
