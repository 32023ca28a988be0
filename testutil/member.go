package testutil

import (
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// member is one server. The ensemble's lock guards all fields after the first
// block.
type member struct {
	e     *Embedded
	index int
	settings
	addr      string // host and port; they stay the same once the member has been started
	addrKnown bool   // addr has its final value

	listener net.Listener // nil in memory, and while the member is stopped
	up       bool         // it is running
	paused   bool         // it is running, but frozen
	mute     bool         // it accepts connections, but hears and sends nothing
	wedged   bool         // it answers pings only
	lagging  bool         // it does not apply what is committed

	tree         *tree
	config       *configuration // the one it knows
	acknowledged int            // number of log entries it has acknowledged; all of them are committed
	applied      int            // number of log entries it has applied

	lead    *leadership     // not nil while it leads
	leader  *member         // not nil while it follows
	heard   time.Time       // when it last heard from its leader
	outbox  []*request      // on their way to the leader
	touched map[int64]int32 // sessions heard from since the last report to the leader, and their timeouts
	through *member         // if not nil, the only member it can talk to
	syncs   []syncWait      // answered once it has applied enough of the log

	questions []question // for touched, on their way to it
	asked     uint64     // questions that were sent to it, ever
	passing   []syncWait // answers to syncs on their way through it, to a member behind it

	conns        map[*conn]struct{}
	bySession    map[int64]*conn
	dataWatches  *watchTable
	childWatches *watchTable
	lastSession  int64
	booted       time.Time
	traffic      traffic
}

type syncWait struct {
	position int    // in the log: what must be applied before
	question uint64 // the number of the question that must have arrived before
	request  *request
}

// serving reports whether the member takes clients: it does while it leads or
// follows.
func (m *member) serving() bool { return m.lead != nil || m.leader != nil }

// number is the member's id in session ids and in the configuration. It counts
// from 1.
func (m *member) number() int64 { return int64(m.index) + 1 }

// listen opens the member's port. After the first time it is the same port
// again, which another process may have taken meanwhile, so listen retries
// until patience is over.
func (m *member) listen(patience time.Duration) error {
	if m.e.cfg.memory {
		return nil
	}
	listener, err := net.Listen("tcp", m.addr)
	for began := time.Now(); err != nil; {
		if time.Since(began) > patience {
			return err
		}
		time.Sleep(20 * time.Millisecond)
		listener, err = net.Listen("tcp", m.addr)
	}
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	if m.e.closed {
		return oneline.Join(errClosed, listener.Close())
	}
	if !m.addrKnown {
		m.addr, m.addrKnown = listener.Addr().String(), true
	}
	m.listener = listener
	m.e.wg.Add(1)
	go m.accept(listener)
	return nil
}

func (m *member) accept(listener net.Listener) {
	defer m.e.wg.Done()
	for {
		nc, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, most likely: some will be closed soon
			time.Sleep(5 * time.Millisecond)
			continue
		}
		m.startConn(nc)
	}
}

// bootLocked starts the member with the data it has on disk. It has no leader
// yet.
func (m *member) bootLocked() {
	m.up, m.paused = true, false
	m.conns, m.bySession = map[*conn]struct{}{}, map[int64]*conn{}
	m.touched = map[int64]int32{}
	m.dataWatches, m.childWatches = newWatchTable(), newWatchTable()
	m.booted, m.traffic = time.Now(), traffic{}
	if !m.e.cfg.reconfig {
		m.config = m.e.config
	}
	m.writeConfigLocked()
}

// lookLocked makes the member leave its leader, or its leadership: it drops its
// clients and looks for a leader.
func (m *member) lookLocked(why string) {
	if m.serving() {
		m.e.cfg.logf("testutil: member %d stops serving: %s", m.index, why)
	}
	m.lead, m.leader, m.outbox, m.syncs, m.passing, m.questions = nil, nil, nil, nil, nil, nil
	for c := range m.conns {
		c.dead = true
		c.closeLocked()
	}
	clear(m.touched)
}

// stopLocked stops the member's process.
func (m *member) stopLocked() {
	if !m.up {
		return
	}
	m.lookLocked("stopped")
	m.paused = false
	m.catchUpLocked() // everything it has acknowledged is on its disk and is read when it restarts
	m.up = false
	if m.listener != nil {
		m.listener.Close()
		m.listener = nil
	}
}

// newSessionLocked returns a new session id. As on the real server, the top
// byte is the member's number, and the rest counts up from the time of the
// first one.
func (m *member) newSessionLocked() int64 {
	now := uint64(time.Now().UnixMilli()) << 24 >> 8
	m.lastSession = max(m.lastSession+1, int64(now)|m.number()<<56)
	return m.lastSession
}

