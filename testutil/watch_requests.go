package testutil

import "github.com/zkrecipes/zkrecipes/internal/wire"

// watchLocked executes a request about watches.
func (c *conn) watchLocked(r *request) (wire.Appender, wire.Code) {
	m := c.m
	switch body := r.body.(type) {
	case *wire.SetWatchesRequest:
		m.setWatchesLocked(c, body)
	case *wire.SetWatches2Request:
		m.setWatchesLocked(c, &body.SetWatchesRequest)
		for _, path := range body.Persistent {
			m.addWatchLocked(c, path, persistent)
		}
		for _, path := range body.Recursive {
			m.addWatchLocked(c, path, recursive)
		}
	case *wire.AddWatchRequest:
		switch {
		case m.e.cfg.oneShotOnly:
			return nil, wire.MarshallingError
		case body.Mode == wire.WatchPersistent:
			m.addWatchLocked(c, body.Path, persistent)
		case body.Mode == wire.WatchPersistentRecursive:
			m.addWatchLocked(c, body.Path, recursive)
		default:
			return nil, wire.MarshallingError
		}
		return &wire.CountResponse{}, wire.OK // Java's caches rely on these four bytes
	case *wire.WatchesRequest:
		return nil, m.watchesLocked(c, r.op, body)
	}
	return nil, wire.OK
}

func (m *member) addWatchLocked(c *conn, path string, kind watchKind) {
	if c.closed {
		return
	}
	m.dataWatches.add(path, c, kind)
	m.childWatches.add(path, c, kind)
}

// watchesLocked executes checkWatches and removeWatches. A removal sends no
// event: the client library tells its caller. As on the real server,
// checkWatches also finds the watches of other clients.
func (m *member) watchesLocked(c *conn, op wire.Op, body *wire.WatchesRequest) wire.Code {
	var tables []*watchTable
	switch body.Type {
	case wire.WatcherChildren:
		tables = []*watchTable{m.childWatches}
	case wire.WatcherData:
		tables = []*watchTable{m.dataWatches}
	case wire.WatcherAny:
		tables = []*watchTable{m.childWatches, m.dataWatches}
	default:
		return wire.MarshallingError
	}
	found := false
	for _, w := range tables {
		if op == wire.OpCheckWatches {
			found = found || len(w.byPath[body.Path]) > 0
		} else if w.remove(body.Path, c) {
			found = true
		}
	}
	if !found {
		return wire.NoWatcher
	}
	return wire.OK
}

// setWatchesLocked sets the watches of a client that has reconnected. The
// events that it has missed are sent now, before the reply.
func (m *member) setWatchesLocked(c *conn, r *wire.SetWatchesRequest) {
	if c.closed {
		return
	}
	for _, path := range r.Data {
		switch n := m.tree.get(path); {
		case n == nil:
			c.notify(wire.EventDeleted, path)
		case n.stat.Mzxid > r.RelativeZxid:
			c.notify(wire.EventDataChanged, path)
		default:
			m.dataWatches.add(path, c, oneShot)
		}
	}
	for _, path := range r.Exist {
		if m.tree.get(path) != nil {
			c.notify(wire.EventCreated, path)
		} else {
			m.dataWatches.add(path, c, oneShot)
		}
	}
	for _, path := range r.Child {
		switch n := m.tree.get(path); {
		case n == nil:
			c.notify(wire.EventDeleted, path)
		case n.stat.Pzxid > r.RelativeZxid:
			c.notify(wire.EventChildrenChanged, path)
		default:
			m.childWatches.add(path, c, oneShot)
		}
	}
}
