package testutil

import "time"

// reportTouchesLocked makes every follower report the sessions it has heard
// from. Followers behind another member report last: their report waits there
// for half a tick.
func (e *Embedded) reportTouchesLocked() {
	var last []*member
	for _, m := range e.members {
		if m.through != nil {
			last = append(last, m)
		} else {
			e.touchLocked(m)
		}
	}
	for _, m := range last {
		e.touchLocked(m)
	}
}

func (e *Embedded) touchLocked(m *member) {
	if m.leader == nil {
		return
	}
	late := e.cfg.touchDelay(m.index)
	if late <= 0 {
		m.reportLocked()
		return
	}
	time.AfterFunc(late, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		m.reportLocked()
	})
}

// reportLocked sends the sessions a follower has heard from to its leader, or
// to the member between them.
func (m *member) reportLocked() {
	l := m.leader
	if l == nil || l.lead == nil || !m.e.reachableLocked(m, l) {
		return
	}
	if _, ok := l.lead.followers[m]; !ok {
		return
	}
	for id, timeout := range m.touched {
		if t := m.through; t == nil || t == l {
			l.lead.touchLocked(id, timeout)
		} else if t.leader == l {
			t.touched[id] = timeout
		}
	}
	clear(m.touched)
}
