package testutil

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

func sortedSessions(m map[int64]*trackedSession) []int64 { return slices.Sorted(maps.Keys(m)) }

func sortedPaths(m map[string]struct{}) []string { return slices.Sorted(maps.Keys(m)) }

// tick is the members' clock. Every half tick of its own a member talks to its
// leader or to its followers, every tick a leader expires sessions, and every
// container interval it sweeps. Events at the same time happen in this order.
func (e *Embedded) tick() {
	defer e.wg.Done()
	sweep, sweeps := e.cfg.sweepInterval, int64(0)
	timer := time.NewTimer(0)
	defer timer.Stop()
	last := e.start
	for {
		next := time.Duration(sweeps+1) * sweep
		e.mu.Lock()
		for _, m := range e.members {
			next = min(next, time.Duration(m.halvesAt(last)+1)*(m.tick/2))
		}
		e.mu.Unlock()
		timer.Reset(time.Until(e.start.Add(next)))
		select {
		case <-e.done:
			return
		case <-timer.C:
		}
		now := time.Now()
		e.ticked.Store(int64(now.Sub(e.start)))
		e.mu.Lock()
		e.tickLocked(last, now)
		e.mu.Unlock()
		if n := int64(now.Sub(e.start) / sweep); n > sweeps {
			e.mu.Lock()
			e.sweepLocked(now)
			e.mu.Unlock()
			sweeps = n
		}
		last = now
	}
}

// halvesAt returns how many half ticks of the member have passed at now.
func (m *member) halvesAt(now time.Time) int64 { return int64(now.Sub(m.e.start) / (m.tick / 2)) }

// halfTicked and ticked report whether a half tick, and a whole one, of the
// member has passed since last.
func (m *member) halfTicked(last, now time.Time) bool { return m.halvesAt(now) > m.halvesAt(last) }

func (m *member) ticked(last, now time.Time) bool { return m.halvesAt(now)/2 > m.halvesAt(last)/2 }

func (e *Embedded) sweepLocked(now time.Time) {
	for _, m := range e.members {
		if m.lead != nil && !m.paused && !e.closed {
			m.lead.sweepLocked(now)
		}
	}
}

// tickLocked does what members do by their clocks between last and now.
func (e *Embedded) tickLocked(last, now time.Time) {
	if e.closed || !slices.ContainsFunc(e.members, func(m *member) bool { return m.halfTicked(last, now) }) {
		return
	}
	e.deliverLocked()
	e.askAllLocked(last, now)
	for _, m := range e.members {
		if m.lead == nil || m.paused || !m.halfTicked(last, now) {
			continue
		}
		for f := range m.lead.followers {
			if f.leader == m && e.reachableLocked(f, m) {
				f.heard, m.lead.followers[f] = now, now
			}
		}
		if m.ticked(last, now) {
			m.lead.expireLocked(m.halvesAt(now) / 2)
		}
	}
	e.checkSilenceLocked(last, now)
	e.scheduleElectionLocked()
}

// checkSilenceLocked makes members notice silence. A member and its leader that
// have not heard from each other for the sync limit give each other up, each by
// its own ticks. A leader without a majority gives up at its next whole tick.
func (e *Embedded) checkSilenceLocked(last, now time.Time) {
	for _, m := range e.members {
		if m.paused {
			continue
		}
		limit := time.Duration(e.cfg.syncLimit) * m.tick
		if m.leader != nil && now.Sub(m.heard) >= limit {
			m.lookLocked("has not heard of its leader for the sync limit")
			e.changedLocked()
		}
		if m.lead == nil {
			continue
		}
		maps.DeleteFunc(m.lead.followers, func(_ *member, heard time.Time) bool { return now.Sub(heard) >= limit })
		if m.ticked(last, now) && !m.decidesLocked().quorum(append(slices.Collect(maps.Keys(m.lead.followers)), m)) {
			m.lookLocked("leads and has no quorum")
			e.changedLocked()
		}
	}
}

