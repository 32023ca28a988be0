package testutil

import "github.com/zkrecipes/zkrecipes/internal/wire"

// watchLocked does what is asked about watches themselves.
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
		switch body.Mode {
		case wire.WatchPersistent:
			m.addWatchLocked(c, body.Path, persistent)
		case wire.WatchPersistentRecursive:
			m.addWatchLocked(c, body.Path, recursive)
		default:
			return nil, wire.MarshallingError
		}
		return &wire.CountResponse{}, wire.OK // Java's caches count on these four bytes
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

// watchesLocked is checkWatches and removeWatches. The removal makes no event: the types that there are for it are told by a
// client's library to its caller. The check does not ask whose watch it is, as if the server had forgotten to.
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

// setWatchesLocked sets the watches of a client that has come back; what it missed fires now, ahead of the reply.
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
