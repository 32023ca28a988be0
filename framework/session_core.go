package framework

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// session is one session, and the one wire connection object that serves it.
//
// It has two ends. It is over when nobody may use it any more (over is closed,
// err says why, every hold has been told), and it is severed when nothing may be
// sent for it any more. A session that is lost is severed first; one that the
// client closes is over first, so that the request that closes it still goes out.
// Neither waits for anything that the user supplied: connections are closed, and
// the logger and the observer are called, on goroutines of their own.
type session struct {
	core   *core
	conn   *zk.Conn
	gone   chan struct{} // closed: the wire client's goroutines have ended
	events *mailbox[event]
	kick   chan struct{} // a token: look at the clock again
	hub    hub

	over chan struct{} // closed: over
	cut  chan struct{} // closed: severed

	mu         sync.Mutex // guards what follows
	err        error      // why it is over
	endedAt    time.Time  // when it was over
	severedYet bool
	id         int64 // 0 until a server has answered
	password   []byte
	timeout    time.Duration // as negotiated
	margin     time.Duration
	expired    bool  // a server said that it is gone
	dialed     *link // the latest connection
	link       *link // the latest on which a server gave us the session
	proof      *proof
	proven     time.Time // the latest contact that is proven
	up         bool      // connected and authenticated
	ends       int       // of connections, that run has not heard of yet
	holds      map[*hold]struct{}
	numbered   uint64                   // holds so far
	kept       int                      // holds and keeps
	alarm      time.Time                // when run looks at the clock again
	leaving    map[string]*frame        // by path: creates that have not been sent yet
	condemned  map[string]*hunt         // by directory: ids of creates that were given up
	discarding map[string]chan struct{} // by path, being removed; closed: it is gone
	closeXid   int32                    // of the request that closes the session
	closedOK   bool                     // it was answered
	misheard   error                    // what the latest answer was that made no sense
	misheardAt time.Time

	beat beat // of run's goroutine
}

// event is something that the wire client, or a goroutine of the session, tells
// run.
type event struct {
	kind eventKind
	err  error
	of   *link // the connection that it is about, but for detached: there is one at a time
}

type eventKind int

const (
	attached      eventKind = iota // a connection has the session
	authenticated                  // the credentials were taken, or not (err)
	detached                       // the connection ended
	beaten                         // a heartbeat was answered, or failed (err)
)

// beat is the state of the heartbeat.
type beat struct {
	last time.Time // when the last one was answered, or the connect
	sent time.Time // zero: none is under way
	of   *link     // the connection that it was sent on

	throttled bool      // the server has refused it for now
	again     time.Time // when it is sent again; zero: not decided
}

func openSession(c *core) (*session, error) {
	s := &session{
		core:    c,
		gone:    make(chan struct{}),
		events:  newMailbox[event](),
		kick:    make(chan struct{}, 1),
		over:    make(chan struct{}),
		cut:     make(chan struct{}),
		timeout: c.cfg.sessionTimeout,
		margin:  c.cfg.margin(c.cfg.sessionTimeout),
	}
	room := func(*zk.Conn) {}
	if need := c.cfg.maxRequest + 2*requestHead; need > wireRoom {
		room = zk.WithMaxConnBufferSize(need)
	}
	conn, events, err := zk.Connect(c.roster.names, c.cfg.sessionTimeout,
		room,
		zk.WithHostProvider(route{s}),
		zk.WithDialer(s.dial),
		zk.WithEventCallback(s.told),
		zk.WithLogger(wireLog{c.cfg.log}),
		zk.WithLogInfo(false),
	)
	if err != nil {
		return nil, fmt.Errorf("framework: %w", err)
	}
	s.conn = conn
	c.tasks.Go(s.hangUp)
	go func() {
		// Its closing is the only sign that the wire client has ended.
		for range events { //nolint:revive // told sees the events, none of them dropped
		}
		close(s.gone)
	}()
	return s, nil
}

