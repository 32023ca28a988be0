package framework

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// Session is one ZooKeeper session of a client, with operations that are
// executed in that session or not at all. Its paths are in the namespace of the
// Client that returned it. Several values may be one session: compare IDs.
//
// Its operations are those of Client. They are retried while the session lives,
// and then fail with ErrSessionLost, or with ErrClosed if the client was
// closed. The zero Session behaves as one of a closed client.
type Session session

// session is what a Session is inside: see client.
type session = managed.Session

// in returns what s is inside.
func (s *Session) in() *managed.Session { return (*managed.Session)(s) }

// ID returns the session's id.
func (s *Session) ID() int64 { return s.in().ID() }

// Timeout returns the session timeout that the ensemble has granted: the
// shortest one, if its members have granted several. It never grows.
func (s *Session) Timeout() time.Duration { return s.in().Timeout() }

// Err returns nil until the session is over, and then the reason: an error that
// wraps ErrSessionLost, or ErrClosed.
func (s *Session) Err() error { return s.in().Err() }

// Connected reports whether the session has a connection, as far as is known.
func (s *Session) Connected() bool { return s.in().Connected() }

// Deadline returns the instant before which the ensemble cannot have expired
// the session, as far as is proven. While something is held, each answered
// heartbeat moves it on. Otherwise it may have passed, although the session
// lives. After the end of the session it is no later than when that was known.
func (s *Session) Deadline() time.Time { return s.in().Deadline() }

// Proven reports whether the session's ephemeral znodes may be assumed to
// exist: the session is not over, and its deadline is further away than the
// stop margin, by the wall clock and the monotonic clock. It costs no request.
func (s *Session) Proven() bool { return s.in().Proven() }

// Prove returns nil when the session is Proven and a hold that begins now would
// last, as long as round trips to the leader take about as long as they do. It
// fails when ctx ends, the session is over, or no server answers until a budget
// of the retry policy is used up. After three session timeouts it fails with an
// error that wraps ErrUnproven and says what was too slow; the session may go
// on.
//
// It costs nothing if the deadline is a third of the session timeout away, or
// more: normally while something is held, and if the session has made requests
// to the leader within the last third of its timeout, such as creates and
// deletes. Otherwise it costs a round trip or two. If those prove too little,
// as shortly after an outage, in a slow network or with a large stop margin,
// the client sends heartbeats until they prove enough.
func (s *Session) Prove(ctx context.Context) error { return s.in().Prove(ctx) }

// Claim is Prove and Hold in one, within the time that Prove may take.
func (s *Session) Claim(ctx context.Context, lost func(error)) (release func(), err error) {
	return s.in().Claim(ctx, lost)
}

// Keep makes the client send heartbeats until release is called, so that the
// session stays Proven, and Hold does the same: see Costs in the package
// comment. Without both, an idle session sends only pings, which prove nothing.
// A contender in line needs neither: it calls Prove when it is first.
func (s *Session) Keep() (release func()) { return s.in().Keep() }

// Hold registers lost, to be called when the session's ephemeral znodes may no
// longer be assumed to exist: a stop margin before the deadline, when the
// session is over, when the client closes, or, under ErrorPolicyConnection, at
// a disconnect. The argument says why. lost is called at most once, on a
// goroutine that must not be blocked, and not after release has returned,
// unless the call was already under way. Until release is called the client
// sends heartbeats.
//
// If lost would have to be called at once, Hold fails with the reason instead.
// After an idle time that is ErrUnproven: call Prove first.
func (s *Session) Hold(lost func(error)) (release func(), err error) { return s.in().Hold(lost) }

// Create is Client.Create in this session.
func (s *Session) Create(ctx context.Context, path string, data []byte, flags int32, acl ...zk.ACL) (string, error) {
	return s.in().Create(ctx, path, data, flags, acl...)
}

// Get is Client.Get in this session.
func (s *Session) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	return s.in().Get(ctx, path)
}