// reachableLocked reports whether one member receives and processes the
// messages of another.
func (e *Embedded) reachableLocked(a, b *member) bool {
	return a.up && b.up && !a.paused && !b.paused && !e.cutLocked(a, b)
}

// cutLocked reports whether the messages between two members are lost.
func (e *Embedded) cutLocked(a, b *member) bool {
	if a.through == nil || a.through == b {
		a, b = b, a
	}
	if t := a.through; t != nil && t != b {
		return !t.up || t.paused || e.cutLocked(a, t) || e.cutLocked(t, b)
	}
	return e.partitions[[2]int{min(a.index, b.index), max(a.index, b.index)}]
}

// deliverLocked delivers everything between members that can talk to each
// other. It is called when a fault starts or ends, and at every half tick.
func (e *Embedded) deliverLocked() {
	for _, m := range e.members {
		if !m.up || m.paused {
			continue
		}
		// The end of a connection is noticed at once, unless the
		// network is cut.
		if l := m.leader; l != nil && !e.cutLocked(m, l) && !l.paused {
			if l.lead == nil {
				m.lookLocked("its leader is gone")
			} else if _, ok := l.lead.followers[m]; !ok {
				m.lookLocked("its leader has given it up")
			}
		}
		if m.lead != nil {
			maps.DeleteFunc(m.lead.followers, func(f *member, _ time.Time) bool {
				return f.leader != m && !e.cutLocked(f, m) && !f.paused
			})
		}
	}
	for _, l := range e.members {
		if l.lead == nil || l.paused {
			continue
		}
		for _, f := range e.members {
			if f.leader == l && e.reachableLocked(f, l) {
				f.acknowledged = l.acknowledged
				f.advanceLocked()
				f.hearLocked()
				f.sendOutboxLocked()
			}
		}
		l.lead.drainLocked()
	}
	e.scheduleElectionLocked()
	e.changedLocked()
}

// scheduleElectionLocked schedules an election if some member without a leader
// could have one.
func (e *Embedded) scheduleElectionLocked() {
	if e.electing || e.closed || e.spoiled || !e.findLeadersLocked(false) {
		return
	}
	e.electing = true
	time.AfterFunc(e.cfg.election, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.electing = false
		if !e.closed {
			e.electLocked()
		}
	})
}

func (e *Embedded) electLocked() {
	if e.findLeadersLocked(true) {
		e.deliverLocked()
	}
}

// findLeadersLocked finds a leader for every member that looks for one: the
// present leader, or else the member with the longest log that a quorum of
// members without a leader can reach. A leader that was paused while another
// one led is not followed again: it does not know what that one did. It reports
// whether it found any. If follow is set, the members follow it.
func (e *Embedded) findLeadersLocked(follow bool) bool {
	found := false
	var looking []*member
	for _, m := range e.members {
		if m.up && !m.paused && !m.serving() {
			looking = append(looking, m)
		}
	}
	if l := e.leaderLocked(); l != nil && l.lead.epoch == e.epoch {
		for _, m := range looking {
			if e.reachableLocked(m, l) && !l.lead.deposed && l.decidesLocked().quorum(append(l.lead.inStepLocked(), m)) {
				found = true
				if follow {
					m.followLocked(l)
				}
			}
		}
		if found {
			return true
		}
	}
	slices.SortStableFunc(looking, func(a, b *member) int {
		return cmp.Or(cmp.Compare(b.acknowledged, a.acknowledged), cmp.Compare(b.index, a.index))
	})
	for _, candidate := range looking {
		config := candidate.decidesLocked()
		if candidate.through != nil || !config.votes(candidate) {
			continue
		}
		reached := slices.DeleteFunc(slices.Clone(looking), func(v *member) bool {
			return v != candidate && !e.reachableLocked(v, candidate)
		})
		if config.quorum(reached) {
			if follow {
				candidate.leadLocked(reached)
			}
			return true
		}
	}
	return found
}