// told is the wire client's event callback. It runs on the goroutine that reads
// the connection, before any later answer is delivered, and must not block.
func (s *session) told(e zk.Event) {
	switch {
	case e.Type != zk.EventSession:
		s.hub.event(e.Type, e.Path)
	case e.State == zk.StateHasSession:
		s.events.put(event{kind: attached, of: s.latest()})
	case e.State == zk.StateDisconnected:
		s.mu.Lock()
		s.ends++
		on := s.link
		s.mu.Unlock()
		s.hub.wire.left(on)
		s.events.put(event{kind: detached})
	case e.State == zk.StateExpired:
		s.expire()
	}
}

// latest is the connection that a server gave us the session on last.
func (s *session) latest() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// run follows the session until it is over or the client closes.
func (s *session) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	authed := len(s.core.cfg.auths) == 0
	var on *link // nil: there is no connection
	for {
		timer.Reset(s.look(time.Now()))
		select {
		case <-s.over:
			return
		case <-s.core.closing:
			return
		case <-timer.C:
		case <-s.kick:
		case <-s.events.ready:
			for _, e := range s.events.take() {
				switch e.kind {
				case attached:
					if on = e.of; authed {
						s.rise()
					} else {
						go s.authenticate(on)
					}
				case authenticated:
					switch {
					case on == nil && errors.Is(e.err, zk.ErrAuthFailed): // and hung up, of which was heard first
						s.refuse(e.of, e.err)
					case e.of != on: // it has ended meanwhile: the next one's answer counts
					case e.err != nil:
						s.refuse(on, e.err)
					default:
						authed = true
						s.rise()
					}
				case detached:
					on = nil
					s.sink()
				case beaten:
					s.beaten(e)
				}
			}
		}
	}
}

// rise: requests are answered from now on.
func (s *session) rise() {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.up = true
	s.beat = beat{last: time.Now()}
	if s.core.cfg.proof == ProofWrite {
		s.beat.last = time.Time{} // at once: the connect is not proven before it
	}
	s.mu.Unlock()
	// Whoever watches must look again: a watch may have been lost between two
	// connections, for its re-registration can fail in silence.
	s.hub.reset()
	s.core.transition(connected, s, nil)
}

// sink: the connection ended.
func (s *session) sink() {
	s.suspend()
	s.mu.Lock()
	s.ends-- // now that the state says so
	s.mu.Unlock()
}

// suspend: there is no connection that can be used.
func (s *session) suspend() {
	s.mu.Lock()
	s.up = false
	s.beat = beat{}
	s.mu.Unlock()
	if s.core.cfg.errorPolicy == ErrorPolicyConnection {
		s.loseHolds(fmt.Errorf("%w: suspended", ErrSessionLost))
	}
	s.core.mu.Lock()
	why := s.core.lastErr
	s.core.mu.Unlock()
	s.core.transition(disconnected, s, why)
}

// authenticate presents the credentials for the first time, on one connection;
// the wire client does so itself on every later one, before anything else is sent.
func (s *session) authenticate(on *link) {
	for _, a := range s.core.cfg.auths {
		if err := s.conn.AddAuth(a.scheme, a.data); err != nil {
			s.events.put(event{kind: authenticated, err: fmt.Errorf("auth %s: %w", a.scheme, err), of: on})
			return
		}
	}
	s.events.put(event{kind: authenticated, of: on})
}

// refuse: the credentials were not taken. The next connection tries again.
func (s *session) refuse(on *link, err error) {
	s.core.note(err)
	s.core.tasks.Go(func() { _ = on.Close() })
	if !errors.Is(err, zk.ErrAuthFailed) {
		return
	}
	s.core.cfg.log.Error("the ensemble rejects the credentials", zap.Error(err))
	s.core.mu.Lock()
	s.core.refused = err
	close(s.core.changed)
	s.core.changed = make(chan struct{})
	s.core.mu.Unlock()
}

// mayConnect reports whether a connection may ask for session id. The wire
// client forgets an expired session and asks for a new one: that is ours to do.
func (s *session) mayConnect(id int64) bool {
	s.mu.Lock()
	mine := s.id
	severed := s.severedYet
	s.mu.Unlock()
	if severed {
		return false
	}
	if id != mine {
		s.expire()
		return false
	}
	return true
}

