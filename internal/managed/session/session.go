package session

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// Session is one session, and the one wire connection object that serves it.
//
// A session has two ends. It is over when nobody may use it any more: the
// channel Over is closed, Err says why, and every hold was told. It is severed
// when nothing may be sent for it any more. A session that is lost is severed
// first. A session that the client closes is over first, so that the request
// that closes it can still be sent. Neither waits for anything that the user
// supplied: connections are closed, and the logger and the observer are called,
// on other goroutines.
type Session struct {
	*life
	cfg     Config
	servers *servers.Servers
	told    Told
	watcher Watcher
	tasks   *sync.WaitGroup

	conn       *zk.Conn
	chain      *link.Chain     // its connections
	wireEvents <-chan zk.Event // closed: the wire client's goroutines have ended
	wireEnded  chan struct{}   // the same, once the wire client was told to end
	events     *mailbox[event]
	calls      atomic.Int64 // of the wire client, that have not returned
	mover      *mover
	hungUp     hangUps
	trip       sharedTrip // of those in Prove
}

// suspend notes that there is no connection that can be used.
func (s *Session) suspend(on *link.Link) {
	s.mu.Lock()
	s.online.Down(time.Now())
	s.up = false
	s.evidence.Down()
	s.tellProversLocked()
	s.mu.Unlock()
	if s.loseSuspended {
		s.loseHolds(zkerr.Suspended)
	}
	s.told.Suspended(on)
}

// errExpired is the end of a session that a server has said is gone.
var errExpired = fmt.Errorf("%w: expired by the ensemble", zkerr.SessionLost)

// NoteExpired ends the session: a server has said that it is gone.
func (s *Session) NoteExpired() { s.onExpired(errExpired) }

// onExpired runs when it is known that the ensemble does not have the session.
func (s *Session) onExpired(why error) {
	s.mu.Lock()
	s.expired = true
	s.mu.Unlock()
	s.Sever()
	s.End(why)
}

// End makes the session over, and tells every hold. Only the first reason
// counts.
func (s *Session) End(why error) {
	s.mu.Lock()
	if s.err == nil {
		s.err, s.endedAt = why, clock.Now()
		close(s.over)
	}
	s.mu.Unlock()
	s.loseHolds(why)
	s.watcher.Over(s.chain.NextOrder())
}

// Begin starts a task that Close waits for. It reports false, and does not, if
// the session is over.
func (s *Session) Begin(task func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.tasks.Go(task)
	}
	return s.err == nil
}

// Sever lets nothing more be sent for the session, and closes its connection.
// The dialer is the user's, and so is the connection. Closing it may take long.
func (s *Session) Sever() {
	if l := s.chain.Sever(); l != nil {
		s.tasks.Go(func() { _ = l.Close() })
	}
}

// Conn returns the wire client of the session, nil before Start.
func (s *Session) Conn() *zk.Conn { return s.conn }

// Call makes a call of the wire client, which waits for the answer. If it waits
// for a connection it fails a session timeout after the last answer, or a
// little later.
func Call[T any](s *Session, call func(*zk.Conn) (T, error)) (T, error) {
	s.calls.Add(1)
	defer s.calls.Add(-1)
	return call(s.conn)
}

// Chain returns the connections of the session.
func (s *Session) Chain() *link.Chain { return s.chain }

// StepTimeout returns how long one step of a talk with a server may take.
func (s *Session) StepTimeout() time.Duration { return s.chain.Orphan().StepTimeout() }
