// Package privileged has the part of package framework that is only for the
// recipes of this module. Other recipes are written with package recipes, or
// with what package framework exports.
package privileged

import (
	"context"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/seam"
)

// Armed is the result of Arm for one znode.
type Armed = seam.Armed

// Framework does what methods of Client and Session would do. Package framework
// implements it, in privileged.go: a wrong signature there is a panic when any
// program that imports this package starts.
var Framework = seam.Framework.(interface {
	// Attach returns the value that is attached to the client under key. If there
	// is none it attaches what newValue returns. If two goroutines do so at the
	// same time, both get the same value and the other one is dropped. The value
	// lives as long as the client, and all namespaces of the client share it. All
	// locks of one client find each other by it.
	//
	// A value that can do without some of its ephemeral znodes has a method
	// GiveBack(context.Context) bool. The client calls it, without locks held,
	// before it refuses a create: see framework.WithMaxEphemerals. It removes one
	// of them, and waits until it is gone. It returns false if there is none, or
	// the context has ended before.
	Attach(c *framework.Client, key any, newValue func() any) any
	// In returns the session s, of the same client, in the view of c.
	In(c *framework.Client, s *framework.Session) *framework.Session
	// Whole returns a view of the session without chroot and namespace.
	Whole(s *framework.Session) *framework.Session
	// Shown returns the error of an operation in any view of the client as the
	// same operation in the view of c would have failed, and any other error as it
	// is.
	Shown(c *framework.Client, err error) error
	// MakeDirectory is Client.MakeContainerPath for a znode that the caller is
	// about to create in dir. What it has made is deleted in the background if
	// nothing was created in it within a session timeout, or when the client is
	// closed, unless the user makes it too. That costs another request, unless
	// Filled or Used was called.
	MakeDirectory(ctx context.Context, c *framework.Client, dir string) error
	// MakeDirectoryIn is MakeDirectory in a session.
	MakeDirectoryIn(ctx context.Context, s *framework.Session, dir string) error
	// Filled says that something was created in a directory.
	Filled(c *framework.Client, dir string)
	// Used is Filled for a contender, in a directory that recipes make as a
	// container: framework.WithSweep may delete it.
	Used(c *framework.Client, dir string)
	// Unhurried returns a view of the session in which a CreateProtected or
	// CreateAllProtected that was sent does not return before its answer, and that
	// to the list behind it, or the end of the session, although its context ends.
	// If it has succeeded then, it returns the znodes. That saves a goroutine, and
	// suits a caller that nobody waits for.
	Unhurried(s *framework.Session) *framework.Session
	// CreateProtectedAndRead is Session.CreateProtected, and does other reads, in
	// order, behind the list, in the same request. There are no results where
	// that is not possible: the server has no multiRead, or is not known to have
	// it, the answers would be large, or the answer that shows the znode did not
	// come. Each result has an error of its own.
	CreateProtectedAndRead(ctx context.Context, s *framework.Session, dir, name string, data []byte, flags int32, acl []zk.ACL, also ...request.Read) (framework.Created, []request.Result, error)
	// CreateProtectedInstead is Session.CreateProtected of a sequential znode,
	// after StartDelete of another one in dir, at the path replaced. If the delete
	// was not sent yet, both are one transaction where possible, and there is no
	// list: Children and Stat are nil. next then says whether the new znode's
	// number is the next one, so that nothing was created in dir in between. If
	// they are not one transaction, there is a list.
	CreateProtectedInstead(ctx context.Context, s *framework.Session, dir, name string, data []byte, flags int32, acl []zk.ACL, replaced string) (_ framework.Created, next bool, err error)
	// BatchFits returns ErrTooLarge if CreateAllProtected would.
	BatchFits(c *framework.Client, b framework.ProtectedBatch) error
	// StartDelete begins to delete the znode at path, whatever its version, and
	// returns at once. Of ctx only the values are used, for the observers; it
	// may be nil. No create of a contender that is asked for later in this
	// session is executed before it, unless the delete has to be sent again: its
	// answer is lost, it was in a batch that was refused, or WithBatching is
	// off. finish does the rest, and has to be called, soon and on a goroutine
	// of its own: it may have to send other writes as well. It returns as Delete
	// does: when the znode is gone, the session is over, or the budget of the
	// retry policy is used up. The delete may share a request with other deletes
	// and creates of contenders. If patient is true, it waits up to a
	// millisecond for one of them.
	StartDelete(ctx context.Context, s *framework.Session, path string, patient bool) (finish func() error)

	// ReadAll is Session.ReadAll with the place of each answer. Order is never 0,
	// counts over all connections of the session, and is the same for the reads of
	// one request.
	ReadAll(ctx context.Context, s *framework.Session, reads ...request.Read) ([]request.Result, error)
	// WatchTree arms a persistent recursive watch on path, which need not exist.
	// It calls on for each event of the znode and of all below it, with its place
	// in the order, until the watch ends: that is the last call, and has
	// zk.EventNotWatching. The watch ends when the connection has ended, the
	// session is over, remove was called, or DistrustTrees. Events of watches that
	// others have armed there come as well. After an error on is never called.
	//
	// on runs on the goroutine that reads the connection, and may do so before
	// WatchTree returns. It must not block and must not call the framework. When
	// an answer of the order n is returned, on was called for all events before n.
	//
	// armed is the place from which on nothing is missed: that of the answer that
	// has confirmed the watch, or, if it was armed already, of the latest arrival.
	// All callers in one session share one watch for each path. The first one
	// costs a request, and the last remove another one, which is sent before any
	// later watch on that path is armed. The channels of Session.Watch and others
	// for path itself, but for none below it, are closed at both times.
	//
	// WatchTree does not try again when the connection is lost: it fails. Call it
	// again in the next connection. remove returns at once.
	WatchTree(ctx context.Context, s *framework.Session, path string, on func(order uint64, what zk.EventType, path string)) (armed uint64, remove func(), err error)
	// TreesRefused reports whether WatchTree has failed with err because there are
	// no recursive watches: the server is older than 3.6, or has not said in a
	// session timeout that it is not, or one has refused them on a connection of
	// the session, or DistrustTrees was called. Then the next connection may have
	// them, and HasTrees says whether this one may.
	TreesRefused(err error) bool
	// HasTrees reports whether the present connection is known to have recursive
	// watches. If the server has not said it yet, said is not nil: it is closed
	// when it has.
	HasTrees(s *framework.Session) (has bool, said <-chan struct{})
	// DistrustTrees ends the use of recursive watches for this client, with a line
	// in the log: an event was contradicted by the read that it has caused. They
	// are used again after some time, from ten minutes to a day.
	DistrustTrees(c *framework.Client, why string)

	// Events calls on as WatchTree does, for the events of all watches of the
	// session at path and below, until stop is called, or the connection or the
	// session ends. It arms nothing and sends nothing. It fails without a
	// connection.
	//
	// relies reports whether the caller needs the watches on a znode, although
	// nobody else does: then they are not removed. While it is asked no watch is
	// armed there. It must not block and must not call the framework.
	Events(s *framework.Session, path string, on func(order uint64, what zk.EventType, path string), relies func(path string) bool) (stop func(), err error)
	// ReadAllAndWatch is Session.ReadAll, and arms a watch for one event with each
	// read: of the data with a get, of the children with a list. A get of root, if
	// that is missing, arms a watch on its creation, and costs another request.
	// There is no watch after any other error. Every read is a request; 64 are
	// under way at a time, and a list has a stat. Call Events first: the watches
	// have no channel.
	//
	// All watches are armed on the connection that there is when it is called. If
	// that ends the call fails, and no watch is left.
	ReadAllAndWatch(ctx context.Context, s *framework.Session, root string, reads ...request.Read) ([]request.Result, error)
	// StatAll is Session.ReadAll of gets, but its results have no data: only the
	// stat, also of a znode that the session may not read. Every read is a
	// request, with about 150 bytes for an answer; 64 are under way at a time.
	StatAll(ctx context.Context, s *framework.Session, reads ...request.Read) ([]request.Result, error)
	// SetWatches arms such watches again after a reconnect, without a read, by a
	// request for about each 64 kB of paths. Events for what has changed since a
	// transaction come before it returns, and there is no watch then. Nor is there
	// one for what is in unset: read that again. order and zxid are those of the
	// last answer: see ReadAll. What the server has refused is unset. SetWatches
	// does not try again: it fails when the connection is lost, or the server is
	// too busy.
	SetWatches(ctx context.Context, s *framework.Session, since int64, reads ...request.Read) (zxid int64, order uint64, unset []request.Read, err error)
	// Unwatch is Session.Unwatch for what these two have armed in the present
	// connection. It returns at once. A watch that somebody else relies on, as one
	// who hears of it by Events may, stays as long as that is so.
	Unwatch(s *framework.Session, reads ...request.Read)

	// CreateEphemeral creates an ephemeral znode, once: it is not repeated after a
	// lost answer, when framework.MaybeApplied is true, and it waits for no
	// connection (zk.ErrNoServer). It returns at the answer, or when the
	// connection or the session has ended. Creates that are asked for while
	// another is under way share transactions, also those in one directory. If one
	// is refused, the others go on together. Without acl the znode has the
	// client's.
	CreateEphemeral(s *framework.Session, path string, data []byte, acl []zk.ACL) error
	// Reserving returns a view of the session in which the create of an ephemeral
	// znode also reserves room for n more, protected and sequential ones named
	// name in the full path dir: see framework.WithMaxEphemerals. That ends with
	// the znode.
	Reserving(s *framework.Session, dir, name string, n int) *framework.Session
	// InRoomOf returns a view of the session in which creates of ephemeral znodes
	// use the room that was reserved with the znode at the full path. They are not
	// refused for want of room while there is enough of it.
	InRoomOf(s *framework.Session, full string) *framework.Session
	// KeepRoom reserves room for one ephemeral znode, in the session and in all
	// later ones of the client, until drop is called. A sequential one is
	// protected as well. in returns a view of a session in which creates use it.
	// It fails with framework.ErrTooLarge.
	KeepRoom(s *framework.Session, path string, sequential bool) (in func(*framework.Session) *framework.Session, drop func(), err error)
	// SessionFull reports whether err is framework.ErrTooLarge for want of room
	// in the session: the request itself was not too large.
	SessionFull(err error) bool
	// CloseEarlier closes a session of the client that is over, by its id and
	// password, unless that is known to have happened: the error is nil once the
	// session and its ephemeral znodes are known to be gone. ours is false if id
	// is not that of an earlier session of this client, or was closed long ago.
	// It tries at most once in two session timeouts, for all callers together,
	// because a try keeps the session alive. On a client that is closed it tries
	// nothing, and says what is known.
	CloseEarlier(ctx context.Context, c *framework.Client, id int64) (ours bool, err error)
	// LookForStrays looks once for the znodes dir/_c_<uuid>-name... of protected
	// creates of this session that have failed. left is nil if none is there.
	// Otherwise one is being removed, and left is closed when it is gone. A create
	// that is executed later is still looked for.
	LookForStrays(s *framework.Session, dir, name string) (left <-chan struct{}, err error)
	// Arm arms watches of znodes' data, on one connection, each by a read of its
	// own. The reads leave together, in the order of the paths, and cost a request
	// each. Where the session watches a znode already, that watch is shared. Arm
	// tries again as Session.Watch does. On success none is nil, and each must be
	// left.
	Arm(ctx context.Context, s *framework.Session, paths ...string) ([]Armed, error)
	// AtOnce returns a view of the session whose operations are sent on the
	// present connection, once, or fail: none waits for a connection. So not much
	// time passes between a read and the write that relies on it.
	AtOnce(s *framework.Session) *framework.Session
	// Endless returns a view of the session whose operations wait for a
	// connection, and are tried again after it was lost or the server was busy,
	// until there is an answer, the session is over or ctx ends, whatever the
	// retry policy says.
	Endless(s *framework.Session) *framework.Session
	// GetAndWatch is that of Session, but what it returns was the znode's during
	// the call, also if events are lost: a watch that is armed already is checked.
	// After a reconnect has closed changed, resume takes the watch up again, and
	// returns its channel, if the znode is as it was read: unless Session.Unwatch
	// was called, one request arms all such watches of the session again. If not,
	// ok is false: read it again. resume waits for the answer to that request, or
	// the end of the connection. Calls that are made at the same time share
	// requests: with servers since 3.6, 16 calls or more cost a few.
	GetAndWatch(s *framework.Session, path string) (data []byte, stat *zk.Stat, changed <-chan struct{}, resume func() (again <-chan struct{}, ok bool), err error)

	// SetUnique is Client.Set at any version of a znode whose path never names
	// another one. It is repeated after an unknown outcome.
	SetUnique(ctx context.Context, c *framework.Client, path string, data []byte) error

	// Budget returns a new schedule of the client's retry policy, for an operation
	// of several requests.
	Budget(c *framework.Client) backoff.BackOff
	// Unsure returns an error of which framework.MaybeApplied is true.
	Unsure(op, path string, err error) error

	// WantLeases reports whether any observer of the client has a function for
	// calls of Acquire or for leases. If none has, a recipe need not describe
	// them.
	WantLeases(c *framework.Client) bool
	// Values returns a context that has the values of ctx and never ends, for
	// requests that nobody waits for. If nobody observes requests or retries it
	// has no values either, which costs nothing. It calls nothing of ctx, which
	// may be user code.
	Values(ctx context.Context, c *framework.Client) context.Context
	// StartAcquire reports that a call of Acquire begins. It returns the context
	// for the rest of the call, and a function that must be called with the
	// result. If an observer ends the goroutine, StartAcquire reports the end
	// itself. It does not panic, nor do the methods that follow.
	StartAcquire(ctx context.Context, c *framework.Client, a framework.Acquire) (during context.Context, end func(framework.AcquireResult))
	// Released, LostReleased and Overran report an event, and wait for the
	// observers. Lost and Revoked do not wait.
	Released(ctx context.Context, c *framework.Client, r framework.Release)
	LostReleased(ctx context.Context, c *framework.Client, l framework.Loss)
	Overran(ctx context.Context, c *framework.Client, o framework.Overrun)
	Lost(ctx context.Context, c *framework.Client, l framework.Loss)
	Revoked(ctx context.Context, c *framework.Client, r framework.Revocation)
	// PresenceChanged, CacheChanged and CacheRead do not wait for the observers.
	// PresenceChanged sets the Timeout. WantReads reports whether any observer has
	// a function for CacheRead.
	PresenceChanged(c *framework.Client, change framework.PresenceChange)
	CacheChanged(c *framework.Client, change framework.CacheChange)
	CacheRead(c *framework.Client, r framework.CacheRead)
	WantReads(c *framework.Client) bool
})
