package session

import (
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file remembers where a session comes from while it moves to another
// server. If that one does not take it, the client goes back: a list may have
// nothing but another ensemble's servers, which say that they do not know the
// session. For a session timeout that is not believed, unless the server that
// was left says so too. If the session is resumed, the other server is of
// another ensemble, which no question could tell so surely. As long as the
// client is where it came from it returns there first after each end of its
// connection.

// mover is the state of the moves of a session.
type mover struct {
	timeout time.Duration // a session timeout
	anew    chan struct{} // a token: the list is another one

	mu       sync.Mutex // guards what follows
	underWay bool       // a goroutine waits for a move, or makes it
	again    bool       // that goroutine has to look again

	next   *servers.Prepared // the wire client's next dial gets this connection
	latest passage           // zero: there was none, or the session is elsewhere since
}

// passage is a move that was begun.
type passage struct {
	to, left  servers.Server
	unknown   bool      // to does not know the session, which was not resumed since
	isForeign bool      // to is of another ensemble
	since     time.Time // when left was first called again since there was a connection; zero: it was not
	isBack    bool      // the latest dial was to left
}

// begin reports whether the caller has to move the session. Otherwise another
// goroutine does, which looks again.
func (m *mover) begin() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.underWay {
		m.again = true
		return false
	}
	m.underWay = true
	return true
}

// end reports whether the goroutine that moves the session may end.
func (m *mover) end() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.again {
		m.again = false
		return false
	}
	m.underWay = false
	return true
}

// put begins a move away from a server.
func (m *mover) put(p *servers.Prepared, from servers.Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next, m.latest = p, passage{to: p.To, left: from}
}

// take returns the connection that the wire client's dial gets, nil without
// one.
func (m *mover) take() *servers.Prepared {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.next
	m.next = nil
	return p
}

// withdraw returns the connection if the wire client has not taken it. Then
// there is no move, unless the client has left its server.
func (m *mover) withdraw(left bool) *servers.Prepared {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.next
	if m.next = nil; p != nil && !left {
		m.latest = passage{}
	}
	return p
}

// back returns the server that the client goes back to. It is called when the
// wire client dials, and there is no other connection for it: the first time
// after the end of a connection, and every other time while it is not known
// whether the session is gone.
func (m *mover) back() (to servers.Server, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &m.latest
	switch {
	case p.left.Address == "":
		return servers.Server{}, false
	case p.since.IsZero():
		p.since, p.isBack = clock.Now(), true
	default:
		p.isBack = p.unknown && !p.isBack && !p.isLate(m.timeout)
	}
	return p.left, p.isBack
}

// refuse returns an error if a server that does not know the session is the
// target of the latest move, and is not believed: see package link's
// Config.Vouch.
func (m *mover) refuse(at servers.Server) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &m.latest
	if p.left.Address == "" || at.Address != p.to.Address || p.isLate(m.timeout) {
		return nil
	}
	p.unknown = true
	return fmt.Errorf("%s: %w: it does not know the session, which %s had a moment ago", at, zkerr.NotVouched, p.left)
}

// isLate reports whether left has not answered for a session timeout.
func (p *passage) isLate(timeout time.Duration) bool {
	return !p.since.IsZero() && clock.Now().Sub(p.since) >= timeout
}

// resumed notes that a server has taken the session, and returns the server of
// another ensemble, if that says so.
func (m *mover) resumed(at servers.Server) (foreign servers.Server, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.latest
	m.latest = passage{}
	ok = p.unknown && at.Address != p.to.Address
	if (ok || p.isForeign) && at.Address == p.left.Address {
		m.latest = passage{to: p.to, left: p.left, isForeign: true}
	}
	return p.to, ok
}
