package session

import (
	"fmt"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
)

// This file remembers where a session comes from while it moves to another
// server. If that one does not take it, the client goes back, once: a list may
// have nothing but another ensemble's servers, which say that they do not know
// the session. That is not believed as long as the server that was left has not
// said so too. If it resumes the session, the other one is of another ensemble,
// which no other question could tell so surely.

// mover is the state of the moves of a session.
type mover struct {
	anew chan struct{} // a token: the list is another one

	mu       sync.Mutex        // guards what follows
	underWay bool              // a goroutine waits for a move, or makes it
	again    bool              // that goroutine has to look again
	next     *servers.Prepared // the wire client's next dial gets this connection
	to, left servers.Server    // of the present move; zero Servers: there is none, or the session was resumed since
	goesBack bool              // the client has called left again
	unknown  bool              // to does not know the session
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
	m.next, m.to, m.left, m.goesBack, m.unknown = p, p.To, from, false, false
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
		m.resetLocked()
	}
	return p
}

// back returns the server that the client goes back to. It is called when the
// wire client dials, and there is no other connection for it.
func (m *mover) back() (to servers.Server, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left.Address == "" || m.goesBack {
		return servers.Server{}, false
	}
	m.goesBack = true
	return m.left, true
}

// refuse returns an error if a server does not know the session and the client
// moves there now: see package link's Config.Vouch.
func (m *mover) refuse(at servers.Server) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.goesBack || m.left.Address == "" || at.Address != m.to.Address {
		return nil
	}
	m.unknown = true
	return fmt.Errorf("%s: %w: it does not know the session, which %s had a moment ago", at, servers.ErrNotVouched, m.left)
}

// resumed notes that a server has taken the session, and returns the server of
// another ensemble, if that says so.
func (m *mover) resumed(at servers.Server) (foreign servers.Server, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	foreign, ok = m.to, m.unknown && at.Address == m.left.Address
	m.resetLocked()
	return foreign, ok
}

func (m *mover) resetLocked() {
	m.to, m.left, m.goesBack, m.unknown = servers.Server{}, servers.Server{}, false, false
}
