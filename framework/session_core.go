package framework

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/proof"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// session is one session, and the one wire connection object that serves it.
//
// A session has two ends. It is over when nobody may use it any more: the
// channel over is closed, err says why, and every hold was told. It is severed
// when nothing may be sent for it any more. A session that is lost is severed
// first. A session that the client closes is over first, so that the request
// that closes it can still be sent. Neither waits for anything that the user
// supplied: connections are closed, and the logger and the observer are called,
// on other goroutines.
type session struct {
	core       *core
	conn       *zk.Conn
	buffers    wireBuffers
	wireEvents <-chan zk.Event // closed: the wire client's goroutines have ended
	wireEnded  chan struct{}   // the same, once the wire client was told to end
	events     *mailbox[event]
	wakeup     chan struct{} // a token: check the clock again
	hub        hub
	bundle     bundle
	trees      trees
	writes     groupCommit
	plain      plainCreates
	creates    openCreates
	searches   searches

	answerSizes answerSizes
	window      window        // of the requests of ours: see frames.go
	ownRequests atomic.Uint64 // how many of them were made
	order       atomic.Uint64 // how many answers to them, and events, have arrived

	over    chan struct{} // closed: over
	severed chan struct{} // closed: severed

	mu             sync.Mutex // guards what follows
	err            error      // why it is over
	endedAt        time.Time  // when it was over
	id             int64      // 0 until a server has answered
	seen           int64      // the latest transaction in an answer
	password       []byte
	remembered     orphan         // while id is 0: see onUnauthenticated
	rememberedAt   time.Time      // when a server has answered with it last
	expired        bool           // a server said that it is gone
	dialed         *link          // the latest connection
	dialedAt       time.Time      // when the wire client last began to dial, or had dialed
	pausing        bool           // it waits until the next attempt may be made
	link           *link          // the latest on which a server confirmed the session
	evidence       proof.Evidence // until when it is alive
	answered       time.Time      // when a server has answered last
	useful         bool           // the connection has brought answers, and the pace of the dials was reset for it
	doubted        bool           // holds were lost by the clock, and nothing was proven since
	up             bool           // connected and authenticated
	online         proof.Online
	unseenEnds     int // of connections, that run has not heard of yet
	holds          map[*hold]struct{}
	holdsMade      uint64
	keepers        int                      // others that need the heartbeat
	proving        chan struct{}            // nil: no goroutine in Prove makes a round trip; closed: it was made
	news           chan struct{}            // nil: nobody in Prove waits; closed: more was proven, or the connection has ended
	nextCheck      time.Time                // when run checks the clock again
	unsent         map[string]*unsentWrite  // by path
	straySearches  map[string]*straySearch  // by directory
	discarding     map[string]chan struct{} // by path, being removed; closed: it is gone
	closeXid       int32                    // of the request that closes the session
	closeConfirmed bool                     // it was executed
	closeEnded     bool                     // the server has ended the connection on which it was sent
	malformed      error                    // the latest answer that was malformed
	malformedAt    time.Time
	heardOn        *link // where an event has arrived, and no answer with a transaction since; nil: none has
	catchUpXid     int32 // of the sync behind that event

	hungUp hangUps
}

// event is what the wire client, or a goroutine of the session, reports to run.
type event struct {
	kind eventKind
	err  error
	link *link       // the connection it is about; nil for connectionEnded: there is one at a time
	beat *proof.Beat // heartbeatDone
	at   time.Time   // heartbeatDone: when the first of its two round trips was answered; zero: it was not
}

type eventKind int

const (
	sessionConfirmed eventKind = iota // a connection has the session
	authDone                          // the credentials were accepted, or not (err)
	connectionEnded
	heartbeatDone // a heartbeat was answered, or failed (err)
)

func openSession(c *core) (*session, error) {
	s := &session{
		core:      c,
		wireEnded: make(chan struct{}),
		events:    newMailbox[event](),
		wakeup:    make(chan struct{}, 1),
		over:      make(chan struct{}),
		severed:   make(chan struct{}),
		evidence:  proof.New(c.cfg.sessionTimeout, proof.Rules{Margin: c.cfg.margin, Tick: c.cfg.serverTick, Writes: c.cfg.proof == ProofWrite}),
		online:    proof.NewOnline(time.Now()),
		window:    newWindow(),
	}
	s.hub.session, s.bundle.session, s.writes.session, s.plain.session, s.searches.session = s, s, s, s, s
	conn, events, err := zk.Connect(c.servers.names, c.cfg.sessionTimeout,
		func(conn *zk.Conn) { s.buffers.begin(conn, c.cfg.maxRequest) },
		zk.WithHostProvider(hostProvider{s}),
		zk.WithDialer(s.dial),
		zk.WithEventCallback(s.onEvent),
		zk.WithLogger(wireLog{c.cfg.log}),
		zk.WithLogInfo(false),
	)
	if err != nil {
		return nil, fmt.Errorf("framework: %w", err)
	}
	s.conn, s.wireEvents = conn, events
	return s, nil
}

