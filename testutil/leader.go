package testutil

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// leadership is what a member has and knows while it leads, and nobody else: where each session was last seen, and who follows.
// It is lost with the office; a new leader gives every session a full time-out.
type leadership struct {
	m         *member
	epoch     int64
	sessions  map[int64]*tracked
	followers map[*member]time.Time // and when each was last heard of
	pending   []*request            // waiting for their turn, or for a quorum
	draining  bool
}

// tracked is the leader's knowledge of a session.
type tracked struct {
	timeout time.Duration
	touched time.Time
	expires int64   // the tick at which it expires unless it is touched again
	owner   *member // where its client is connected; nil if nobody knows
	closing bool
}

// leadLocked makes the member the leader of the voters (itself among them).
func (m *member) leadLocked(voters []*member) {
	e := m.e
	m.leader = nil
	m.lead = &leadership{
		m: m, epoch: e.epoch, sessions: map[int64]*tracked{}, followers: map[*member]time.Time{},
	}
	m.advanceLocked()
	if len(e.members) > 1 {
		e.epoch++
		m.lead.epoch = e.epoch
		m.appendLocked(&txn{kind: epochEntry, code: wire.SystemError, zxid: e.epoch << 32})
		e.cfg.logf("testutil: member %d leads, epoch %d", m.index, e.epoch)
	}
	now := time.Now()
	for id, timeout := range m.tree.sessions {
		t := &tracked{timeout: time.Duration(timeout) * time.Millisecond}
		t.touch(e, id, now, t.timeout)
		m.lead.sessions[id] = t
	}
	for _, f := range voters {
		if f != m {
			f.followLocked(m)
		}
	}
}

// followLocked makes the member a follower of a leader that it can talk to: it learns everything that was committed.
func (m *member) followLocked(l *member) {
	if m.applied < m.e.base {
		m.tree = l.tree.clone()
		m.applied = l.applied
	}
	m.leader, m.heard = l, time.Now()
	m.logged = l.logged
	l.lead.followers[m] = m.heard
	m.advanceLocked()
	l.lead.drainLocked()
}

// appendLocked adds an entry to the log and brings it to every member that the leader can talk to.
func (m *member) appendLocked(t *txn) {
	e := m.e
	e.log = append(e.log, t)
	m.logged = e.base + len(e.log)
	m.advanceLocked()
	for _, f := range e.members {
		if _, ok := m.lead.followers[f]; ok && f.leader == m && e.talkLocked(f, m) {
			f.logged = m.logged
			f.advanceLocked()
		}
	}
	e.forgetLocked()
}

// forgetLocked drops the part of the log that every running member has applied. One that is away for longer than the log is
// kept gets a copy of the leader's state when it comes back.
func (e *Embedded) forgetLocked() {
	const kept = 1024
	if len(e.log) < 2*kept {
		return
	}
	least := e.base + len(e.log) - kept
	for _, m := range e.members {
		if m.up {
			least = min(least, m.applied)
		}
	}
	if n := least - e.base; n >= kept {
		e.log = append([]*txn(nil), e.log[n:]...)
		e.base = least
	}
}

// quorumLocked reports whether enough members acknowledge what the leader proposes.
func (l *leadership) quorumLocked() bool {
	if l.m.paused {
		return false
	}
	acks := 1
	for f := range l.followers {
		if f.leader == l.m && l.m.e.talkLocked(f, l.m) {
			acks++
		}
	}
	return acks > len(l.m.e.members)/2
}

// submitLocked takes a request that needs the leader, in the order in which they come.
func (l *leadership) submitLocked(r *request) {
	if r.attach {
		r.c.attachedLocked(r, l.revalidateLocked(r))
		return
	}
	l.pending = append(l.pending, r)
	l.drainLocked()
}

// drainLocked does what is pending. A write needs a quorum. A sync does not, unless it stands behind a write: so a leader that
// was cut off and does not know it answers a sync, as the real one does.
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

// syncLocked answers a sync once its member has applied what was committed by now. For the clients of another member the leader
// does not look at the session, so that a sync through a follower succeeds even for one that has moved on: seen on the real one.
func (l *leadership) syncLocked(r *request) {
	if r.member == l.m {
		if code := l.checkLocked(r); code != wire.OK {
			r.c.replyLocked(r, code, nil)
			r.c.finishedLocked()
			return
		}
	}
	r.member.syncs = append(r.member.syncs, syncWait{l.m.logged, r})
	r.member.advanceLocked()
}

// checkLocked reports whether the session is alive and this member the one that its client is connected to.
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

// prepareLocked makes a write's entry for the log. It takes the next transaction number whether the write is valid or not.
func (l *leadership) prepareLocked(r *request) *txn {
	now := time.Now()
	tree := l.m.tree
	t := &txn{zxid: tree.zxid + 1, time: now.UnixMilli(), kind: r.op, session: r.session, request: r}
	p := prep{tree: tree, zxid: t.zxid, session: r.session, auth: r.auth, extended: l.m.e.cfg.extended}
	switch r.op {
	case wire.OpCreateSession:
		t.timeout = r.timeout
		s := &tracked{timeout: time.Duration(r.timeout) * time.Millisecond, owner: r.member}
		s.touch(l.m.e, r.session, now, s.timeout)
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
		t.code = wire.BadArguments // for the server takes the header to be part of the path
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

// revalidateLocked is the leader's answer to a member at which an old session wants to go on.
func (l *leadership) revalidateLocked(r *request) bool {
	if !l.touchLocked(r.session, r.timeout) {
		return false
	}
	l.sessions[r.session].owner = r.member
	return true
}

// touchLocked notes that a session was heard of.
func (l *leadership) touchLocked(session int64, timeout int32) bool {
	t := l.sessions[session]
	if t == nil || t.closing {
		return false
	}
	t.touch(l.m.e, session, time.Now(), time.Duration(timeout)*time.Millisecond)
	return true
}

// touch moves the expiry to the first whole tick after the time-out, measured from now by the members' clocks.
func (t *tracked) touch(e *Embedded, session int64, now time.Time, timeout time.Duration) {
	t.touched = now
	if rate := e.cfg.rate(session); rate > 0 {
		timeout = time.Duration(float64(timeout) / rate)
	}
	t.expires = int64((now.Sub(e.start)+timeout)/e.cfg.tick) + 1
}

// expireLocked closes the sessions that have not been heard of for too long.
func (l *leadership) expireLocked(tick int64) {
	for _, id := range sortedSessions(l.sessions) {
		if t := l.sessions[id]; t.expires <= tick && !t.closing {
			l.m.e.cfg.logf("testutil: session %#x expires, its time-out is %v", id, t.timeout)
			l.closeLocked(id)
		}
	}
}

func (l *leadership) closeLocked(session int64) {
	l.sessions[session].closing = true
	l.submitLocked(&request{op: wire.OpCloseSession, session: session, member: l.m})
}
