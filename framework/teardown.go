package framework

import (
	"context"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

const (
	// closeTimeout bounds how long Close waits for other goroutines.
	closeTimeout = 5 * time.Second
	// flushTimeout bounds the wait for the user's observer and logger.
	flushTimeout = time.Second
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
	ctx, cancel := context.WithTimeout(context.Background(), orphanTimeout)
	defer cancel()
	err := s.core.closeOrphan(ctx, s.orphan(), together)
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
	o := s.orphan()
	s.core.noteAsked(o.id, expired || s.core.closeOrphan(context.Background(), o, withPauses) == nil)
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

func (s *session) orphan() orphan {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == 0 {
		return orphan{s.remembered.id, s.remembered.password, s.evidence.Timeout()}
	}
	return orphan{s.id, s.password, s.evidence.Timeout()}
}

func (s *session) closeStepTimeout() time.Duration { return s.orphan().stepTimeout() }
