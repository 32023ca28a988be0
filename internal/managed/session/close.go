package session

import (
	"context"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// The end of the session of a client that closes.
const (
	// stuckTimeout bounds how long the wire client may take to end.
	stuckTimeout = 5 * time.Second
	// orphanTimeout bounds the search for a server that closes the session.
	orphanTimeout = 2 * talk.MaxStep
)

// Close closes the session of a client that closes. The session is over
// already, so nobody uses it; now the ensemble is told. last makes the last
// requests, if the session has a connection.
func (s *Session) Close(last func()) error {
	s.mu.Lock()
	up, expired := s.up, s.expired
	s.mu.Unlock()
	id := s.chain.ID()
	if up && !expired && !s.chain.IsSevered() {
		last()
	} else {
		s.Sever()
	}
	s.closeWire()
	closed.Within(talk.MaxStep, s.wireEnded)
	s.Sever()
	confirmed, ended := s.chain.Closing()
	s.mu.Lock()
	confirmed = confirmed || s.expired || id == 0
	s.mu.Unlock()
	s.tasks.Go(s.awaitWireEnd)
	if confirmed && (id != 0 || s.chain.Orphan().ID == 0) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), orphanTimeout)
	defer cancel()
	err := s.servers.CloseLast(ctx, s.chain.Orphan())
	if err == nil || confirmed { // nothing was made in a session that is only remembered
		return nil
	}
	if ended && s.servers.ResumesNone() {
		return nil
	}
	return fmt.Errorf("no server has closed session %s: its ephemeral znodes stay until it expires (%w)",
		wire.SessionText(id), zkerr.Explanation(err))
}

// CloseLost frees what is left of a session that was lost, and closes it at the
// ensemble.
func (s *Session) CloseLost() {
	s.closeWire()
	s.mu.Lock()
	expired := s.expired
	s.mu.Unlock()
	s.servers.CloseLost(s.chain.Orphan(), expired)
	s.awaitWireEnd()
}

// closeWire tells the wire client to end. That asks the server to close the
// session, if it can, and takes at most 3s.
func (s *Session) closeWire() {
	s.tasks.Go(s.conn.Close)
	go func() {
		for range s.wireEvents { //nolint:revive // OnEvent gets the events; that the channel is closed is the only sign of the end
		}
		close(s.wireEnded)
	}()
}

// awaitWireEnd waits for the wire client's goroutines. There is no sure way to
// stop them: if they do not end in time, that is reported, and they are left
// behind.
func (s *Session) awaitWireEnd() {
	if !closed.Within(stuckTimeout, s.wireEnded) {
		s.told.Abandoned(s.chain.Latest(), Stuck)
	}
}
