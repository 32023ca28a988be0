package ops

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// This file reserves room for ephemeral znodes to come: what keeps something
// held must not fail because the session is full.

// Room is bytes that are reserved for creates to come, so that these are not
// refused.
type Room struct {
	left int
	over bool // it is not reserved any longer
	one  bool // all creates in it are of one path, so that they make one znode
}

// Allowance is what a view of a session says of the ephemeral znodes that are
// created in it.
type Allowance struct {
	room    *Room // where they take up room; nil: in none
	reserve int   // how many bytes are reserved with each
}

// keep reserves room for one ephemeral znode in this session and in all later
// ones, until drop is called. path is its path if one is true.
func (e *ephemerals) keep(ctx context.Context, path string, size int, one bool) (r *Room, drop func(), err error) {
	r = &Room{left: size, one: one}
	err = e.admit(ctx, size, nil, func(limit int) bool {
		if e.sum+size > limit {
			return false
		}
		e.sum += size
		e.kept[path] = r
		return true
	})
	return r, func() {
		e.mu.Lock()
		defer e.unlock()
		e.dropLocked(r)
		if e.kept[path] == r {
			delete(e.kept, path)
		}
	}, err
}

func (e *ephemerals) dropLocked(r *Room) {
	r.over = true
	e.sum -= r.left
}

// roomOf returns what is reserved with a znode, nil if nothing is.
func (e *ephemerals) roomOf(full string) *Room {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.made[full].with
}

// returnLocked puts bytes back into a room, unless it is over or nil.
func (e *ephemerals) returnLocked(r *Room, size int) {
	if r == nil || r.over {
		e.sum -= size
	} else {
		r.left += size
	}
}

// moveInLocked lets the znodes take up a room that were made beside it while
// creates of unknown outcome took it up: they do not count twice.
func (e *ephemerals) moveInLocked(r *Room) {
	for path, m := range e.made {
		if m.beside == r && !r.over && r.left >= m.size {
			r.left -= m.size
			e.sum -= m.size
			m.in, m.beside = r, nil
			e.made[path] = m
		}
	}
}

// KeepRoom reserves room for one ephemeral znode at a path, in this session and
// in all later ones of the client, until drop is called. A sequential one is
// protected as well.
func (s *Session) KeepRoom(ctx context.Context, full string, sequential bool) (r *Room, drop func(), err error) {
	size := request.TextSize(full)
	if sequential {
		size += layout.ProtectionSize + longestSuffix
	}
	return s.Client.ephemerals.keep(ctx, full, size, !sequential)
}

// RoomOf returns what is reserved with the znode at a path, nil if nothing is.
func (s *Session) RoomOf(full string) *Room { return s.Client.ephemerals.roomOf(full) }

// Reserving returns an allowance in which room for n more is reserved with each
// znode, protected and sequential ones named name in the full path dir.
func (a Allowance) Reserving(dir, name string, n int) Allowance {
	a.reserve = n * (request.TextSize(layout.Join(dir, name)) + layout.ProtectionSize + longestSuffix)
	return a
}

// InRoom returns an allowance in which znodes take up room in r.
func (a Allowance) InRoom(r *Room) Allowance {
	a.room = r
	return a
}

// IsSessionFull reports whether err is zkerr.TooLarge for want of room in the
// session: the request itself was not too large.
func IsSessionFull(err error) bool { return errors.Is(err, errSessionFull) }
