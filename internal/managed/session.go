package managed

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/compound"
	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// Session is a view of one session of a client. It is what the Session of
// framework is. The zero Session behaves as one of a closed client.
type Session struct {
	live      *session // nil in a zero Session: see session
	root      request.Prefix
	unhurried bool // protected creates wait for their answers, or the end of the session
	atOnce    bool // nothing waits for a connection, or is tried again
	endless   bool // what has no answer is tried again for as long as the session lives
	allowance ephemerals.Allowance
}

// session returns the session that s is a view of.
func (s *Session) session() *session {
	if s.live == nil {
		return neverOpened
	}
	return s.live
}

func (s *Session) scope() ops.Scope {
	w := ops.Scope{Client: s.session().Client, Root: s.root, In: s.session().Session, Allowance: s.allowance}
	switch {
	case s.atOnce:
		w.Budget = &backoff.StopBackOff{}
	case s.endless:
		w.Budget, w.Patient = ops.Endless(), true
	}
	return w
}

// ID is framework.Session.ID.
func (s *Session) ID() int64 { return s.session().Chain().ID() }

// Timeout is framework.Session.Timeout.
func (s *Session) Timeout() time.Duration {
	return s.session().Timeout()
}

// Done is framework.Session.Done.
func (s *Session) Done() <-chan struct{} { return s.session().Over() }

// Err is framework.Session.Err.
func (s *Session) Err() error { return s.session().Err() }

// Connected is framework.Session.Connected.
func (s *Session) Connected() bool {
	return s.session().IsUp()
}

// Deadline is framework.Session.Deadline.
func (s *Session) Deadline() time.Time { return s.session().Deadline() }

// Proven is framework.Session.Proven.
func (s *Session) Proven() bool { return s.session().WhyUnproven() == nil }

// Prove is framework.Session.Prove.
func (s *Session) Prove(ctx context.Context) error {
	live := s.session()
	return live.Prove(ctx, live.roundTrip, func() error { return nil })
}

// Claim is framework.Session.Claim.
func (s *Session) Claim(ctx context.Context, lost func(error)) (release func(), err error) {
	live := s.session()
	err = live.Prove(ctx, live.roundTrip, func() error {
		release, err = s.Hold(lost)
		return err
	})
	return release, err
}

// Keep is framework.Session.Keep.
func (s *Session) Keep() (release func()) { return s.session().Keep() }

// Hold is framework.Session.Hold.
func (s *Session) Hold(lost func(error)) (release func(), err error) {
	if lost == nil {
		lost = func(error) {}
	}
	return s.session().Hold(lost)
}

// Create is Client.Create in this session.
func (s *Session) Create(ctx context.Context, path string, data []byte, flags int32, acl ...zk.ACL) (string, error) {
	return s.scope().Create(ctx, path, data, flags, acl)
}

// Get is Client.Get in this session.
func (s *Session) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	return s.scope().Get(ctx, path)
}

// Set is Client.Set in this session.
func (s *Session) Set(ctx context.Context, path string, data []byte, version int32) (*zk.Stat, error) {
	return s.scope().Set(ctx, path, data, version)
}

// Delete is Client.Delete in this session.
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	return s.scope().Delete(ctx, path, version)
}

// DeleteCreated is Client.DeleteCreated in this session.
func (s *Session) DeleteCreated(ctx context.Context, path string, created *zk.Stat) error {
	return compound.DeleteCreated(ctx, s.scope(), path, created)
}

// Exists is Client.Exists in this session.
func (s *Session) Exists(ctx context.Context, path string) (bool, *zk.Stat, error) {
	return s.scope().Exists(ctx, path)
}

// Children is Client.Children in this session.
func (s *Session) Children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	return s.scope().Children(ctx, path)
}

// Sync is Client.Sync in this session.
func (s *Session) Sync(ctx context.Context, path string) error { return s.scope().Sync(ctx, path) }

// Multi is Client.Multi in this session.
func (s *Session) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return s.scope().Multi(ctx, ops)
}

// MakeContainerPath is Client.MakeContainerPath in this session.
func (s *Session) MakeContainerPath(ctx context.Context, path string) error {
	return s.scope().MakeContainerPath(ctx, path)
}

// MakePersistentPath is Client.MakePersistentPath in this session.
func (s *Session) MakePersistentPath(ctx context.Context, path string) error {
	return s.scope().MakePersistentPath(ctx, path)
}

// MakeDirectory is Client.MakeDirectory in this session.
func (s *Session) MakeDirectory(ctx context.Context, dir string) error {
	return s.scope().MakeDirectory(ctx, dir)
}

// ReadAll is framework.Session.ReadAll with the place of each answer. Order is
// never 0, counts over all connections of the session, and is the same for the
// reads of one request.
func (s *Session) ReadAll(ctx context.Context, reads ...request.Read) ([]request.Result, error) {
	return s.scope().ReadAll(ctx, reads)
}

// StatAll is ReadAll of gets, but its results have no data: only the
// stat, also of a znode that the session may not read. Every read is a
// request, with about 150 bytes for an answer; 64 are under way at a time.
func (s *Session) StatAll(ctx context.Context, reads ...request.Read) ([]request.Result, error) {
	return s.scope().StatAll(ctx, reads)
}

// LastAnswer is framework.Session.LastAnswer.
func (s *Session) LastAnswer() time.Time {
	return s.session().Chain().LastAnswer()
}

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
	view.allowance = s.allowance.Reserving(layout.Join(dir, name), n)
	return &view
}

// InRoomOf returns a view of the session in which creates of ephemeral znodes
// use the room that was reserved with the znode at the full path. They are not
// refused for want of room while there is enough of it.
func (s *Session) InRoomOf(full string) *Session {
	return s.inRoom(s.session().Client.Ephemerals.RoomOf(full))
}

func (s *Session) inRoom(r *ephemerals.Room) *Session {
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
func SessionFull(err error) bool { return ephemerals.IsFull(err) }
