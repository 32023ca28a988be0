package testutil

import (
	"slices"
	"strings"
	"time"
)

// Snapshot is a copy of an ensemble's data, with its sessions: what a backup
// has. Embedded.Snapshot returns one.
type Snapshot struct {
	tree  *tree
	epoch int64
}

// Snapshot returns a copy of the present data, for Restore.
func (e *Embedded) Snapshot() *Snapshot {
	e.mu.Lock()
	defer e.mu.Unlock()
	return &Snapshot{e.stateLocked().tree.clone(), e.epoch}
}

// Restore replaces the ensemble behind its addresses by another one: with the
// data and the sessions of an earlier Snapshot, as after a restore from a
// backup, or with nothing if it is nil, as after a rebuild. All connections
// break. Members that run elect a leader: with several members its epoch is the
// one after that of the snapshot. So if no other leader was elected since, all
// later transactions have greater ids than all earlier ones, and clients whose
// sessions are in the snapshot do not notice anything. Restore ends Pause.
func (e *Embedded) Restore(s *Snapshot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s == nil {
		s = &Snapshot{tree: newTree()}
		if e.config != nil { // nil: the zero Embedded
			e.config = e.config.with(func(c *configuration) { c.version = 0 })
		}
	}
	e.epoch, e.log, e.logged, e.dropped = s.epoch, nil, 0, 0
	for _, m := range e.members {
		m.lookLocked("it is replaced")
		m.tree, m.acknowledged, m.applied = s.tree.clone(), 0, 0
		if m.up {
			m.bootLocked()
		}
	}
	if e.standalone() {
		e.electLocked()
	}
	e.deliverLocked()
}

// provisioned is Provisioned of package internal/test/hidden.
func (s *Snapshot) provisioned(by int64) *Snapshot {
	now := time.Now().UnixMilli()
	t := s.tree.clone()
	for id := range t.sessions {
		for _, path := range t.ephemeralsOf(id) {
			t.remove(path, 0)
		}
	}
	clear(t.sessions)
	t.zxid += by
	for path, n := range t.nodes {
		if path == "/" || strings.HasPrefix(path, "/zookeeper") {
			continue
		}
		if len(n.data) > 0 {
			n.data = append(slices.Clone(n.data), '!')
		}
		n.stat.Czxid, n.stat.Mzxid, n.stat.Pzxid = n.stat.Czxid+by, n.stat.Mzxid+by, n.stat.Pzxid+by
		n.stat.Ctime, n.stat.Mtime = now, now
	}
	return &Snapshot{t, s.epoch - 1}
}
