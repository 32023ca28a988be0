package sim

import "time"

// waits records that a caller begins to wait.
func (l *ledger) waits(w who, of []*resource, wanted want) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.killed[w.client] {
		return
	}
	wanted.since = time.Now()
	for _, r := range of {
		r.waiting[w] = wanted
		l.starvedLocked(r, false)
	}
}

// starvedLocked checks that no caller waits long while it could be granted, as
// happens when a wakeup is lost: the next event may be what wakes it. The time
// starts again with every event that allows a grant.
func (l *ledger) starvedLocked(r *resource, happened bool) {
	now := time.Now()
	if happened {
		r.last = now
	}
	switch {
	case l.settled.IsZero() || now.Before(l.settled) || l.plan.Recipe == Campaign || l.plan.Recipe == All:
		return
	case !l.freeLocked(r):
		r.idle = time.Time{}
	case r.idle.IsZero() || happened:
		r.idle = now
	case now.Sub(r.idle) > l.patience():
		l.wrongLocked("%v wait for %s for %v, and could be granted", r.waiting, r.path, now.Sub(r.idle))
		r.idle = now
	}
}

// passedLocked checks that a client does not hand off in-process more often, or
// for longer, than allowed while another client waits.
func (l *ledger) passedLocked(t *holding) {
	p := l.plan
	_, longest := p.granted()
	most := p.mostHandoffs(t.who.client)
	if p.Recipe != Mutex && p.Recipe != Keyed && p.Recipe != Many || l.settled.IsZero() || time.Now().Before(l.settled) {
		return
	}
	for k, w := range t.of.waiting {
		// Joining the line and being noticed there takes some messages.
		// Goroutines that wait in-process behind a holder that leaves join the
		// line only then.
		soon := 20*p.Latency + 6*p.Reports + time.Millisecond + p.delayed()
		joined, inLine := l.joinedAtLocked(t.of, k.client)
		if !inLine { // it cannot prove its session, and has left
			w.passed = 0
			t.of.waiting[k] = w
		}
		if !inLine || time.Since(joined) < soon || time.Since(w.since) < soon || time.Since(t.of.ended[k.client]) < soon {
			continue
		}
		if w.client != t.who.client {
			w.client, w.passed = t.who.client, 0
		}
		if w.passed++; w.passed == 2 {
			w.second = time.Now()
		}
		switch {
		case k.client == t.who.client:
		case w.passed > most+2: // the first grant, and one that was in flight
			l.wrongLocked("client %d was granted %d times in a row while %v waited", t.who.client, w.passed, k)
		case w.passed > 2 && time.Since(w.second) > longest*11/10+soon: // the first look at the line may be late
			l.wrongLocked("client %d was granted in a row for %v while %v waited", t.who.client, time.Since(w.second), k)
		}
		t.of.waiting[k] = w
	}
}

// joinedAtLocked returns when the oldest znode of a client in a line was made,
// and whether it has one.
func (l *ledger) joinedAtLocked(r *resource, client int) (at time.Time, inLine bool) {
	for _, dir := range r.dirs {
		for _, name := range l.ens.Children(dir) {
			stat, ok := l.ens.Stat(dir + "/" + name)
			if owner, known := l.clients[stat.EphemeralOwner]; !ok || !known || owner != client {
				continue
			}
			if made := time.UnixMilli(stat.Ctime); !inLine || made.Before(at) {
				at, inLine = made, true
			}
		}
	}
	return at, inLine
}

// joinedLocked checks that no reader joins current readers while a writer of
// another client stands in line.
func (l *ledger) joinedLocked(c call, t *holding) {
	p := l.plan
	if p.Recipe != RWLock || !p.Scenario.quiet() || !t.shared || t.root != t {
		return
	}
	soon := 20*p.Latency + time.Millisecond + l.lateCreates() + p.delayed()
	for k, w := range t.of.waiting {
		if w.shared || k.client == t.who.client || c.at.Sub(w.since) < soon {
			continue
		}
		for _, o := range t.of.holdings {
			if o.path == t.path && o.since.Before(w.since) {
				l.wrongLocked("%v joined %v, while %v waited to write", t, o, k)
				return
			}
		}
	}
}

// freeLocked reports whether the next waiter could be granted, if there is one.
// A semaphore's line lets only its first waiter on, so that one is checked; for
// other recipes all waiters must be able to go on.
func (l *ledger) freeLocked(r *resource) bool {
	next, first := 0, -1
	if r.limit > 0 {
		first = l.firstLocked(r)
	}
	most, shared := 0, true
	for k, w := range r.waiting {
		if first >= 0 && k.client != first {
			continue
		}
		next++
		most, shared = max(most, w.permits), shared && w.shared
	}
	if next == 0 {
		return false
	}
	for _, t := range r.holdings {
		if t.gone {
			continue
		}
		if r.limit == 0 && !(shared && t.shared) {
			return false
		}
		most += t.permits
	}
	return r.limit == 0 || most <= l.limit
}

// firstLocked returns the client that is first in a semaphore's line, or a
// negative number if none is known to be.
func (l *ledger) firstLocked(r *resource) int {
	first := ""
	for _, name := range l.ens.Children(r.dirs[0]) {
		if first == "" || name[len(name)-10:] < first[len(first)-10:] {
			first = name
		}
	}
	stat, ok := l.ens.Stat(r.dirs[0] + "/" + first)
	if client, known := l.clients[stat.EphemeralOwner]; ok && known {
		return client
	}
	return -1
}

// patience is the longest that a grant may take when nothing prevents it. A
// create during which the directory is made again is late, and what it measured
// makes the proof that follows ask for more.
func (l *ledger) patience() time.Duration {
	return 2*time.Second + 30*l.plan.Latency + l.plan.proving() + l.lateCreates()
}

// lateCreates returns how late creates may be, at most, because the directory
// is made again while they are under way.
func (l *ledger) lateCreates() (late time.Duration) {
	for _, f := range l.plan.Faults {
		if f.What == RecreateUnder {
			late += f.By
		}
	}
	return late
}

// lateLocked returns how long a grant took since the last event that it may
// have waited for.
func (l *ledger) lateLocked(c call, r *resource, now time.Time) time.Duration {
	if l.settled.IsZero() || now.Before(l.settled) || l.plan.Recipe == Campaign || l.plan.Recipe == All {
		return 0
	}
	since := l.settled
	for _, t := range []time.Time{c.at, r.last} {
		if t.After(since) {
			since = t
		}
	}
	for _, t := range r.holdings {
		// Its holder has not released it: the znode is removed at the deadline.
		if t.lost && !t.gone && t.claimed.After(since) {
			since = t.claimed
		}
	}
	return now.Sub(since)
}
