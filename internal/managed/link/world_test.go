package link

import (
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// session notes what it is told.
type session struct {
	down      bool // no connection may be used
	over      chan struct{}
	connected []connected
	sent      []sent
	answered  []int32 // the numbers of requests
	expired   bool

	mu    sync.Mutex // a timer ends a connection that is silent
	ended []Reason
}

type connected struct {
	on             *Link
	timeout        time.Duration
	isNew          bool
	sent, answered time.Time
}

type sent struct {
	on    *Link
	xid   int32
	check bool
	at    time.Time
}

func (s *session) IsUp(*Link) bool { return !s.down }
func (s *session) Connected(l *Link, timeout time.Duration, isNew bool, sent, answered time.Time) {
	s.connected = append(s.connected, connected{l, timeout, isNew, sent, answered})
}

func (s *session) Sent(l *Link, xid int32, _ wire.Op, check bool, at time.Time) {
	s.sent = append(s.sent, sent{l, xid, check, at})
}

func (s *session) Answered(_ *Link, xid int32, _ bool, _ time.Time) {
	s.answered = append(s.answered, xid)
}
func (s *session) Received(*Link, int, bool, time.Time) {}
func (s *session) Expired()                             { s.expired = true; s.end() }
func (s *session) NotResumed(*Link) error               { s.end(); return zkerr.AnotherSession }
func (s *session) Refused(wire.Op, error)               {}

func (s *session) Ended(_ *Link, why Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, why)
}

func (s *session) end() {
	select {
	case <-s.over:
	default:
		close(s.over)
	}
}

// chain returns the connections, none yet, of a session that asks for T = 6s.
func chain() (*session, *Chain) {
	s := &session{over: make(chan struct{})}
	return s, NewChain(s, Config{Timeout: 6 * time.Second, MaxRequest: 1 << 20, Accepts: func(time.Duration) error { return nil }}, s.over)
}

// standing returns session 7 with a connection on which nothing is ever
// answered. Credentials are not presented on it yet.
func standing() (*session, *Chain, *Link) {
	s, c := chain()
	on := &Link{
		chain: c, sending: make(chan struct{}, 1), presented: make(chan struct{}),
		asked: asked{waiting: make(map[int32]chan Reply), ended: make(chan struct{})},
	}
	c.id, c.latest = 7, on
	return s, c, on
}
