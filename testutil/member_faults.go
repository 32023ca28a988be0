package testutil

import (
	"fmt"
	"time"
)

// Stop ends a member's process: its connections break, and new ones are
// refused. Its data stays for Restart.
func (e *Embedded) Stop(member int) error {
	m, err := e.memberAt(member)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !m.up {
		return fmt.Errorf("testutil: member %d is already stopped", member)
	}
	m.stopLocked()
	e.deliverLocked()
	return nil
}

// Restart starts a stopped member with its old address and data. It serves once
// it has found a leader: see WaitServing. A standalone server serves when
// Restart returns.
func (e *Embedded) Restart(member int) error {
	m, err := e.memberAt(member)
	if err != nil {
		return err
	}
	e.mu.Lock()
	up, known := m.up, m.config
	if !e.cfg.reconfig {
		known = e.config
	}
	e.mu.Unlock()
	if up {
		return fmt.Errorf("testutil: member %d is already running", member)
	}
	if !known.has(m) {
		return fmt.Errorf("testutil: member %d is not in its configuration: it was removed", member)
	}
	if err := m.listen(5 * time.Second); err != nil {
		return fmt.Errorf("testutil: member %d: %w", member, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errClosed
	}
	m.bootLocked()
	if e.standalone() {
		e.electLocked()
	}
	e.deliverLocked()
	return nil
}

// Pause freezes a member, as SIGSTOP does. Its connections stay open, the
// system accepts new ones for it, and nothing else happens: even its clock
// stops.
func (e *Embedded) Pause(member int) error { return e.freeze(member, true) }

// Resume lets a paused member go on. Everything that was sent to it meanwhile
// arrives now.
func (e *Embedded) Resume(member int) error { return e.freeze(member, false) }

func (e *Embedded) freeze(member int, frozen bool) error {
	m, err := e.memberAt(member)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !m.up:
		return fmt.Errorf("testutil: member %d is stopped", member)
	case m.paused == frozen:
		return fmt.Errorf("testutil: member %d is already %s", member, map[bool]string{true: "paused", false: "running"}[frozen])
	}
	m.paused = frozen
	if !frozen {
		now := time.Now()
		if m.lead != nil { // its own clock comes first: the real server's expiry thread is the first to wake
			m.lead.expireLocked(int64(now.Sub(e.start) / m.tick))
		}
		m.advanceLocked()
		e.checkSilenceLocked(now, now)
	}
	e.deliverLocked()
	return nil
}

// Partition cuts two members off from each other, in both directions. Clients
// still reach both.
func (e *Embedded) Partition(a, b int) {
	e.mustMemberAt(a)
	e.mustMemberAt(b)
	e.mu.Lock()
	defer e.mu.Unlock()
	if a != b {
		e.partitions[[2]int{min(a, b), max(a, b)}] = true
	}
	e.deliverLocked()
}

// Isolate cuts a member off from all the others. Clients still reach it.
func (e *Embedded) Isolate(member int) {
	for i := range e.Members() {
		e.Partition(member, i)
	}
}

// Heal ends every Partition and Isolate. What the members have sent each other
// meanwhile arrives, unless they have given each other up.
func (e *Embedded) Heal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.partitions)
	e.deliverLocked()
}

// Lag stops a follower from applying what is committed. It acknowledges writes,
// serves its old data to readers, and holds back the answers to the writes and
// syncs of its own clients. It has no effect on a member while that member
// leads.
func (e *Embedded) Lag(index int) { e.set(index, func(m *member) { m.lagging = true }) }

// Unlag ends Lag: the member applies what it has missed.
func (e *Embedded) Unlag(index int) { e.set(index, func(m *member) { m.lagging = false }) }

// Mute stops a member from hearing and sending anything on its client
// connections, old and new. It still accepts connections. Other members notice
// nothing.
func (e *Embedded) Mute(index int) { e.set(index, func(m *member) { m.mute = true }) }

// Unmute ends Mute: what clients have sent meanwhile arrives now.
func (e *Embedded) Unmute(index int) { e.set(index, func(m *member) { m.mute = false }) }

// Wedge makes a member accept connections and answer pings, and nothing else:
// other requests stay in its queue.
func (e *Embedded) Wedge(index int) { e.set(index, func(m *member) { m.wedged = true }) }

// Unwedge ends Wedge: the queued requests are executed now.
func (e *Embedded) Unwedge(index int) { e.set(index, func(m *member) { m.wedged = false }) }

func (e *Embedded) set(index int, change func(*member)) {
	m := e.mustMemberAt(index)
	e.mu.Lock()
	defer e.mu.Unlock()
	change(m)
	if m.up {
		m.advanceLocked()
	}
	e.deliverLocked()
}

// Latency sets how long every message between clients and members takes from
// now on, in each direction.
func (e *Embedded) Latency(d time.Duration) { e.latency.Store(int64(max(d, 0))) }

// CutClient cuts a session off: from now on nothing arrives on its connections,
// in either direction, and neither side is told. A new connection for the
// session gets no answer. To cut a client off whatever its session is, use the
// Cut of its ClientNet.
func (e *Embedded) CutClient(session int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cutOff == nil {
		e.cutOff = map[int64]bool{}
	}
	if session != 0 {
		e.cutOff[session] = true
	}
}

// RestoreClient ends CutClient. What was sent meanwhile arrives now.
func (e *Embedded) RestoreClient(session int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.cutOff, session)
	for _, m := range e.members {
		for c := range m.conns {
			// A connection that was opened and closed meanwhile
			// never reached the member.
			if n := len(c.inbox); !c.open && c.claimed == session && n > 0 && c.inbox[n-1].request == nil {
				c.closeLocked()
			}
		}
	}
	e.changedLocked()
}

// ExpireSession makes the leader close a session, as it does when the session
// has timed out. It returns an error if there is no such session, or no leader
// with a majority.
func (e *Embedded) ExpireSession(id int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.leaderLocked()
	if l == nil || !l.lead.quorumLocked() {
		return fmt.Errorf("testutil: cannot expire session %#x: no leader with a majority", id)
	}
	if s := l.lead.sessions[id]; s == nil || s.closing {
		return fmt.Errorf("testutil: no session %#x", id)
	}
	l.lead.closeLocked(id)
	return nil
}

// DropConnections closes the connections of a session, or with 0 all
// connections. The sessions live on. It returns an error if the session has no
// connection.
func (e *Embedded) DropConnections(id int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	found := id == 0
	for _, m := range e.members {
		for c := range m.conns {
			if id == 0 || c.session == id {
				found = true
				c.closeLocked()
			}
		}
	}
	if !found {
		return fmt.Errorf("testutil: session %#x has no connection", id)
	}
	return nil
}