// Set is Client.Set in this session.
func (s *Session) Set(ctx context.Context, path string, data []byte, version int32) (*zk.Stat, error) {
	return s.in().Set(ctx, path, data, version)
}

// Delete is Client.Delete in this session.
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	return s.in().Delete(ctx, path, version)
}

// DeleteCreated is Client.DeleteCreated in this session.
func (s *Session) DeleteCreated(ctx context.Context, path string, created *zk.Stat) error {
	return s.in().DeleteCreated(ctx, path, created)
}

// Discard deletes the znode at path in the background. It returns at once, with
// a channel that is closed when the znode is gone or the session is over, and
// that the caller may ignore. Calls for one path share one removal. In a
// session that is over Discard does nothing.
//
// The delete is retried until the session is over, which removes an ephemeral
// znode by itself. An error against which a retry hardly helps, such as
// zk.ErrNoAuth or zk.ErrNotEmpty, is logged once, and retried about each
// minute.
func (s *Session) Discard(path string) (done <-chan struct{}) { return s.in().Discard(path) }

// Exists is Client.Exists in this session.
func (s *Session) Exists(ctx context.Context, path string) (bool, *zk.Stat, error) {
	return s.in().Exists(ctx, path)
}

// Children is Client.Children in this session.
func (s *Session) Children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	return s.in().Children(ctx, path)
}

// Sync is Client.Sync in this session.
func (s *Session) Sync(ctx context.Context, path string) error { return s.in().Sync(ctx, path) }

// Multi is Client.Multi in this session.
func (s *Session) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return s.in().Multi(ctx, ops...)
}

// MakeContainerPath is Client.MakeContainerPath in this session.
func (s *Session) MakeContainerPath(ctx context.Context, path string) error {
	return s.in().MakeContainerPath(ctx, path)
}

// MakePersistentPath is Client.MakePersistentPath in this session.
func (s *Session) MakePersistentPath(ctx context.Context, path string) error {
	return s.in().MakePersistentPath(ctx, path)
}

// Done returns a channel that is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.in().Done() }

// ReadAll is Client.ReadAll in this session.
func (s *Session) ReadAll(ctx context.Context, reads ...Read) ([]ReadResult, error) {
	return managed.ReadAll(ctx, s.in(), reads, resultOf)
}

// Created is the result of CreateProtected.
type Created struct {
	// Path is the path of the znode, in the session's namespace.
	Path string
	// Children are the names in the directory after the create, that of Path among
	// them, and Stat is the directory's stat, as of a time between the create and
	// the list. Both are nil when the list that was sent with the create did not
	// show the znode: list again.
	Children []string
	Stat     *zk.Stat
}

// ProtectedBatch is what CreateAllProtected creates: N znodes
// Dir/_c_<uuid>-Name, in one Multi with the operations Before and After them.
//
// The batch must be such that the ensemble cannot apply it twice. For example,
// Before checks a znode that After removes.
type ProtectedBatch struct {
	Before, After []any // operations, as of Multi
	Dir, Name     string
	N             int // how many znodes
	Data          []byte
	Flags         int32    // as of Create
	ACL           []zk.ACL // nil: the client's, as in creates of Before and After
}

// Watch returns a channel that is closed when the znode at path is changed or
// deleted, and also when the session reconnects or is over: so look again then.
//
// A missing znode is zk.ErrNoNode, and leaves no watch behind: see WatchExists.
// All callers in one session share one watch at the server. The first one costs
// a request, and another one if no caller has come for half a session timeout.
// If the channel is no longer needed, see Unwatch.
//
// The channel stays open if a server sends no event: see Client.WatchData,
// which looks by itself. So call Watch again after about a session timeout.
func (s *Session) Watch(ctx context.Context, path string) (<-chan struct{}, error) {
	return s.in().Watch(ctx, path)
}

// GetAndWatch is Watch, and also returns the znode's data and stat, which were
// current at most half a session timeout ago, and still are unless an event was
// lost. They are shared: the caller must not change them.
func (s *Session) GetAndWatch(ctx context.Context, path string) (data []byte, stat *zk.Stat, changed <-chan struct{}, err error) {
	return s.in().GetAndWatch(ctx, path)
}

