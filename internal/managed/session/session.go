package session

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/proof"
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
	cfg     Config
	servers *servers.Servers
	told    Told
	watcher Watcher
	closing <-chan struct{}
	tasks   *sync.WaitGroup

	conn       *zk.Conn
	chain      *link.Chain     // its connections
	wireEvents <-chan zk.Event // closed: the wire client's goroutines have ended
	wireEnded  chan struct{}   // the same, once the wire client was told to end
	events     *mailbox[event]
	wakeup     chan struct{} // a token: check the clock again
	calls      atomic.Int64  // of the wire client, that have not returned
	mover      *mover
	hungUp     hangUps

	over chan struct{} // closed: over

	mu         sync.Mutex     // guards what follows
	err        error          // why it is over
	endedAt    time.Time      // when it was over
	expired    bool           // a server said that it is gone
	dialedAt   time.Time      // when the wire client last began to dial, or had dialed
	pausing    bool           // it waits until the next attempt may be made
	link       *link.Link     // the connection that evidence is of: the latest that was confirmed
	evidence   proof.Evidence // until when it is alive
	useful     bool           // the connection has brought answers, and the pace of the dials was reset for it
	doubted    bool           // holds were lost by the clock, and nothing was proven since
	up         bool           // connected and authenticated
	online     proof.Online
	unseenEnds int // of connections, that run has not heard of yet
	holds      map[*hold]struct{}
	holdsMade  uint64
	keepers    int           // others that need the heartbeat
	proving    chan struct{} // nil: no goroutine in Prove makes a round trip; closed: it was made
	news       chan struct{} // nil: nobody in Prove waits; closed: more was proven, or the connection has ended
	nextCheck  time.Time     // when run checks the clock again
}

// hold is an interest in the fate of the session: see Hold.
type hold struct {
	lost     func(error)
	number   uint64 // counts the holds of the session
	released bool   // guarded by Session.mu
}

// hangUps is what is known of servers that hang up on the connect request.
type hangUps struct {
	mu      sync.Mutex // guards what follows
	since   time.Time  // of the first one since a connect was answered; zero: none
	askedAt time.Time  // when the new session was opened last
}

// event is what the wire client, or a goroutine of the session, reports to run.
type event struct {
	kind eventKind
	err  error
	link *link.Link  // the connection it is about; nil for connectionEnded: there is one at a time
	beat *proof.Beat // heartbeatDone
	at   time.Time   // heartbeatDone: when the first of its two round trips was answered; zero: it was not
	left chan<- bool // leaveNow: gets whether the connection was given up
}

type eventKind int

const (
	sessionConfirmed eventKind = iota // a connection has the session
	authDone                          // the credentials were accepted, or not (err)
	connectionEnded
	heartbeatDone // a heartbeat was answered, or failed (err)
	leaveNow      // the session moves to another server, if it may
)

// suspend notes that there is no connection that can be used.
func (s *Session) suspend(on *link.Link) {
	s.mu.Lock()
	s.online.Down(time.Now())
	s.up = false
	s.evidence.Down()
	s.tellProversLocked()
	s.mu.Unlock()
	if s.cfg.LoseSuspended {
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

// loseHolds tells every hold that it is lost, the oldest first. Later holds are
// refused by whyUnprovenLocked. Nothing that may block runs here: each call
// delays the news for all holds behind it.
func (s *Session) loseHolds(why error) {
	s.mu.Lock()
	holds := slices.SortedFunc(maps.Keys(s.holds), func(a, b *hold) int { return cmp.Compare(a.number, b.number) })
	s.holds = nil
	s.mu.Unlock()
	for _, h := range holds {
		s.mu.Lock()
		released := h.released // by one that was told before
		s.mu.Unlock()
		if !released {
			h.lost(why)
		}
	}
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

// IsReady reports whether a request may be given to the wire client now. The
// connection may have ended although the state does not say so yet: the wire
// client reports that before it fails what was under way, and run handles the
// report later. A retry in between must not enter the wire client's queue,
// which the next connection sends: if none comes, the retry would wait for the
// end of the session, whatever its budget.
func (s *Session) IsReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isReadyLocked()
}

func (s *Session) isReadyLocked() bool { return s.err == nil && s.up && s.unseenEnds == 0 }

// Err returns why the session is over, nil while it is not.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Over returns a channel that is closed when the session is over.
func (s *Session) Over() <-chan struct{} { return s.over }

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

// IsUp reports whether there is a connection that is ready for requests, as far
// as Run knows.
func (s *Session) IsUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}

func (s *Session) isClosing() bool { return closed.Is(s.closing) }

// tellProversLocked wakes up those that wait in prove.
func (s *Session) tellProversLocked() {
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
}

func (s *Session) wake() {
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// Timeout returns the session timeout that the ensemble has granted: the least
// one, and before a server has answered the requested one.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.evidence.Timeout()
}

// StepTimeout returns how long one step of a talk with a server may take.
func (s *Session) StepTimeout() time.Duration { return s.chain.Orphan().StepTimeout() }

// Deadline returns the instant before which the ensemble cannot have expired
// the session, as far as is proven. Once the session is over it is no later
// than the end.
func (s *Session) Deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	deadline := s.evidence.Deadline()
	switch {
	case !s.evidence.IsKnown():
		return time.Time{}
	case s.err != nil && s.endedAt.Before(deadline):
		return s.endedAt
	}
	return deadline
}
