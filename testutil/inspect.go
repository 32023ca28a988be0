package testutil

import (
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// SessionInfo describes a session.
type SessionInfo struct {
	ID         int64
	Timeout    time.Duration // as the leader has it; without a leader as the session was created with
	Owner      int           // the member its client is or was connected to; -1 if the leader does not know
	Connected  bool          // some member has a connection for it
	Ephemerals []string      // paths, sorted
	LastTouch  time.Time     // when the leader last heard from it
}

// stateLocked returns the member whose data the methods below show: the leader,
// or without a leader the member with the latest transaction.
func (e *Embedded) stateLocked() *member {
	if l := e.leaderLocked(); l != nil {
		return l
	}
	best := &member{e: e, tree: &tree{}} // for the zero Embedded, which has no members
	for i, m := range e.members {
		if i == 0 || m.tree.zxid > best.tree.zxid {
			best = m
		}
	}
	return best
}

// Sessions returns the live sessions, sorted by id. Owner and LastTouch are
// known to the leader only: without one they are -1 and zero.
func (e *Embedded) Sessions() []SessionInfo {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.stateLocked()
	infos := make([]SessionInfo, 0, len(m.tree.sessions))
	for id, timeout := range m.tree.sessions {
		info := SessionInfo{
			ID: id, Timeout: time.Duration(timeout) * time.Millisecond, Owner: -1, Ephemerals: m.tree.ephemeralsOf(id),
		}
		for _, o := range e.members {
			if o.bySession[id] != nil {
				info.Connected = true
			}
		}
		if m.lead != nil {
			if s := m.lead.sessions[id]; s != nil {
				info.LastTouch, info.Timeout = s.heard, s.timeout
				if s.owner != nil {
					info.Owner = s.owner.index
				}
			}
		}
		infos = append(infos, info)
	}
	sort.Slice(infos, func(i, j int) bool { return infos[i].ID < infos[j].ID })
	return infos
}

// Exists reports whether there is a znode at path.
func (e *Embedded) Exists(path string) bool {
	_, ok := e.Data(path)
	return ok
}

// Data returns the data of a znode, and false if there is no such znode.
func (e *Embedded) Data(path string) ([]byte, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.stateLocked().tree.get(path)
	if n == nil {
		return nil, false
	}
	return slices.Clone(n.data), true
}

// Stat returns the stat of a znode as clients see it, and false if there is no
// such znode.
func (e *Embedded) Stat(path string) (Stat, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.stateLocked().tree.get(path)
	if n == nil {
		return Stat{}, false
	}
	return Stat(n.clientStat()), true
}

// Children returns the names of a znode's children, sorted, and nil if it has
// none or does not exist.
func (e *Embedded) Children(path string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.stateLocked().tree.get(path)
	if n == nil {
		return nil
	}
	names := slices.Clone(n.children)
	sort.Strings(names)
	return names
}

// Tree returns all znodes except those of the server itself, one a line,
// sorted: the path, the kind unless it is a plain persistent znode, and the
// data.
func (e *Embedded) Tree() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stateLocked().tree.dump()
}

// Watches returns the number of watches at all members by path. Watches for
// data and for children count together. A persistent watch (addWatch) counts as
// one of each.
func (e *Embedded) Watches() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	counts := map[string]int{}
	for _, m := range e.members {
		for _, table := range []*watchTable{m.dataWatches, m.childWatches} {
			for path, conns := range table.byPath {
				counts[path] += len(conns)
			}
		}
	}
	return counts
}

// WatchCount returns the number of watches at all members.
func (e *Embedded) WatchCount() int {
	sum := 0
	for _, n := range e.Watches() {
		sum += n
	}
	return sum
}

// Connections returns the number of open connections at all members.
func (e *Embedded) Connections() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, m := range e.members {
		n += len(m.conns)
	}
	return n
}

// Requests returns how many client requests were executed since the start or
// the last ResetRequests, by operation. Failed requests count. A multi counts
// once. Opening a connection counts as OpCreateSession. Pings do not count: see
// Pings.
func (e *Embedded) Requests() map[Op]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.requests)
}

// Pings returns the number of pings answered since the start or the last
// ResetRequests.
func (e *Embedded) Pings() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pings
}

// ResetRequests sets Requests and Pings to zero.
func (e *Embedded) ResetRequests() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.requests)
	e.pings = 0
}

func (e *Embedded) countLocked(op wire.Op) {
	if op == wire.OpPing {
		e.pings++
		return
	}
	e.requests[Op(op)]++
}

// Describe returns one line per member that says what the member is doing, for
// the message of a failing test.
func (e *Embedded) Describe() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var b strings.Builder
	for _, m := range e.members {
		b.WriteString(m.describeLocked())
		b.WriteByte('\n')
	}
	return b.String()
}