// answered takes a server's answer to a connect that left at sentAt, and
// reports whether the connection may go on. A connect is validated at the
// leader, hence it is proof by itself; a new session needs the quorum, too.
func (s *session) answered(l *link, a wire.ConnectResponse, sentAt time.Time) bool {
	if a.SessionID == 0 {
		s.expire()
		return true // the wire client reads of it, and closes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.severedYet || s.id != 0 && s.id != a.SessionID || a.Timeout <= 0 {
		return false
	}
	isNew := s.id == 0
	s.id, s.password, s.timeout = a.SessionID, a.Password, time.Duration(a.Timeout)*time.Millisecond
	s.margin = s.core.cfg.margin(s.timeout)
	s.link = l
	s.proof = newProof(s.timeout, s.core.cfg.serverTick, s.core.cfg.proof)
	switch {
	case s.core.cfg.proof == ProofWrite && !isNew:
		s.proof.connect(sentAt)
	case sentAt.After(s.proven):
		s.proven = sentAt
	}
	return true
}

// sending notes that a request leaves on l, and reports whether it may.
func (s *session) sending(l *link, xid int32, op wire.Op, path []byte, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.severedYet {
		return false
	}
	if s.link == l {
		s.proof.send(xid, op, now)
	}
	if op == wire.OpCloseSession {
		s.closeXid = xid
	}
	if len(path) > 0 && len(s.leaving) > 0 {
		if f, ok := s.leaving[string(path)]; ok {
			delete(s.leaving, string(path))
			close(f.left)
		}
	}
	return true
}

// heard notes an answer that arrived on l.
func (s *session) heard(l *link, xid int32, failed bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != l {
		return
	}
	if proven, ok := s.proof.answer(xid, failed, now); ok && proven.After(s.proven) {
		s.proven = proven
	}
	if xid == s.closeXid && xid != 0 {
		s.closedOK = true
	}
}

// nonsense notes that l brought what cannot be an answer.
func (s *session) nonsense(l *link, err error) {
	err = fmt.Errorf("from %s: %w", l.RemoteAddr(), err)
	s.mu.Lock()
	s.misheard, s.misheardAt = err, time.Now()
	s.mu.Unlock()
	s.core.note(err)
	s.core.cfg.log.Warn("leaving a connection", zap.Error(err))
}

// explain adds to the loss of a connection what it brought that makes no sense, if
// one has done so since a time.
func (s *session) explain(err error, since time.Time) error {
	if s == nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.misheard == nil || s.misheardAt.Before(since) {
		return err
	}
	return withLast(err, s.misheard)
}

// expire: a server said that the session is gone.
func (s *session) expire() {
	s.mu.Lock()
	s.expired = true
	s.mu.Unlock()
	s.sever()
	s.end(fmt.Errorf("%w: expired by the ensemble", ErrSessionLost))
}

// end makes the session over, and tells every hold. The first reason stands.
func (s *session) end(why error) {
	s.mu.Lock()
	if s.err == nil {
		s.err, s.endedAt = why, time.Now()
		close(s.over)
	}
	s.mu.Unlock()
	s.loseHolds(why)
	s.hub.reset()
}

// sever lets nothing be sent for the session any more. hangUp does the rest.
func (s *session) sever() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.severedYet {
		s.severedYet = true
		close(s.cut)
	}
}

// hangUp closes the connection of a session that is severed. The connection is
// the user's, by the dialer, and may take its time over that.
func (s *session) hangUp() {
	<-s.cut
	s.mu.Lock()
	l := s.dialed
	s.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
}

func (s *session) severed() bool {
	select {
	case <-s.cut:
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

// takesRequests reports whether a request may be given to the wire client while the
// state is Connected. Its connection may have ended all the same: the wire client
// says so before it fails what was under way, and before run hears of it. Whoever
// tries again at once must not fill a queue that is sent by the next connection: if
// none comes he would wait for the end of the session, whatever his budget.
func (s *session) takesRequests() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil && s.ends == 0
}

// Err is why the session is over, nil while it is not.
func (s *session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
