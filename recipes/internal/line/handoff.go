package line

import (
	"context"
	"math"
	"time"
)

// A granted znode need not leave the line with its last share: it may be handed
// off in-process, shared by a caller that comes later, or kept for a while for
// the next caller. That never breaks exclusion, since the znode stays in line.
// But it keeps others in line waiting. So it depends on what is known of them,
// and what is not known is looked up: contention.go.

// verdict says whether a grant may serve another caller.
type verdict int

const (
	no verdict = iota
	yes
	unknown // a look at the line decides
)

// mayServeLocked decides whether g may serve another caller in-process, or wait
// for one.
func (g *grant) mayServeLocked(cfg *Config, waiting bool) verdict {
	switch {
	case g.state != held && g.state != idle, g.bound, g.guarding > 0, g.watch.isRevoked():
		return no
	case !g.sess.Connected(), !g.sess.Proven():
		return no
	}
	timeout := g.sess.Timeout()
	switch c := &g.contention; {
	case c.known == uncontested && time.Since(c.at) <= timeout/3:
		return yes
	case c.known != contested:
		return unknown
	case !waiting, !g.queue.rule.exclusive(), c.handoffs >= cfg.Handoffs, time.Since(c.at) >= timeout:
		if c.assumed {
			return unknown
		}
		return no
	}
	return yes
}

// keepLocked keeps g, whose last caller has just left, for the next one. It
// reports false if g has to leave the line.
func (q *localQueue) keepLocked(g *grant, cfg *Config) bool {
	linger := cfg.lingerNow()
	keep := linger > 0
	if q.waiters.Len() > 0 {
		keep = cfg.Handoffs > 0
	}
	switch {
	case q.current != g || !keep:
		return false
	case g.handoffs == math.MaxUint32 || g.timed && !q.rule.exclusive():
		return false
	}
	g.onLocked(vacated)
	if q.rule.exclusive() {
		g.handoffs++
	}
	g.begun = false
	g.idle.cfg, g.idle.until, g.idle.how = cfg, time.Now().Add(linger), ByLinger
	if q.waiters.Len() > 0 {
		g.idle.how = ByHandoff
	}
	return g.resumeLocked()
}

// resumeLocked gives an idle grant to those who wait, or lets it stay idle
// until it is known whether it may, or for as long as it lingers. It reports
// false if g has to leave the line.
func (g *grant) resumeLocked() bool {
	q := g.queue
	waiting := q.waiters.Len() > 0
	switch v := g.mayServeLocked(g.idle.cfg, waiting); {
	case v == no, !waiting && !time.Now().Before(g.idle.until):
		return false
	case v == unknown:
		g.lookLocked()
	case waiting:
		if g.contention.known == contested {
			g.contention.handoffs++
		}
		q.chooseAllLocked(g.idle.how, g)
		q.serveLocked() // for those who may not share it
		return true
	}
	g.idle.leaveLaterLocked(g)
	return true
}

// resumeOrLeaveLocked is resumeLocked for a grant that has been idle, if it
// still is.
func (g *grant) resumeOrLeaveLocked() {
	if g.state == idle && !g.resumeLocked() {
		g.departLocked(context.Background())
	}
}

// expectLocked is called when a caller waits for an exclusive grant. While that
// is held, this is when to learn whether it may be handed off.
func (q *localQueue) expectLocked() {
	switch g := q.current; {
	case g == nil:
	case g.state == idle:
		g.resumeOrLeaveLocked()
	case g.state == held && q.firstLocked().line.cfg.Handoffs > 0 && !g.bound && !g.contention.assumed:
		g.lookLocked()
	}
}

// shareCurrentLocked gives the waiters shares of a grant that others have, if
// that keeps nobody in line waiting for longer. It reports false if any of them
// has to wait in line.
func (q *localQueue) shareCurrentLocked() bool {
	for q.waiters.Len() > 0 {
		g, cfg := q.current, &q.firstLocked().line.cfg
		if g == nil || !g.sharedLocked(cfg) {
			return false
		}
		switch g.mayServeLocked(cfg, true) {
		case yes:
			q.chooseAllLocked(ByShare, g)
		case unknown:
			g.lookLocked()
			return true
		default:
			return false
		}
	}
	return true
}

// sharedLocked reports whether later callers may share g, by its kind and by
// how long they and it may be held.
func (g *grant) sharedLocked(cfg *Config) bool {
	return g.queue.rule.shares && !g.timed && cfg.MaxHold == 0
}

// shareAtOnce returns a share if nothing has to be waited for or looked up.
func (q *localQueue) shareAtOnce(l *Line) *Share {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := q.current
	how := ByShare
	if g != nil && g.state == idle {
		how = ByLinger
	}
	switch {
	case g == nil, q.waiters.Len() > 0, g.contention.known != uncontested:
	case q.rule.exclusive() && g.state != idle:
	case !q.rule.exclusive() && !g.sharedLocked(&l.cfg):
	case g.mayServeLocked(&l.cfg, true) != yes:
	default:
		return g.shareLocked(l, how)
	}
	return nil
}
