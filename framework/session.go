package framework

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"
)

// Session is one session of a client, with operations that are made in it or
// not at all. It is a view, with the namespace of the client that it came from;
// several values may stand for one session: compare their IDs.
//
// Its operations are those of Client, tried again within the session; once it is
// over they fail with ErrSessionLost, or ErrClosed if the client was closed.
type Session struct {
	core   *session
	client *Client
	custom bool // the ids of protected creates are of version 8
}

func (s *Session) scope() scope {
	return scope{core: s.core.core, root: s.client.root, in: s.core}
}

// CustomIDs returns a view of the session in which CreateProtected protects names by
// UUIDs of version 8, "custom", instead of version 4, "random". Both are as random
// as the other, and other clients accept both. A list of the directory tells which of
// the two a znode has.
func (s *Session) CustomIDs() *Session {
	return &Session{core: s.core, client: s.client, custom: true}
}

// ID is the session's id.
func (s *Session) ID() int64 { return s.core.sessionID() }

// Timeout is the session time-out as negotiated with the ensemble.
func (s *Session) Timeout() time.Duration {
	s.core.mu.Lock()
	defer s.core.mu.Unlock()
	return s.core.timeout
}

// Done is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.core.over }

// Err is nil until the session is over; then it wraps ErrSessionLost, or is
// ErrClosed.
func (s *Session) Err() error { return s.core.Err() }

// Deadline is the instant before which the ensemble cannot have expired the
// session, as far as is proven. It moves on while heartbeats are answered. Once
// the session is over it is not after the instant at which that became known.
func (s *Session) Deadline() time.Time {
	s.core.mu.Lock()
	defer s.core.mu.Unlock()
	deadline := s.core.proven.Add(s.core.timeout)
	if s.core.err != nil && s.core.endedAt.Before(deadline) {
		return s.core.endedAt
	}
	return deadline
}

// Proven reports whether what is held in the session may be assumed held: it is
// not over, and its deadline is further away than the stop margin, by the wall
// clock and by the monotonic one.
func (s *Session) Proven() bool { return s.core.doubt() == nil }

// Connected reports whether the session has a connection, as far as is known.
func (s *Session) Connected() bool {
	s.core.mu.Lock()
	defer s.core.mu.Unlock()
	return s.core.up
}

// Prove returns nil once the session is Proven, making round trips to the leader
// until it is, an error when ctx ends or the session does.
func (s *Session) Prove(ctx context.Context) error {
	for {
		if s.Proven() {
			return nil
		}
		if err := s.Sync(ctx, "/"); err != nil {
			return err
		}
		if s.Proven() {
			return nil
		}
		// The round trip has shown that the leader is there; now earlier contact
		// must grow old enough to be proven by the next.
		timer := time.NewTimer(s.Timeout() / 6)
		select {
		case <-timer.C:
		case <-s.Done():
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// Keep makes the heartbeat quick enough for a lease, until release is called:
// for those who wait in line.
func (s *Session) Keep() (release func()) { return s.core.keep() }

// Hold registers lost to be called when what is held in the session may no
// longer be assumed held: at the stop margin before the deadline, when the
// session is over, when the client closes, or at a disconnect under
// ErrorPolicyConnection. It is called at most once, must not block, and is not called
// after release has returned, unless it was under way. The session is kept (see
// Keep) until then. If it is so already, Hold fails with the reason.
func (s *Session) Hold(lost func(error)) (release func(), err error) { return s.core.hold(lost) }

// Create is Client.Create in this session.
func (s *Session) Create(ctx context.Context, path string, data []byte, flags int32, acl ...zk.ACL) (string, error) {
	return s.scope().create(ctx, path, data, flags, acl)
}

// Get is Client.Get in this session.
func (s *Session) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	return s.scope().get(ctx, path)
}

// Set is Client.Set in this session.
func (s *Session) Set(ctx context.Context, path string, data []byte, version int32) (*zk.Stat, error) {
	return s.scope().set(ctx, path, data, version)
}

// Delete is Client.Delete in this session.
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	return s.scope().delete(ctx, path, version)
}

// DeleteCreated is Client.DeleteCreated in this session.
func (s *Session) DeleteCreated(ctx context.Context, path string, czxid int64) error {
	return s.scope().deleteCreated(ctx, path, czxid)
}

// Exists is Client.Exists in this session.
func (s *Session) Exists(ctx context.Context, path string) (bool, *zk.Stat, error) {
	return s.scope().exists(ctx, path)
}

// Children is Client.Children in this session.
func (s *Session) Children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	return s.scope().children(ctx, path)
}

// Sync is Client.Sync in this session.
func (s *Session) Sync(ctx context.Context, path string) error { return s.scope().sync(ctx, path) }

// Multi is Client.Multi in this session: a create without an ACL gets the client's.
func (s *Session) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return s.scope().multi(ctx, ops)
}

// MakeContainerPath is Client.MakeContainerPath in this session.
func (s *Session) MakeContainerPath(ctx context.Context, path string) error {
	return s.scope().makePath(ctx, path, s.core.core.createContainer)
}

// MakePersistentPath is Client.MakePersistentPath in this session.
func (s *Session) MakePersistentPath(ctx context.Context, path string) error {
	return s.scope().makePath(ctx, path, createPersistent)
}

// Discard removes the znode at path in the background. It returns at once, with a
// channel that is closed when the znode is gone or the session is over, whichever
// is first. The channel may be ignored: it costs no goroutine of its own.
//
// The removal is tried again until the session is over, which removes an ephemeral
// znode by itself. An error that no retry is expected to mend, such as zk.ErrNoAuth
// or zk.ErrNotEmpty, is logged once and retried about every minute. Calls for one
// path share one removal while it is under way. In a session that is over Discard
// does nothing, and the channel is closed already.
func (s *Session) Discard(path string) (done <-chan struct{}) {
	return s.core.discard(s.client.root.fix(path))
}
