package testutil

import (
	"cmp"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// leadership is the state that only a leading member has: when each session was
// last heard from, and which members follow. A new leader starts without it and
// gives every session a full timeout.
type leadership struct {
	m         *member
	epoch     int64
	sessions  map[int64]*trackedSession
	followers map[*member]time.Time // and when each was last heard from
	pending   []*request            // waiting to be executed in order, or for a quorum
	deposed   bool                  // it was removed from those that vote: see reconfiguredLocked
	draining  bool
}

// trackedSession is what the leader knows about a session.
type trackedSession struct {
	timeout time.Duration // as the member granted it that was heard from last
	heard   time.Time
	expires int64   // the tick at which it expires unless it is touched before
	owner   *member // the member its client is connected to; nil if unknown
	closing bool
}

// leadLocked makes the member the leader of those that it has reached, itself
// included.
func (m *member) leadLocked(reached []*member) {
	e := m.e
	m.copyMissedLocked(e.mostAppliedLocked())
	m.leader = nil
	m.lead = &leadership{
		m: m, epoch: e.epoch, sessions: map[int64]*trackedSession{}, followers: map[*member]time.Time{},
	}
	m.advanceLocked()
	if !e.standalone() {
		e.epoch++
		m.lead.epoch = e.epoch
		if e.cfg.reconfig && e.config.version == 0 {
			e.config = e.config.with(func(c *configuration) { c.version = e.epoch << 32 })
		}
		m.appendLocked(&txn{kind: epochEntry, code: wire.SystemError, zxid: max(e.epoch<<32, m.tree.zxid)}) // greater: see Provisioned of package hidden
		e.cfg.logf("testutil: member %d leads, epoch %d", m.index, e.epoch)
	}
	m.adoptLocked()
	now := time.Now()
	for id, timeout := range m.tree.sessions {
		t := &trackedSession{}
		t.touch(m, id, now, time.Duration(timeout)*time.Millisecond)
		m.lead.sessions[id] = t
	}
	for _, f := range reached {
		if f != m {
			f.followLocked(m)
		}
	}
}

// followLocked makes the member follow a leader it can talk to. It receives
// everything that was committed.
func (m *member) followLocked(l *member) {
	m.copyMissedLocked(l)
	m.leader, m.heard = l, time.Now()
	m.acknowledged = l.acknowledged
	l.lead.followers[m] = m.heard
	m.advanceLocked()
	m.adoptLocked()
	l.lead.drainLocked()
}

// copyMissedLocked gives the member the data of another one, if it has not
// applied entries that the log no longer has.
func (m *member) copyMissedLocked(from *member) {
	if m.applied < m.e.dropped {
		m.tree = from.tree.clone()
		m.applied = from.applied
	}
}

// mostAppliedLocked returns a member that has applied all that was dropped from
// the log. A member can be elected that was down then, and that had
// acknowledged those entries and not applied them.
func (e *Embedded) mostAppliedLocked() *member {
	return slices.MaxFunc(e.members, func(a, b *member) int { return cmp.Compare(a.applied, b.applied) })
}

// appendLocked appends an entry to the log and sends it to every follower that
// the leader can talk to.
func (m *member) appendLocked(t *txn) {
	e := m.e
	if m.spoilsLocked(t) {
		return
	}
	e.log = append(e.log, t)
	if told := e.cfg.committed; told != nil && t.code == wire.OK {
		for _, op := range t.ops {
			told(t.zxid, t.session, Op(op.kind), op.path, op.data, op.owner)
		}
	}
	e.logged += t.size()
	m.acknowledged = e.dropped + len(e.log)
	m.advanceLocked()
	var received []*member
	for _, f := range e.members {
		if _, ok := m.lead.followers[f]; ok && f.leader == m && e.reachableLocked(f, m) {
			f.acknowledged = m.acknowledged
			received = append(received, f)
		}
	}
	if t.kind == wire.OpReconfig && t.code == wire.OK {
		m.lead.reconfiguredLocked(t.ops[0].config)
	}
	for _, f := range received { // one behind another applies no more than that one has received
		f.advanceLocked()
	}
	e.trimLogLocked()
}

// trimLogLocked drops the part of the log that every running member has
// applied. A member that misses more than is kept receives a copy of the
// leader's data when it comes back.
func (e *Embedded) trimLogLocked() {
	kept := 1024
	if e.logged > 16<<20 {
		kept = 1
	}
	if len(e.log) < 2*kept {
		return
	}
	least := e.dropped + len(e.log) - kept
	for _, m := range e.members {
		if m.up {
			least = min(least, m.applied)
		}
	}
	if n := least - e.dropped; n >= kept {
		for _, t := range e.log[:n] {
			e.logged -= t.size()
		}
		e.log = append([]*txn(nil), e.log[n:]...)
		e.dropped = least
	}
}

// quorumLocked reports whether a majority acknowledges what the leader
// proposes.
func (l *leadership) quorumLocked() bool {
	return !l.m.paused && !l.deposed && l.m.decidesLocked().quorum(l.inStepLocked())
}

// inStepLocked returns the members that acknowledge what the leader proposes,
// itself included.
func (l *leadership) inStepLocked() []*member {
	members := []*member{l.m}
	for f := range l.followers {
		if f.leader == l.m && l.m.e.reachableLocked(f, l.m) {
			members = append(members, f)
		}
	}
	return members
}

// submitLocked queues a request for the leader. They are executed in order.
func (l *leadership) submitLocked(r *request) {
	if r.attach {
		r.c.attachedLocked(r, l.revalidateLocked(r))
		return
	}
	l.pending = append(l.pending, r)
	l.drainLocked()
}

// drainLocked executes the pending requests. A write needs a quorum. A sync
// needs none unless a write is ahead of it: so a leader that was cut off
// without knowing it answers a sync, as the real one does.
func (l *leadership) drainLocked() {
	if l.draining {
		return
	}
	l.draining = true
	for len(l.pending) > 0 && l.m.lead == l && !l.m.paused {
		r := l.pending[0]
		if r.op != wire.OpSync && !l.quorumLocked() {
			break
		}
		l.pending = l.pending[1:]
		if r.op == wire.OpSync {
			l.syncLocked(r)
		} else {
			l.m.appendLocked(l.prepareLocked(r))
		}
	}
	l.draining = false
}

// syncLocked answers a sync once its member has applied everything committed by
// now. For the clients of another member the leader does not check the session,
// so a sync through a follower succeeds even for a session that has moved to
// another member. The real server does the same.
func (l *leadership) syncLocked(r *request) {
	if r.member == l.m {
		if code := l.checkLocked(r); code != wire.OK {
			r.c.replyLocked(r, code, nil)
			r.c.resumeLocked()
			return
		}
	}
	answer := syncWait{position: l.m.acknowledged, request: r}
	t := r.member.betweenLocked()
	if t == nil {
		r.member.syncedLocked(answer)
		return
	}
	answer.question = t.asked
	t.passing = append(t.passing, answer)
	t.advanceLocked()
}

// checkLocked checks that the session is alive and that its client is connected
// to the member which has sent the request.
func (l *leadership) checkLocked(r *request) wire.Code {
	t := l.sessions[r.session]
	switch {
	case t == nil || t.closing:
		return wire.SessionExpired
	case t.owner == nil:
		t.owner = r.member
	case t.owner != r.member:
		return wire.SessionMoved
	}
	return wire.OK
}

// prepareLocked makes the log entry of a write. It consumes the next
// transaction number whether or not the write is valid.
func (l *leadership) prepareLocked(r *request) *txn {
	now := time.Now()
	tree := l.m.tree
	t := &txn{zxid: tree.zxid + 1, time: now.UnixMilli(), kind: r.op, session: r.session, request: r}
	p := prep{lead: l, tree: tree, zxid: t.zxid, session: r.session, auth: r.auth, extended: l.m.e.cfg.extended}
	switch r.op {
	case wire.OpCreateSession:
		t.timeout = r.timeout
		s := &trackedSession{owner: r.member}
		s.touch(l.m, r.session, now, time.Duration(r.timeout)*time.Millisecond)
		l.sessions[r.session] = s
		return t
	case wire.OpCloseSession:
		delete(l.sessions, r.session)
		for _, path := range tree.ephemeralsOf(r.session) {
			t.ops = append(t.ops, txnOp{kind: wire.OpDelete, path: path})
		}
		return t
	}
	if r.c != nil {
		t.code = l.checkLocked(r)
	}
	switch {
	case t.code != wire.OK:
		return t
	case r.malformed:
		t.code = wire.MarshallingError
		return t
	case r.op == wire.OpDeleteContainer && r.c != nil:
		t.code = wire.BadArguments // the real server reads the header as part of the path
		return t
	}
	if m, ok := r.body.(*wire.MultiRequest); ok {
		t.ops, t.code = p.multi(m)
		return t
	}
	op, code := p.op(r.op, r.body)
	t.ops, t.code = []txnOp{op}, code
	return t
}

// revalidateLocked decides whether an existing session may go on at the member
// that asks.
func (l *leadership) revalidateLocked(r *request) bool {
	if !l.touchLocked(r.session, r.timeout) {
		return false
	}
	l.sessions[r.session].owner = r.member
	return true
}

// touchLocked records that a session was heard from.
func (l *leadership) touchLocked(session int64, timeout int32) bool {
	t := l.sessions[session]
	if t == nil || t.closing {
		return false
	}
	t.touch(l.m, session, time.Now(), time.Duration(timeout)*time.Millisecond)
	return true
}

// touch sets the timeout, and moves the expiry to the leader's first whole tick
// after it. It starts now and is measured by the members' clocks. The expiry
// may become earlier: the real server's ExpiryQueue.update takes no maximum.
func (t *trackedSession) touch(leader *member, session int64, now time.Time, timeout time.Duration) {
	t.heard, t.timeout = now, timeout
	if rate := leader.e.cfg.clockRate(session); rate > 0 {
		timeout = time.Duration(float64(timeout) / rate)
	}
	t.expires = int64((now.Sub(leader.e.start)+timeout)/leader.tick) + 1
}

// expireLocked closes the sessions that have timed out.
func (l *leadership) expireLocked(tick int64) {
	for _, id := range sortedSessions(l.sessions) {
		if t := l.sessions[id]; t.expires <= tick && !t.closing {
			l.m.e.cfg.logf("testutil: session %#x expires, its timeout is %v", id, t.timeout)
			l.closeLocked(id)
		}
	}
}

func (l *leadership) closeLocked(session int64) {
	l.sessions[session].closing = true
	l.submitLocked(&request{op: wire.OpCloseSession, session: session, member: l.m})
}
