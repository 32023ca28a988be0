package managed

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file has the views of a session that recipes work in, and what one view
// of a client says of another.

// View returns s, a session of the same client, in the view of c.
func (c *Client) View(s *Session) *Session { return &Session{live: s.live, root: c.root} }

// Whole returns a view of the session without chroot and namespace.
func (s *Session) Whole() *Session { return &Session{live: s.live} }

// Unhurried returns a view of the session in which a CreateProtected or
// CreateAllProtected that was sent does not return before its answer, and that
// to the list behind it, or the end of the session, although its context ends.
// If it has succeeded then, it returns the znodes. That saves a goroutine, and
// suits a caller that nobody waits for.
func (s *Session) Unhurried() *Session {
	return &Session{live: s.live, root: s.root, unhurried: true, allowance: s.allowance}
}

// AtOnce returns a view of the session whose operations are sent on the
// present connection, once, or fail: none waits for a connection. So not much
// time passes between a read and the write that relies on it.
func (s *Session) AtOnce() *Session {
	return &Session{live: s.live, root: s.root, atOnce: true, allowance: s.allowance}
}

// Endless returns a view of the session whose operations wait for a
// connection, and are tried again after it was lost or the server was busy,
// until there is an answer, the session is over or ctx ends, whatever the
// retry policy says.
func (s *Session) Endless() *Session {
	return &Session{live: s.live, root: s.root, endless: true, allowance: s.allowance}
}

// Shown returns the error of an operation in any view of the client as the
// same operation in the view of c would have failed, and any other error as it
// is.
func (c *Client) Shown(err error) error {
	var e *zkerr.Op
	if !errors.As(err, &e) || e.Root == string(c.root) {
		return err
	}
	shown := *e
	shown.Path, shown.Root = c.root.Unfix(request.Prefix(e.Root).Fix(e.Path)), string(c.root)
	return &shown
}

// Reserving returns a view of the session in which the create of an ephemeral
// znode also reserves room for n more, protected and sequential ones named
// name in the full path dir: see framework.WithMaxEphemerals. That ends with
// the znode.
func (s *Session) Reserving(dir, name string, n int) *Session {
	view := *s
	view.allowance = s.allowance.Reserving(dir, name, n)
	return &view
}

// InRoomOf returns a view of the session in which creates of ephemeral znodes
// use the room that was reserved with the znode at the full path. They are not
// refused for want of room while there is enough of it.
func (s *Session) InRoomOf(full string) *Session {
	return s.inRoom(s.session().RoomOf(full))
}

func (s *Session) inRoom(r *ops.Room) *Session {
	view := *s
	view.allowance = s.allowance.InRoom(r)
	return &view
}

// KeepRoom reserves room for one ephemeral znode, in the session and in all
// later ones of the client, until drop is called. A sequential one is
// protected as well. in returns a view of a session in which creates use it.
// It fails with framework.ErrTooLarge.
func (s *Session) KeepRoom(path string, sequential bool) (in func(*Session) *Session, drop func(), err error) {
	fail := func(err error) (func(*Session) *Session, func(), error) {
		return nil, nil, &zkerr.Op{Op: request.NameCreate, Path: path, Err: err}
	}
	if err := s.Err(); err != nil {
		return fail(err)
	}
	r, drop, err := s.session().KeepRoom(context.Background(), s.root.Fix(path), sequential)
	if err != nil {
		return fail(err)
	}
	return func(s *Session) *Session { return s.inRoom(r) }, drop, nil
}

// SessionFull reports whether err is framework.ErrTooLarge for want of room
// in the session: the request itself was not too large.
func SessionFull(err error) bool { return ops.IsSessionFull(err) }