// onEvent is the wire client's event callback. It runs on the goroutine that
// reads the connection, before any later answer is delivered, and must not
// block.
func (s *session) onEvent(e zk.Event) {
	switch {
	case e.Type != zk.EventSession:
		order := s.order.Add(1)
		if e.Type == zk.EventNodeDeleted {
			s.core.ephemerals.remove(e.Path)
		}
		s.hub.onEvent(s.latest(), order, e.Type, e.Path)
		s.trees.onEvent(order, e.Type, e.Path)
	case e.State == zk.StateHasSession:
		s.events.put(event{kind: sessionConfirmed, link: s.latest()})
	case e.State == zk.StateDisconnected:
		s.mu.Lock()
		s.unseenEnds++
		ended := s.link
		s.mu.Unlock()
		if ended != nil {
			ended.asked.end()
		}
		s.trees.end(s.order.Add(1))
		s.events.put(event{kind: connectionEnded})
	}
}

// latest returns the connection on which a server confirmed the session last.
func (s *session) latest() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// run follows the session until it is over or the client closes.
func (s *session) run() {
	authed := len(s.core.cfg.auths) == 0
	var current *link // nil: there is no connection
	for {
		next := s.checkClock(clock.Now())
		select {
		case <-s.over:
			return
		case <-s.core.closing:
			return
		case <-time.After(next):
		case <-s.wakeup:
		case <-s.events.ready:
			for _, e := range s.events.take() {
				switch e.kind {
				case sessionConfirmed:
					if current = e.link; authed {
						s.onConnected()
					} else {
						go s.authenticate(current)
					}
				case authDone:
					switch {
					case current == nil && errors.Is(e.err, zk.ErrAuthFailed): // the end of the connection was reported first
						s.onAuthFailed(e.link, e.err)
					case e.link != current: // that connection has ended: the next one's answer counts
					case e.err != nil:
						s.onAuthFailed(current, e.err)
					default:
						authed = true
						s.onConnected()
					}
				case connectionEnded:
					s.onDisconnected(current)
					current = nil
				case heartbeatDone:
					s.onHeartbeat(e)
				}
			}
		}
	}
}

// onConnected runs when a connection is ready for requests.
func (s *session) onConnected() {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	now := clock.Now()
	s.up = true
	s.online.Up(time.Now(), s.evidence.Timeout())
	s.sendLocked(s.evidence.Up(now, s.isHeldLocked()))
	on := s.link
	s.mu.Unlock()
	s.hub.reset(on) // the watches of earlier connections are gone
	s.core.transition(connected, s, on, nil)
	s.core.learnEnsemble()
}

// onDisconnected runs when the connection has ended. on is nil if it was not
// confirmed.
func (s *session) onDisconnected(on *link) {
	s.suspend(on)
	s.mu.Lock()
	s.unseenEnds-- // now that the state says so
	s.mu.Unlock()
}

// suspend notes that there is no connection that can be used.
func (s *session) suspend(on *link) {
	s.mu.Lock()
	s.online.Down(time.Now())
	s.up = false
	s.evidence.Down()
	s.tellProversLocked()
	s.mu.Unlock()
	if s.core.cfg.errorPolicy == ErrorPolicyConnection {
		s.loseHolds(zkerr.Suspended)
	}
	s.core.transition(disconnected, s, on, s.core.fault())
}

// mayConnect reports whether a connection may ask for session id. The wire
// client forgets an expired session and asks for a new one, which it must not:
// each session has its own wire client.
func (s *session) mayConnect(id int64) bool {
	s.mu.Lock()
	mine := s.id
	if mine == 0 {
		mine = s.remembered.id
	}
	severed := s.isSevered()
	s.mu.Unlock()
	if severed {
		return false
	}
	if id != mine {
		s.onExpired(errExpired)
		return false
	}
	return true
}

// onConnectAnswer takes a server's answer to a connect request that was sent at
// sentAt, and reports whether the connection may go on.
func (s *session) onConnectAnswer(l *link, a wire.ConnectResponse, sentAt time.Time) bool {
	if a.SessionID == 0 {
		s.onExpired(errExpired)
		return true // the wire client reads that, and closes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isSevered() {
		return false
	}
	isNew := !l.named
	if !isNew {
		s.core.resumesNone.Store(false)
	}
	// The link has seen to it that the timeout does not grow.
	s.id, s.password = a.SessionID, a.Password
	s.link, s.useful, s.hungUp = l, false, hangUps{}
	s.core.servers.connected()
	now := clock.Now()
	s.answered = now
	if !l.answeredAt.IsZero() {
		now = l.answeredAt
	}
	s.evidence.Connect(time.Duration(a.Timeout)*time.Millisecond, isNew, sentAt, now)
	return true
}

