package framework

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// Session is one ZooKeeper session of a client, with operations that are
// executed in that session or not at all. Its paths are in the namespace of the
// Client that returned it. Several values may stand for one session: compare
// their IDs.
//
// Its operations are those of Client. They are retried while the session lives.
// Once it is over they fail with ErrSessionLost, or with ErrClosed if the
// client was closed. The zero Session behaves as one of a closed client.
type Session struct {
	live      *session // nil in a zero Session: see session
	root      request.Prefix
	unhurried bool // protected creates wait for their answers, or the end of the session
	atOnce    bool // nothing waits for a connection, or is tried again
	endless   bool // what has no answer is tried again for as long as the session lives
	allowance
}

// session returns the session that s is a view of.
func (s *Session) session() *session {
	if s.live == nil {
		return neverOpened
	}
	return s.live
}

func (s *Session) scope() scope {
	w := scope{core: s.session().core, root: s.root, in: s.session(), allowance: s.allowance}
	switch {
	case s.atOnce:
		w.budget = &backoff.StopBackOff{}
	case s.endless:
		w.budget, w.patient = endless(), true
	}
	return w
}

// ID returns the session's id.
func (s *Session) ID() int64 { return s.session().sessionID() }

// Timeout returns the session timeout that the ensemble has granted: the
// shortest one, if its members have granted several. It never grows.
func (s *Session) Timeout() time.Duration {
	return s.session().granted()
}

// Done returns a channel that is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.session().over }

// Err returns nil until the session is over, and then the reason: an error that
// wraps ErrSessionLost, or ErrClosed.
func (s *Session) Err() error { return s.session().Err() }

// Connected reports whether the session has a connection, as far as is known.
func (s *Session) Connected() bool {
	live := s.session()
	live.mu.Lock()
	defer live.mu.Unlock()
	return live.up
}

// Deadline returns the instant before which the ensemble cannot have expired
// the session, as far as is proven. While something is held, each answered
// heartbeat moves it on. Otherwise it may have passed, although the session
// lives. Once the session is over the deadline is no later than the instant at
// which that was known.
func (s *Session) Deadline() time.Time {
	live := s.session()
	live.mu.Lock()
	defer live.mu.Unlock()
	deadline := live.evidence.Deadline()
	if live.err != nil && live.endedAt.Before(deadline) {
		return live.endedAt
	}
	return deadline
}

// Proven reports whether the session's ephemeral znodes may be assumed to
// exist: the session is not over, and its deadline is further away than the
// stop margin, by the wall clock and by the monotonic clock. It costs no
// request.
func (s *Session) Proven() bool { return s.session().whyUnproven() == nil }

// Prove returns nil when the session is Proven and a hold that begins now would
// last, as long as round trips to the leader take about as long as they do. It
// fails when ctx ends, the session is over, or no server answers until a budget
// of the client's retry policy is used up. After three session timeouts it
// fails with an error that wraps ErrUnproven and says what was too slow. The
// session may then go on.
//
// It costs nothing if the deadline is a third of the session timeout away, or
// more. That is normally so while something is held, and if the session has
// made requests to the leader within the last third of its timeout, such as
// creates and deletes. Otherwise it costs a round trip or two. If those prove
// too little, as shortly after an outage, in a slow network or with a large
// stop margin, the client sends heartbeats until they prove enough.
func (s *Session) Prove(ctx context.Context) error {
	return s.session().prove(ctx, func() error { return nil })
}

// Claim proves the session and holds it: Prove and Hold in one, within the time
// that Prove may take.
func (s *Session) Claim(ctx context.Context, lost func(error)) (release func(), err error) {
	err = s.session().prove(ctx, func() error {
		release, err = s.Hold(lost)
		return err
	})
	return release, err
}

// Keep makes the client send heartbeats until release is called, so that the
// session stays Proven: 10 to 12 syncs in a session timeout T while a round
// trip takes at most T/50, and up to 40 in slower ensembles, however much is
// kept or held. Hold does the same. Without Keep and Hold, an idle session
// sends only pings, which any member answers. A contender that waits in line
// needs neither: it calls Prove when it is first in line.
func (s *Session) Keep() (release func()) { return s.session().keep() }

// Hold registers lost, to be called when the session's ephemeral znodes may no
// longer be assumed to exist: a stop margin before the deadline, when the
// session is over, when the client closes, or, under ErrorPolicyConnection, at
// a disconnect. The argument says why.
//
// lost is called at most once, on a goroutine that must not be blocked. It is
// not called after release has returned, unless the call was already under way.
// Until release is called the client sends heartbeats: see Keep.
//
// If lost would have to be called at once, Hold fails with the reason instead.
// After an idle time that is ErrUnproven: call Prove first.
func (s *Session) Hold(lost func(error)) (release func(), err error) {
	if lost == nil {
		lost = func(error) {}
	}
	return s.session().hold(lost)
}

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
func (s *Session) DeleteCreated(ctx context.Context, path string, created *zk.Stat) error {
	return s.scope().deleteCreated(ctx, path, created)
}

// Discard deletes the znode at path in the background. It returns at once, with
// a channel that is closed when the znode is gone or the session is over. The
// caller may ignore the channel.
//
// The delete is retried until the session is over, which removes an ephemeral
// znode by itself. An error that a retry is not expected to help against, such
// as zk.ErrNoAuth or zk.ErrNotEmpty, is logged once and retried about every
// minute. Calls for one path share one removal while it is under way. In a
// session that is over Discard does nothing, and the channel is already closed.
func (s *Session) Discard(path string) (done <-chan struct{}) {
	return s.session().discard(s.root.Fix(path))
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

// Multi is Client.Multi in this session.
func (s *Session) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return s.scope().multi(ctx, ops)
}

// MakeContainerPath is Client.MakeContainerPath in this session.
func (s *Session) MakeContainerPath(ctx context.Context, path string) error {
	return s.scope().makePath(ctx, path, s.session().core.createContainer)
}

// MakePersistentPath is Client.MakePersistentPath in this session.
func (s *Session) MakePersistentPath(ctx context.Context, path string) error {
	return s.scope().makePath(ctx, path, createPersistent)
}