// WatchChildren is Watch for the children of the znode at path: changed is
// closed when one is created or deleted, or the znode itself is deleted. It
// also returns the names of the children, in no order, with the limits that
// GetAndWatch has.
func (s *Session) WatchChildren(ctx context.Context, path string) (names []string, changed <-chan struct{}, err error) {
	return s.in().WatchChildren(ctx, path)
}

// WatchExists reports whether the znode at path exists, with its stat if it
// does. The channel is closed when the znode is created, changed or deleted,
// and also when the session reconnects or is over: so look again then. The
// session must be allowed to read the znode.
//
// It costs one request if the znode exists and two if not. If the session has
// that watch already it costs none, or one if no caller has come for half a
// session timeout. An event can be lost, as with Watch. The watch on a missing
// znode stays at the server until the znode is created, the connection ends, or
// all callers have called Unwatch. There is at most one for each path.
func (s *Session) WatchExists(ctx context.Context, path string) (exists bool, stat *zk.Stat, changed <-chan struct{}, err error) {
	return s.in().WatchExists(ctx, path)
}

// ChildrenAndWatch is WatchChildren, and also returns the stat of the znode at
// path, from the same answer and shared. Its Cversion counts the children that
// were created and deleted: it shows how much happened between two lists.
func (s *Session) ChildrenAndWatch(ctx context.Context, path string) (names []string, stat *zk.Stat, changed <-chan struct{}, err error) {
	return s.in().ChildrenAndWatch(ctx, path)
}

// LastAnswer returns when a server answered the session last, perhaps a ping:
// the client sends one after a third of the session timeout without requests.
// While the session is not Connected, what was read is as old as that.
func (s *Session) LastAnswer() time.Time { return s.in().LastAnswer() }

// CreateProtected creates dir/_c_<uuid>-name in protected mode, as Curator
// calls it: a lost answer neither creates the znode twice nor leaves it behind.
// It also lists dir. The list is sent right behind the create, and a session's
// requests are executed in order, so a list that shows the new znode was made
// after it was created. Both together cost one round trip. Creates that share a
// request share the lists as well, on servers since 3.6: to find that out costs
// what it costs Client.ReadAll.
//
// If the answer is lost, the znode is looked for by its id in the same session,
// and its owner is checked. If it is not there, the create is repeated with
// another id, within one budget of the retry policy. After an error the znode
// does not exist, or is deleted in the background as soon as it appears, as
// long as the session lives. zk.ErrNoNode means that dir is missing.
func (s *Session) CreateProtected(ctx context.Context, dir, name string, data []byte, flags int32, acl ...zk.ACL) (Created, error) {
	created, err := s.in().CreateProtected(ctx, dir, name, data, flags, acl...)
	return Created(created), err
}

// CreateAllProtected creates all znodes of a batch or none, and returns their
// paths. If the ensemble refuses the batch, failed is the index of the
// operation that caused err, counted from 0 over Before, the creates and After.
// For other errors it is negative.
//
// A lost answer and an error are handled as by CreateProtected, for all znodes
// of the batch together. Each try costs one request.
func (s *Session) CreateAllProtected(ctx context.Context, b ProtectedBatch) (paths []string, failed int, err error) {
	return s.in().CreateAllProtected(ctx, managed.ProtectedBatch(b))
}

// Unwatch gives up a channel that Watch, GetAndWatch, WatchChildren or
// WatchExists of this session returned, and closes it. Other callers' channels
// stay open. If the channel is closed already, Unwatch has no effect.
//
// When all callers that share a watch have given it up, and no other needs it
// within about a session timeout, one request removes it at the server (3.5 or
// later). Other watches stay there until they fire or the connection ends, and
// so does one that more than 1,024 callers share at a time. A watch that a
// cache uses stays as long as the cache needs it.
func (s *Session) Unwatch(changed <-chan struct{}) { s.in().Unwatch(changed) }
