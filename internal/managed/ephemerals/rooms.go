package ephemerals

// This file has room for ephemeral znodes to come: what keeps something held
// must not fail because the session is full.

// Room is bytes that are reserved for creates to come, so that these are not
// refused. The mutex of its account guards it.
type Room struct {
	left int
	over bool // it is not reserved any longer
	one  bool // all creates in it are of one path, so that they make one znode
}

// isReserved reports whether there is a room, and it is reserved.
func (r *Room) isReserved() bool { return r != nil && !r.over }

// draw returns how many of size bytes a create takes up in the room, which may
// be nil, and how many it counts for in all.
func (r *Room) draw(size int) (counts, drawn int) {
	if !r.isReserved() {
		return size, 0
	}
	drawn = min(size, r.left)
	if r.one { // what has taken it up is the same znode
		return drawn, drawn
	}
	return size, drawn
}

// Allowance is what a view of a session says of the ephemeral znodes that are
// created in it.
type Allowance struct {
	room    *Room // where they take up room; nil: in none
	reserve int   // how many bytes are reserved with each
}

// Reserving returns an allowance in which room for n more is reserved with each
// znode, protected and sequential ones that have the full path without both.
func (a Allowance) Reserving(full string, n int) Allowance {
	a.reserve = n * protectedSize(full)
	return a
}

// InRoom returns an allowance in which znodes take up room in r.
func (a Allowance) InRoom(r *Room) Allowance {
	a.room = r
	return a
}
