package testutil

import (
	"cmp"
	"time"
)

// question is what a member is asked for: the sessions that it has heard from.
// It travels in the same channel as everything else that its leader sends to
// the member. So what is sent after it arrives after it.
type question struct {
	due      time.Time
	position int // number of log entries that were sent before it
}

// report is the answer to a question. It travels in the same channel as the
// requests that the member forwards.
type report struct {
	due     time.Time
	touched map[int64]int32 // sessions, and their timeouts
}

// askAllLocked has each leader whose half tick has come ask its followers for
// the sessions that they have heard from. A follower behind another member is
// asked by that one, at its half tick, and last: its report waits there.
func (e *Embedded) askAllLocked(last, now time.Time) {
	var behind []*member
	for _, m := range e.members {
		switch by := cmp.Or(m.betweenLocked(), m.leader); {
		case by == nil || !by.halfTicked(last, now):
		case m.through != nil:
			behind = append(behind, m)
		default:
			m.askLocked()
		}
	}
	for _, m := range behind {
		m.askLocked()
	}
}

func (m *member) askLocked() {
	if m.leader == nil || !m.hearsLocked() {
		return
	}
	late := m.e.cfg.touchDelay(m.index)
	if late <= 0 && len(m.questions) == 0 {
		m.reportLocked()
		return
	}
	due := time.Now().Add(max(late, 0))
	if n := len(m.questions); n > 0 && due.Before(m.questions[n-1].due) {
		due = m.questions[n-1].due
	}
	position := m.leader.acknowledged
	if t := m.betweenLocked(); t != nil {
		position = t.receivedLocked()
	}
	m.asked++
	m.questions = append(m.questions, question{due, position})
	m.e.afterLocked(due, m.hearLocked)
}

// afterLocked calls f with the ensemble's lock held when due has come.
func (e *Embedded) afterLocked(due time.Time, f func()) {
	time.AfterFunc(time.Until(due), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.closed {
			f()
		}
	})
}

// hearsLocked reports whether what its leader sends reaches the member.
func (m *member) hearsLocked() bool { return m.leader != nil && m.e.reachableLocked(m, m.leader) }

// betweenLocked returns the member between a follower and its leader, nil if
// there is none.
func (m *member) betweenLocked() *member {
	if t := m.through; t != nil && t != m.leader && t.leader != nil && t.leader == m.leader {
		return t
	}
	return nil
}

// hearLocked delivers the questions that have arrived, and what was sent after
// them.
func (m *member) hearLocked() {
	heard := false
	for len(m.questions) > 0 && m.hearsLocked() && !time.Now().Before(m.questions[0].due) {
		m.questions = m.questions[1:]
		m.reportLocked()
		heard = true
	}
	if !heard {
		return
	}
	m.advanceLocked()
	for _, behind := range m.e.members {
		if behind.betweenLocked() == m {
			behind.advanceLocked()
		}
	}
}

// receivedLocked returns how many of the log entries that a member has
// acknowledged it may apply: not those behind a question that is on its way.
// (The real leader sends an entry, and later that it is committed. Here only
// the latter can be late.)
func (m *member) receivedLocked() int {
	n := m.acknowledged
	if len(m.questions) > 0 {
		n = min(n, m.questions[0].position)
	}
	if t := m.betweenLocked(); t != nil {
		n = min(n, t.receivedLocked())
	}
	return n
}

// reportLocked sends the sessions a follower has heard from to its leader, or
// to the member between them.
func (m *member) reportLocked() {
	l := m.leader
	if l == nil || l.lead == nil || !m.hearsLocked() {
		return
	}
	if _, ok := l.lead.followers[m]; !ok || len(m.touched) == 0 {
		return
	}
	due := time.Now().Add(m.e.cfg.reportDelay(m.index))
	m.outbox = append(m.outbox, &request{member: m, report: &report{due, m.touched}})
	m.touched = map[int64]int32{}
	if due.After(time.Now()) {
		m.e.afterLocked(due, m.sendOutboxLocked)
	}
	m.sendOutboxLocked()
}

// deliverLocked hands a report over to the member it was sent to.
func (r *report) deliverLocked(m *member) {
	t := m.betweenLocked()
	for id, timeout := range r.touched {
		switch {
		case t != nil:
			t.touched[id] = timeout
		case m.through == nil || m.through == m.leader:
			m.leader.lead.touchLocked(id, timeout)
		}
	}
}