// onSend notes that a request is about to be sent on l, and reports whether it
// may.
func (s *session) onSend(l *link, xid int32, op wire.Op, path []byte, now time.Time) bool {
	s.mu.Lock()
	if s.isSevered() {
		s.mu.Unlock()
		return false
	}
	if s.link == l {
		s.evidence.Send(xid, op, op == wire.OpMulti && string(path) == "/", now)
	}
	if op == wire.OpCloseSession {
		s.closeXid = xid
	}
	sent := s.unsent[string(path)]
	delete(s.unsent, string(path))
	s.mu.Unlock()
	if sent != nil {
		sent.then(l)
	}
	return true
}

// onAnswer notes an answer that arrived on l.
func (s *session) onAnswer(l *link, xid int32, failed bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != l {
		return
	}
	s.answered = now
	if s.evidence.Answer(xid, failed, now) {
		s.tellProversLocked()
	}
	if xid == wire.XidPing && s.evidence.Unanswered() > 0 {
		s.wake() // it has overtaken another request
	}
	if xid == s.closeXid && xid != 0 && !failed {
		s.closeConfirmed = true
	}
}

// onSeen notes the latest transaction that the server of l had applied when it
// answered.
func (s *session) onSeen(l *link, zxid int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l {
		s.seen = max(s.seen, zxid)
	}
	if s.heardOn == l {
		s.heardOn = nil
	}
}

// latestSeen returns the latest transaction that an answer has had.
func (s *session) latestSeen() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// onBytes notes that n bytes have arrived on l. inPart says that the latest
// answer is not complete.
func (s *session) onBytes(l *link, n int, inPart bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l {
		s.evidence.Receive(n, inPart, clock.Now())
	}
}

// mostTimeout returns the session timeout that a connection must not exceed:
// the least that was granted so far. It is 0 for a session that is new.
func (s *session) mostTimeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == 0 {
		return s.remembered.timeout
	}
	return s.evidence.Timeout()
}

// onMalformed notes that something arrived on l that cannot be an answer.
func (s *session) onMalformed(l *link, err error) {
	err = fmt.Errorf("from %s: %w", l.RemoteAddr(), err)
	s.mu.Lock()
	s.malformed, s.malformedAt = err, time.Now()
	s.mu.Unlock()
	s.core.servers.noteFault(l.to, err)
	s.core.cfg.log.Warn("connection closed after a malformed answer", zap.String("session", wire.SessionText(s.sessionID())), zap.Error(err))
}

// explain adds to the loss of a connection the malformed answer that caused it,
// if there was one after since.
func (s *session) explain(err error, since time.Time) error {
	if s == nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.malformed == nil || s.malformedAt.Before(since) {
		return err
	}
	return zkerr.Because(err, s.malformed)
}

// errExpired is the end of a session that a server has said is gone.
var errExpired = fmt.Errorf("%w: expired by the ensemble", zkerr.SessionLost)

// onExpired runs when it is known that the ensemble does not have the session.
func (s *session) onExpired(why error) {
	s.mu.Lock()
	s.expired = true
	s.mu.Unlock()
	s.sever()
	s.end(why)
}

// end makes the session over, and tells every hold. The first reason stands.
func (s *session) end(why error) {
	s.mu.Lock()
	if s.err == nil {
		s.err, s.endedAt = why, clock.Now()
		close(s.over)
	}
	s.mu.Unlock()
	s.loseHolds(why)
	s.hub.reset(nil)
	s.trees.end(s.order.Add(1))
}

// sever lets nothing more be sent for the session, and closes its connection.
// The dialer is the user's, and so is the connection. Closing it may take long.
func (s *session) sever() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isSevered() {
		return
	}
	close(s.severed)
	if l := s.dialed; l != nil {
		s.core.tasks.Go(func() { _ = l.Close() })
	}
}

func (s *session) isSevered() bool {
	select {
	case <-s.severed:
		return true
	default:
		return false
	}
}

func (s *session) sessionID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// isReady reports whether a request may be given to the wire client now. The
// connection may have ended although the state does not say so yet: the wire
// client reports that before it fails what was under way, and run handles the
// report later. A retry in between must not enter the wire client's queue,
// which the next connection sends: if none comes, the retry would wait for the
// end of the session, whatever its budget.
func (s *session) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isReadyLocked()
}

func (s *session) isReadyLocked() bool { return s.err == nil && s.up && s.unseenEnds == 0 }

// Err returns why the session is over, nil while it is not.
func (s *session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
