package framework

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file reserves room for ephemeral znodes to come: what keeps something
// held must not fail because the session is full.

// room is bytes that are reserved for creates to come, so that these are not
// refused.
type room struct {
	left int
	over bool // it is not reserved any longer
	one  bool // all creates in it are of one path, so that they make one znode
}

// allowance is what a view of a session says of the ephemeral znodes that are
// created in it.
type allowance struct {
	room    *room // where they take up room; nil: in none
	reserve int   // how many bytes are reserved with each
}

// keep reserves room for one ephemeral znode in this session and in all later
// ones, until drop is called. path is its path if one is true.
func (e *ephemerals) keep(ctx context.Context, path string, size int, one bool) (r *room, drop func(), err error) {
	r = &room{left: size, one: one}
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

func (e *ephemerals) dropLocked(r *room) {
	r.over = true
	e.sum -= r.left
}

// roomOf returns what is reserved with a znode, nil if nothing is.
func (e *ephemerals) roomOf(full string) *room {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.made[full].with
}

// returnLocked puts bytes back into a room, unless it is over or nil.
func (e *ephemerals) returnLocked(r *room, size int) {
	if r == nil || r.over {
		e.sum -= size
	} else {
		r.left += size
	}
}

// moveInLocked lets the znodes take up a room that were made beside it while
// creates of unknown outcome took it up: they do not count twice.
func (e *ephemerals) moveInLocked(r *room) {
	for path, m := range e.made {
		if m.beside == r && !r.over && r.left >= m.size {
			r.left -= m.size
			e.sum -= m.size
			m.in, m.beside = r, nil
			e.made[path] = m
		}
	}
}

// Reserving, InRoomOf and KeepRoom of package recipes/internal/privileged.

func (s *Session) reserving(dir, name string, n int) *Session {
	view := *s
	view.reserve = n * (request.TextSize(layout.Join(dir, name)) + layout.ProtectionSize + longestSuffix)
	return &view
}

func (s *Session) inRoom(r *room) *Session {
	view := *s
	view.room = r
	return &view
}

func (s *Session) keepRoom(path string, sequential bool) (in func(*Session) *Session, drop func(), err error) {
	fail := func(err error) (func(*Session) *Session, func(), error) {
		return nil, nil, &zkerr.Op{Op: request.NameCreate, Path: path, Err: err}
	}
	if err := s.Err(); err != nil {
		return fail(err)
	}
	full := s.root.Fix(path)
	size := request.TextSize(full)
	if sequential {
		size += layout.ProtectionSize + longestSuffix
	}
	r, drop, err := s.session().core.ephemerals.keep(context.Background(), full, size, !sequential)
	if err != nil {
		return fail(err)
	}
	return func(s *Session) *Session { return s.inRoom(r) }, drop, nil
}
