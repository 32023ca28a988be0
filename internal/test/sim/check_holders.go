package sim

import "time"

// lost reports whether a holding was lost, as far as any check has noticed.
func (l *ledger) lost(t *holding) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.knownLocked(t) && t.lost
}

// knownLocked reports whether a client believes that it has the holding.
func (l *ledger) knownLocked(t *holding) bool {
	if t.left || l.closedFor[t.who.client] {
		return false
	}
	held := false
	for _, lease := range t.leases {
		select {
		case <-lease.Lost():
		default:
			held = held || !l.plan.Asks && !l.jumped || lease.Held()
		}
	}
	if !held && !t.lost {
		t.lost = true
		l.losses++
		seq := l.nextLocked()
		l.endsLocked(t, seq)
		t.of.last = time.Now()
		t.of.ended[t.who.client] = t.of.last
		l.logLocked("%v: lost: %v", t, t.lease.Err())
		if l.plan.Scenario.quiet() || l.plan.losesNone() {
			l.wrongLocked("%v was lost, and nothing has failed: %v", t, t.lease.Err())
		}
	}
	return held
}

// isRemovedLocked reports whether somebody else has removed the holding's
// znode, and nobody stood ahead of it then.
func (l *ledger) isRemovedLocked(t *holding) bool {
	_, removed := l.removed[t.path]
	return removed && !l.behind.has(t.path)
}

// voidLocked reports whether an operator has ended the holding's session, or
// has removed its znode. No clock helps against that until the client knows. Of
// a removed znode it knows by its watch, or soon after it is connected again,
// and its reads are not refused; if it is not, its deadline passes. A read
// may have to wait for one report and one question of its member, and for both
// again on the next connection.
func (l *ledger) voidLocked(t *holding) bool {
	if l.isRemovedLocked(t) {
		_, longest := l.plan.granted()
		known, removed := longest+time.Second+l.plan.refuses(t.who.client)+4*l.plan.Reports, l.removed[t.path].at
		return t.lost || time.Since(removed) < known || time.Since(t.since) < known && removed.Before(t.since)
	}
	if !l.expired[t.session] {
		return false
	}
	s, err := t.client.Session()
	return err != nil || s.ID() == t.session || t.lost
}

// occupiesLocked reports whether a holding keeps others out: a client believes
// in it, or its deadline has not passed.
func (l *ledger) occupiesLocked(t *holding, now time.Time) (occupies, known bool) {
	known = l.knownLocked(t)
	if t.left || l.closed[t.who.client] || l.voidLocked(t) {
		return false, false
	}
	if deadline := t.lease.Deadline(); deadline.After(t.claimed) {
		t.claimed = deadline
	}
	return known || l.plan.Rates == nil && !l.jumped && now.Before(t.claimed), known
}

// look checks what the clients believe now.
func (l *ledger) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookLocked()
}

func (l *ledger) lookLocked() {
	now := time.Now()
	for _, r := range l.resources {
		var held []*holding
		for _, t := range r.holdings {
			occupies, known := l.occupiesLocked(t, now)
			if !occupies {
				continue
			}
			// The deadline was read first: the ensemble may end the session at
			// any moment after it.
			if stat, ok := l.ens.Stat(t.path); !ok || stat.EphemeralOwner != t.session {
				l.wrongLocked("%v: known %v, until %v, but its znode is gone", t, known, t.claimed.Sub(l.begin))
				t.left = true // reported once
				continue
			}
			held = append(held, t)
		}
		l.excludeLocked(r, held)
		l.overwrittenLocked(r)
		l.starvedLocked(r, false)
	}
}

// excludeLocked checks that no two conflicting holders exist at once.
func (l *ledger) excludeLocked(r *resource, held []*holding) {
	sum := 0
	for i, a := range held {
		sum += a.permits
		for _, b := range held[:i] {
			if r.limit == 0 && (!a.shared || !b.shared) && a.root != b.root {
				l.wrongLocked("%v holds beside %v", a, b)
				a.left = true
			}
		}
	}
	if r.limit > 0 && sum > r.limit {
		l.wrongLocked("%d permits are held of %d: %v", sum, r.limit, held)
		held[0].left = true
	}
}
