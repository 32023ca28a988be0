package testutil

import (
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// watchTable is one of a member's two tables of one-shot watches. Connections stand in the order in which they came.
type watchTable struct {
	byPath map[string][]*conn
	byConn map[*conn]map[string]struct{}
}

func newWatchTable() *watchTable {
	return &watchTable{byPath: map[string][]*conn{}, byConn: map[*conn]map[string]struct{}{}}
}

func (w *watchTable) add(path string, c *conn) {
	paths := w.byConn[c]
	if paths == nil {
		paths = map[string]struct{}{}
		w.byConn[c] = paths
	}
	if _, ok := paths[path]; ok {
		return
	}
	paths[path] = struct{}{}
	w.byPath[path] = append(w.byPath[path], c)
}

// take removes and returns those who watch the path.
func (w *watchTable) take(path string) []*conn {
	conns := w.byPath[path]
	delete(w.byPath, path)
	for _, c := range conns {
		delete(w.byConn[c], path)
		if len(w.byConn[c]) == 0 {
			delete(w.byConn, c)
		}
	}
	return conns
}

func (w *watchTable) drop(c *conn) {
	for path := range w.byConn[c] {
		left := slices.DeleteFunc(w.byPath[path], func(o *conn) bool { return o == c })
		if len(left) == 0 {
			delete(w.byPath, path)
		} else {
			w.byPath[path] = left
		}
	}
	delete(w.byConn, c)
}

// fireLocked sends the events of one change to those who watch. A connection that watches both the data and the children of a
// deleted znode hears of it once.
func (m *member) fireLocked(op *txnOp) {
	parent, _ := parentOf(op.path)
	switch op.kind {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer:
		notify(m.dataWatches.take(op.path), wire.EventCreated, op.path)
		notify(m.childWatches.take(parent), wire.EventChildrenChanged, parent)
	case wire.OpDelete:
		told := m.dataWatches.take(op.path)
		notify(told, wire.EventDeleted, op.path)
		more := m.childWatches.take(op.path)
		more = slices.DeleteFunc(more, func(c *conn) bool { return slices.Contains(told, c) })
		notify(more, wire.EventDeleted, op.path)
		notify(m.childWatches.take(parent), wire.EventChildrenChanged, parent)
	case wire.OpSetData:
		notify(m.dataWatches.take(op.path), wire.EventDataChanged, op.path)
	}
}

func notify(conns []*conn, event wire.EventType, path string) {
	for _, c := range conns {
		c.notify(event, path)
	}
}

func (c *conn) notify(event wire.EventType, path string) {
	c.send(wire.AppendFrame(nil,
		&wire.ReplyHeader{Xid: wire.XidNotification, Zxid: -1},
		&wire.WatcherEvent{Type: event, State: wire.StateConnected, Path: path}))
}

// setWatchesLocked sets the watches of a client that has come back; what it missed fires now, ahead of the reply.
func (m *member) setWatchesLocked(c *conn, r *wire.SetWatchesRequest) {
	for _, path := range r.Data {
		switch n := m.tree.get(path); {
		case n == nil:
			c.notify(wire.EventDeleted, path)
		case n.stat.Mzxid > r.RelativeZxid:
			c.notify(wire.EventDataChanged, path)
		default:
			m.dataWatches.add(path, c)
		}
	}
	for _, path := range r.Exist {
		if m.tree.get(path) != nil {
			c.notify(wire.EventCreated, path)
		} else {
			m.dataWatches.add(path, c)
		}
	}
	for _, path := range r.Child {
		switch n := m.tree.get(path); {
		case n == nil:
			c.notify(wire.EventDeleted, path)
		case n.stat.Pzxid > r.RelativeZxid:
			c.notify(wire.EventChildrenChanged, path)
		default:
			m.childWatches.add(path, c)
		}
	}
}
