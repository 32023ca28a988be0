package framework

import (
	"context"
	"reflect"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// UnderWay is how many requests with creates may be under way in a session.
const UnderWay = underWay

// StartDelete, CreateInstead and Attach are what forEngine has.
func (s *Session) StartDelete(ctx context.Context, path string) (finish func() error) {
	return s.startDelete(ctx, path, false)
}

func (s *Session) StartDeletePatiently(ctx context.Context, path string) (finish func() error) {
	return s.startDelete(ctx, path, true)
}

func (s *Session) CreateInstead(ctx context.Context, dir, name string, data []byte, flags int32, path string) (_ Created, next bool, err error) {
	return forEngine{}.CreateProtectedInstead(ctx, s, dir, name, data, flags, nil, path)
}

func (c *Client) Attach(key any, newValue func() any) any { return c.attach(key, newValue) }

// Wire returns the wire client of a session, for tests that bypass the
// framework.
func Wire(s *Session) *zk.Conn { return s.live.conn }

// Listeners returns how many listeners the client still has.
func Listeners(c *Client) int {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	return len(c.shared.listeners)
}

// Strays returns how many ids of given-up creates a session looks for, and in
// how many directories.
func Strays(s *Session) (ids, directories int) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	for _, h := range s.live.straySearches {
		ids += len(h.ids)
	}
	return ids, len(s.live.straySearches)
}

// Channels returns how many channels for watches the wire client of a session
// has.
func Channels(s *Session) int {
	n := 0
	for all := reflect.ValueOf(s.live.conn).Elem().FieldByName("watchers").MapRange(); all.Next(); {
		n += all.Value().Len()
	}
	return n
}

// Unanswered returns how many requests of a session wait for an answer.
func Unanswered(s *Session) int {
	a := &s.live.latest().unanswered
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.requests)
}

// Sweeps reports whether a session is going to remove watches that nobody
// wants.
func Sweeps(s *Session) bool {
	s.live.hub.mu.Lock()
	defer s.live.hub.mu.Unlock()
	return s.live.hub.sweeping
}

// Followers returns how many are told of events in a session.
func Followers(s *Session) (n int) {
	s.live.trees.mu.Lock()
	defer s.live.trees.mu.Unlock()
	for _, told := range s.live.trees.told {
		n += len(told)
	}
	return n + len(s.live.trees.at) + len(s.live.trees.arming)
}

// What forEngine has.
var (
	WatchTree       = forEngine{}.WatchTree
	TreesRefused    = forEngine{}.TreesRefused
	DistrustTrees   = forEngine{}.DistrustTrees
	Events          = forEngine{}.Events
	ReadAllAndWatch = forEngine{}.ReadAllAndWatch
	SetWatches      = forEngine{}.SetWatches
	Unwatch         = forEngine{}.Unwatch
	Arm             = forEngine{}.Arm
	MakeDirectory   = forEngine{}.MakeDirectory
)

// ReadAllPlaced is the ReadAll of a Client or a Session, with the place of each
// answer.
func ReadAllPlaced(ctx context.Context, in interface{ scope() scope }, reads ...request.Read) ([]request.Result, error) {
	return in.scope().readAll(ctx, reads)
}

// CreateEphemeral, CloseEarlier and WatchAndResume are what forEngine has.
func CreateEphemeral(s *Session, path string, data []byte, acl ...zk.ACL) error {
	return s.createEphemeral(path, data, acl)
}

func CloseEarlier(ctx context.Context, c *Client, id int64) (ours bool, err error) {
	return c.shared.closeEarlier(ctx, id)
}

func WatchAndResume(s *Session, path string) (data []byte, stat *zk.Stat, changed <-chan struct{}, resume func() (<-chan struct{}, bool), err error) {
	return s.getAndWatch(path)
}

// Earlier returns how many sessions that are over the client remembers.
func Earlier(c *Client) int {
	c.shared.earlier.mu.Lock()
	defer c.shared.earlier.mu.Unlock()
	return len(c.shared.earlier.all)
}

// CloseOrphan closes a session as it does after its loss.
func CloseOrphan(s *Session) bool {
	return s.live.core.closeOrphan(context.Background(), s.live.orphan(), withPauses) == nil
}

// Many is from how many watches on they are armed together.
const Many = many

// EphemeralBytes returns how many bytes of ephemeral paths a client counts.
func EphemeralBytes(c *Client) int {
	e := &c.core().ephemerals
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sum
}

// CountEphemeralsAnew makes a client ask for them.
func CountEphemeralsAnew(c *Client) error {
	_, err := c.core().ephemerals.countAnew(context.Background(), false)
	return err
}

// Reserving, InRoomOf and KeepRoom are what forEngine has.
func (s *Session) Reserving(dir, name string, n int) *Session { return s.reserving(dir, name, n) }

func (s *Session) InRoomOf(full string) *Session { return forEngine{}.InRoomOf(s, full) }

func (s *Session) KeepRoom(path string) (in func(*Session) *Session, drop func(), err error) {
	return s.keepRoom(path, false)
}
