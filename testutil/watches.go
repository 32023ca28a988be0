package testutil

import (
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// watchKind says how long a watch lasts and what it covers.
type watchKind int

const (
	oneShot    watchKind = iota // ends with its first event
	persistent                  // stays
	recursive                   // stays, and covers everything below, except for lists of children
)

// watchTable is one of a member's two tables of watches. A connection has at
// most one watch per path in a table, of the kind that it has set last. So a
// one-shot watch replaces a persistent one, as on the real server
// (ZOOKEEPER-4466). Connections are ordered by when they set their watch.
type watchTable struct {
	byPath    map[string][]*conn
	byConn    map[*conn]map[string]watchKind
	lasting   int // number of watches that are not one-shot
	recursive int
}

func newWatchTable() *watchTable {
	return &watchTable{byPath: map[string][]*conn{}, byConn: map[*conn]map[string]watchKind{}}
}

func (w *watchTable) add(path string, c *conn, kind watchKind) {
	paths := w.byConn[c]
	if paths == nil {
		paths = map[string]watchKind{}
		w.byConn[c] = paths
	}
	if was, ok := paths[path]; ok {
		w.count(was, -1)
	} else {
		w.byPath[path] = append(w.byPath[path], c)
	}
	paths[path] = kind
	w.count(kind, 1)
}

func (w *watchTable) count(kind watchKind, n int) {
	if kind != oneShot {
		w.lasting += n
	}
	if kind == recursive {
		w.recursive += n
	}
}

// fired is a watch that an event has fired.
type fired struct {
	c    *conn
	path string // of the watch
}

func isOf(c *conn) func(fired) bool { return func(f fired) bool { return f.c == c } }

// trigger returns the watches that an event fires, one at most for each
// connection, and removes those of one event.
func (w *watchTable) trigger(event wire.EventType, path string) (told []fired) {
	if w.lasting == 0 {
		for _, c := range w.take(path) {
			told = append(told, fired{c, path})
		}
		return told
	}
	var left []*conn
	for _, c := range w.byPath[path] {
		kind := w.byConn[c][path]
		if kind != recursive || event != wire.EventChildrenChanged {
			told = append(told, fired{c, path})
		}
		if kind == oneShot {
			w.forget(path, c)
		} else {
			left = append(left, c)
		}
	}
	w.leave(path, left)
	if w.recursive == 0 || event == wire.EventChildrenChanged {
		return told
	}
	for path != "/" {
		path, _ = parentOf(path)
		for _, c := range w.byPath[path] {
			if w.byConn[c][path] == recursive && !slices.ContainsFunc(told, isOf(c)) {
				told = append(told, fired{c, path})
			}
		}
	}
	return told
}

// take removes and returns all watches of a path. All of them are one-shot.
func (w *watchTable) take(path string) []*conn {
	conns := w.byPath[path]
	delete(w.byPath, path)
	for _, c := range conns {
		w.forget(path, c)
	}
	return conns
}

// remove removes the watch of a connection on a path, and reports whether there
// was one.
func (w *watchTable) remove(path string, c *conn) bool {
	kind, ok := w.byConn[c][path]
	if !ok {
		return false
	}
	w.count(kind, -1)
	w.forget(path, c)
	w.leave(path, slices.DeleteFunc(w.byPath[path], func(o *conn) bool { return o == c }))
	return true
}

// drop removes all watches of a connection.
func (w *watchTable) drop(c *conn) {
	for path := range w.byConn[c] {
		w.remove(path, c)
	}
}

func (w *watchTable) forget(path string, c *conn) {
	delete(w.byConn[c], path)
	if len(w.byConn[c]) == 0 {
		delete(w.byConn, c)
	}
}

func (w *watchTable) leave(path string, conns []*conn) {
	if len(conns) == 0 {
		delete(w.byPath, path)
	} else {
		w.byPath[path] = conns
	}
}

// fireLocked sends the events of one change to the connections that watch the
// znode and may read it by acl. A connection that watches both the data and the
// children of a deleted znode receives one event.
func (m *member) fireLocked(op *txnOp, acl []wire.ACL) {
	parent, _ := parentOf(op.path)
	switch op.kind {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		m.notify(m.dataWatches.trigger(wire.EventCreated, op.path), wire.EventCreated, op.path, acl)
	case wire.OpDelete:
		told := m.dataWatches.trigger(wire.EventDeleted, op.path)
		m.notify(told, wire.EventDeleted, op.path, acl)
		more := m.childWatches.trigger(wire.EventDeleted, op.path)
		more = slices.DeleteFunc(more, func(f fired) bool { return slices.ContainsFunc(told, isOf(f.c)) })
		m.notify(more, wire.EventDeleted, op.path, acl)
	case wire.OpSetData, wire.OpReconfig:
		m.notify(m.dataWatches.trigger(wire.EventDataChanged, op.path), wire.EventDataChanged, op.path, acl)
		return
	default:
		return
	}
	above := m.tree.nodes[parent].acl
	m.notify(m.childWatches.trigger(wire.EventChildrenChanged, parent), wire.EventChildrenChanged, parent, above)
}

// notify sends an event to the connections that may read the znode. The
// one-shot watches of the others are used up all the same.
func (m *member) notify(watches []fired, event wire.EventType, path string, acl []wire.ACL) {
	for _, f := range watches {
		if m.e.cfg.watchPaths {
			path = f.path
		}
		if permitted(acl, wire.PermRead, f.c.auth) {
			f.c.notify(event, path)
		}
	}
}

func (c *conn) notify(event wire.EventType, path string) {
	c.send(wire.AppendFrame(nil,
		&wire.ReplyHeader{Xid: wire.XidNotification, Zxid: -1},
		&wire.WatcherEvent{Type: event, State: wire.StateConnected, Path: path}))
}