// advanceLocked applies the committed entries that the member has received.
func (m *member) advanceLocked() {
	if m.paused {
		return
	}
	arrived := m.asked - uint64(len(m.questions))
	for len(m.passing) > 0 && m.passing[0].question <= arrived {
		s := m.passing[0]
		m.passing = m.passing[1:]
		s.request.member.syncedLocked(s)
	}
	if m.lagging && m.lead == nil {
		return
	}
	m.catchUpLocked()
	for len(m.syncs) > 0 && m.syncs[0].position <= m.applied && m.syncs[0].question <= arrived {
		r := m.syncs[0].request
		m.syncs = m.syncs[1:]
		if r.malformed {
			r.c.replyLocked(r, wire.MarshallingError, nil)
		} else {
			r.c.replyLocked(r, wire.OK, &wire.PathResponse{Path: r.path})
		}
		r.c.resumeLocked()
	}
}

// syncedLocked sends the answer to a sync on the last part of its way, to the
// member that has forwarded the sync.
func (m *member) syncedLocked(s syncWait) {
	s.question = m.asked
	m.syncs = append(m.syncs, s)
	m.advanceLocked()
}

func (m *member) catchUpLocked() {
	for received := m.receivedLocked(); m.applied < received; {
		t := m.e.log[m.applied-m.e.dropped]
		m.applied++
		m.applyLocked(t)
	}
}

// applyLocked applies one entry: it changes the tree, sends the events of the
// watches, and then answers if the request came through this member. So a
// client receives an event before any answer that reflects the change.
func (m *member) applyLocked(t *txn) {
	r := t.request
	mine := r != nil && r.c != nil && r.member == m && !r.c.dead
	var results []wire.MultiResult
	if t.kind == epochEntry && m.lead == nil {
		return // a follower keeps its own number until the first write of the epoch
	}
	m.tree.zxid = t.zxid
	switch {
	case t.code != wire.OK:
	case t.kind == wire.OpCreateSession:
		m.tree.sessions[t.session] = t.timeout
	default:
		for i := range t.ops {
			result := m.changeLocked(&t.ops[i], t)
			if mine {
				results = append(results, result)
			}
		}
		if t.kind == wire.OpCloseSession {
			delete(m.tree.sessions, t.session)
			if c := m.bySession[t.session]; c != nil && !(mine && c == r.c) {
				c.closeLocked()
			}
		}
	}
	if mine {
		r.c.committedLocked(r, t, results)
	}
}

func (m *member) changeLocked(op *txnOp, t *txn) wire.MultiResult {
	result := wire.MultiResult{Op: op.kind, Path: op.path}
	acl := op.acl
	switch op.kind {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		if op.kind != wire.OpCreate {
			result.Op = wire.OpCreate2
		}
		result.Stat = m.tree.create(op, t.zxid, t.time).clientStat()
	case wire.OpDelete:
		acl = m.tree.nodes[op.path].acl
		listed := t.zxid
		if m.e.cfg.staleLists && t.kind == wire.OpCloseSession {
			listed = 0
		}
		m.tree.remove(op.path, listed)
	case wire.OpSetData:
		n := m.tree.nodes[op.path]
		acl = n.acl
		n.data, n.stat.Mzxid, n.stat.Mtime, n.stat.Version = op.data, t.zxid, t.time, op.version
		result.Stat = n.clientStat()
	case wire.OpSetACL:
		n := m.tree.nodes[op.path]
		n.acl, n.stat.Aversion = op.acl, op.version
		result.Stat = n.clientStat()
	case wire.OpReconfig:
		n := m.tree.nodes[op.path]
		acl = n.acl
		n.data, n.stat.Mzxid, n.stat.Mtime, n.stat.Version = op.data, t.zxid, t.time, op.version
		m.config, result.Stat = op.config, n.clientStat()
		m.fireLocked(op, acl) // the member writes it by itself, and then as the transaction says
	}
	m.fireLocked(op, acl)
	return result
}

// startConn starts a new connection.
func (m *member) startConn(nc net.Conn) {
	c := &conn{
		m: m, nc: m.e.cfg.secure(nc), done: make(chan struct{}), wake: make(chan struct{}, 1), since: time.Now(),
		remote: remoteHost(nc),
	}
	c.auth = []wire.ID{{Scheme: "ip", ID: c.remote}}
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	if !m.up {
		nc.Close()
		return
	}
	m.conns[c] = struct{}{}
	m.e.wg.Add(2)
	c.sessionless = time.AfterFunc(sessionlessTimeout, c.endSessionless)
	go c.read()
	go c.write()
}

// sessionlessTimeout is how long a connection may stay without a connect
// request, as on the real server (zookeeper.nio.sessionlessCnxnTimeout).
const sessionlessTimeout = 10 * time.Second

func (c *conn) endSessionless() {
	c.m.e.mu.Lock()
	defer c.m.e.mu.Unlock()
	if !c.connectArrived && len(c.inbox) == 0 && !c.blockedLocked() {
		c.closeLocked()
	}
}

func remoteHost(nc net.Conn) string {
	host, _, err := net.SplitHostPort(nc.RemoteAddr().String())
	if err != nil {
		return "127.0.0.1"
	}
	return host
}

func (m *member) name() string { return "member " + strconv.Itoa(m.index) }
