package framework

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// This file has the operations of a client, each in any session.

// Create creates a znode and returns its path, which ends in the sequence
// number if the znode is sequential. flags are those of the wire client:
// zk.FlagPersistent, zk.FlagEphemeral, zk.FlagSequence, zk.FlagContainer. The
// path of a sequential znode may end in a slash: then the number is the whole
// name. Without acl the znode has the client's ACL. On an ensemble without
// containers a container becomes a persistent znode.
//
// A create is not repeated after an unknown outcome: it would bring a znode
// back that others have deleted since. It succeeds only if the znode is an
// ephemeral one of this session that no other create of this session can have
// made: an equal znode may be another client's. Otherwise MaybeApplied(err) is
// true, and the error says what exists at path, if that could be read:
// zk.ErrNodeExists if a znode does. For a sequential create that survives a
// lost answer see Session.CreateProtected. Create costs one request, and two
// more after an unknown outcome, unless it is sequential.
func (c *Client) Create(ctx context.Context, path string, data []byte, flags int32, acl ...zk.ACL) (string, error) {
	return c.in().Create(ctx, path, data, flags, acl...)
}

// Get returns the data and the stat of a znode.
func (c *Client) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	return c.in().Get(ctx, path)
}

// Set replaces the data of a znode that has the given version; -1 matches any
// version.
//
// At version -1 it is not repeated after an unknown outcome: that would undo
// what others have written since. It syncs and reads the znode. It succeeds if
// the data are equal, and were written after everything that the session had
// seen when the request was sent. Otherwise MaybeApplied(err) is true, and the
// error says what exists, if that could be read. At any other version Set is
// repeated. If a retry then fails with zk.ErrBadVersion, MaybeApplied is true.
// A znode that was deleted and created again can have the same version, since
// each begins at 0. Set costs one request, and two more after an unknown
// outcome at version -1.
func (c *Client) Set(ctx context.Context, path string, data []byte, version int32) (*zk.Stat, error) {
	return c.in().Set(ctx, path, data, version)
}

// Delete deletes a znode that has the given version; -1 matches any version. If
// a retry after an unknown outcome finds no znode, the delete has succeeded.
//
// A retry deletes the znode that is then at path, and returns nil. If the first
// try was executed, and another process has created the path again, that is the
// other process's znode: with a lock at a fixed path, the next holder's. A
// version helps little, since each new znode begins at 0. Use DeleteCreated
// where a path may be created again.
func (c *Client) Delete(ctx context.Context, path string, version int32) error {
	return c.in().Delete(ctx, path, version)
}

// DeleteCreated deletes the znode at path if its Czxid and Ctime are those of
// created. It keeps a znode that was created there later, even in a rebuilt
// ensemble, except in the window below. If there is another znode or none, the
// error is zk.ErrNoNode. After an unknown outcome it syncs and looks again: if
// the znode is gone, or there is another one, it returns nil.
//
// ZooKeeper has no such delete, so a window remains. DeleteCreated reads the
// znode, and then deletes it if its version has not changed. It deletes another
// znode instead if the path was deleted and created again in between, and the
// new znode has the same version; likewise while a delete whose connection has
// ended is still on its way through the ensemble. It costs two requests, and
// three more for each unknown outcome.
func (c *Client) DeleteCreated(ctx context.Context, path string, created *zk.Stat) error {
	return c.in().DeleteCreated(ctx, path, created)
}

// Exists reports whether a znode exists, and returns its stat if it does.
func (c *Client) Exists(ctx context.Context, path string) (bool, *zk.Stat, error) {
	return c.in().Exists(ctx, path)
}

// Children returns the names of a znode's children, in no order, and its stat.
func (c *Client) Children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	return c.in().Children(ctx, path)
}

// Sync waits until the server of this session has applied all writes that were
// done before: later reads in the session see them.
func (c *Client) Sync(ctx context.Context, path string) error { return c.in().Sync(ctx, path) }

// GetACL returns the ACL and the stat of a znode.
func (c *Client) GetACL(ctx context.Context, path string) ([]zk.ACL, *zk.Stat, error) {
	return c.in().GetACL(ctx, path)
}

// SetACL replaces the ACL of a znode whose ACL has the given version; -1
// matches any version. After an unknown outcome it does what Set does, and
// succeeds if the znode's ACL equals acl, even if another client has set it.
func (c *Client) SetACL(ctx context.Context, path string, acl []zk.ACL, version int32) (*zk.Stat, error) {
	return c.in().SetACL(ctx, path, acl, version)
}

// Multi executes all operations or none. An operation is a *zk.CreateRequest
// (not of a container), *zk.DeleteRequest, *zk.SetDataRequest or
// *zk.CheckVersionRequest. If an operation fails, err is its error, and the
// responses show which one it was. Multi is not repeated after an unknown
// outcome. A create without an ACL has the client's.
func (c *Client) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return c.in().Multi(ctx, ops...)
}

// MakeContainerPath creates path, and every missing znode above it and below
// the chroot, as containers. The ensemble removes a container some time after
// its last child was deleted. So this is for the directories of recipes; for
// the parents of data use MakePersistentPath. Znodes that exist are not
// changed. On an ensemble without containers the znodes are persistent. It
// costs one request if nothing or only path is missing, and two more for each
// missing znode above it. For the chroot see WithCreateChroot.
func (c *Client) MakeContainerPath(ctx context.Context, path string) error {
	return c.in().MakeContainerPath(ctx, path)
}

// MakePersistentPath creates path, and every missing znode above it and below
// the chroot, as persistent znodes, which exist until they are deleted. Znodes
// that exist are not changed, containers included. It costs as much as
// MakeContainerPath.
func (c *Client) MakePersistentPath(ctx context.Context, path string) error {
	return c.in().MakePersistentPath(ctx, path)
}

// MultiOnce executes all operations once, or none, and creates marker in the
// same transaction: a persistent znode with the data note, below a parent that
// exists. If marker exists already, it executes nothing, and returns what the
// marker says. The operations are those of Multi; none may name the marker.
//
// After a lost answer it sends the same again, in the next session if need be:
// the marker refuses it if an earlier try was executed. If err is nil, the
// operations were executed exactly once, however many calls with that marker
// were made, by any process. If MaybeApplied(err) is true, it is not known
// whether they were executed or will be: a later call with the same marker
// settles it. After any other error this call has executed nothing. The promise
// ends when the marker is removed, which is the caller's task.
//
// It costs one request, of one operation more, again for each lost answer, and
// a read if the marker is there.
func (c *Client) MultiOnce(ctx context.Context, marker string, note []byte, ops ...any) (MultiOnceResult, error) {
	result, err := c.in().MultiOnce(ctx, marker, note, ops...)
	return MultiOnceResult(result), err
}

// CreateTTL creates a persistent znode with a time to live. If the znode has no
// children, and nobody has changed it for ttl, the ensemble deletes it some
// time later. flags are zk.FlagTTL or zk.FlagPersistentSequentialWithTTL. ttl
// is from 1ms to about 34 years. Otherwise CreateTTL is the same as Create.
//
// It needs ZooKeeper 3.5.3 or later, and extendedTypesEnabled=true on the
// servers. Other servers answer that it is not implemented.
func (c *Client) CreateTTL(ctx context.Context, path string, data []byte, flags int32, ttl time.Duration, acl ...zk.ACL) (string, error) {
	return c.in().CreateTTL(ctx, path, data, flags, ttl, acl...)
}

// Put writes data to a znode. If there is none, it creates a persistent one,
// with acl or else the client's ACL. It returns the version after the write,
// which is 0 if Put has created the znode. The znode above must exist. To write
// only over what was read use Update, or Set at a version.
//
// After an unknown outcome Put does what Set at version -1 and Create do: it
// looks, and does not write again. It costs one request if the znode exists,
// two if not, and two more after an unknown outcome. If others create and
// delete the znode meanwhile, Put begins again, with pauses, within ctx and the
// retry policy.
func (c *Client) Put(ctx context.Context, path string, data []byte, acl ...zk.ACL) (version int32, err error) {
	return c.in().Put(ctx, path, data, acl...)
}

// DeleteTree deletes a znode and all below it, children first, also what others
// create there meanwhile. It returns the paths that it has deleted, in that
// order, also with an error. After a lost answer some of them may have been
// deleted by others. If there is no znode the error is zk.ErrNoNode. If
// MaybeApplied(err) is true, znodes that are not in deleted may be gone, too.
// If others still create znodes there after ten passes the error is
// zk.ErrNotEmpty. DeleteTree of "/" fails.
//
// It deletes by path, as Delete does at version -1: a znode that another
// process has made anew is not spared. Each pass costs a sync, a request for up
// to 256 znodes of a level to list them, and one for up to 100 to delete them,
// or one for each of these if that fails.
func (c *Client) DeleteTree(ctx context.Context, path string) (deleted []string, err error) {
	return c.in().DeleteTree(ctx, path)
}

// Update replaces the data of a znode by what change computes from them: it
// reads them, and writes the result if nobody has written since; otherwise it
// begins again after a pause, within ctx and the client's retry policy. It
// returns the stat after the write.
//
// change gets the data, which it may alter, and the stat. It is called without
// locks, and perhaps several times. Its error ends Update. A znode at version
// -1 is not written, since -1 means any version to a server: servers without
// ZOOKEEPER-4743 count up to it.
//
// If an answer is lost, the same write is made again at the same version. If it
// is then refused, MaybeApplied(err) is true, and Update does not compute
// again: where a change must be made exactly once, use UpdateOnce. If the znode
// was deleted and created again since the read, it can have the same version,
// and the new znode gets data computed from the old one. It costs two requests,
// and two more for each time that another client was quicker.
func (c *Client) Update(ctx context.Context, path string, change func(old []byte, stat *zk.Stat) ([]byte, error)) (*zk.Stat, error) {
	return c.in().Update(ctx, path, change)
}

// UpdateOnce is Update, and creates marker in the same transaction: see
// MultiOnce. So a change is made at most once for a marker, by whatever
// process, and after a lost answer it goes on. If the marker is there, the
// result is Repeated, even if change would fail now or the znode is gone. It
// costs what Update costs, and two requests more if change fails or there is no
// znode.
func (c *Client) UpdateOnce(ctx context.Context, path, marker string, change func(old []byte, stat *zk.Stat) ([]byte, error)) (MultiOnceResult, error) {
	result, err := c.in().UpdateOnce(ctx, path, marker, change)
	return MultiOnceResult(result), err
}

// MultiOnceResult is the result of MultiOnce and of UpdateOnce. It says that
// the operations were executed once, by this call or before it.
type MultiOnceResult struct {
	// Repeated says that this call has executed nothing: the marker was there
	// before. It is false if this call may have done it, even if an answer was
	// lost and another call with the same marker was quicker.
	Repeated bool
	// Responses are those to the operations, without the one to the marker. They
	// are nil if the call has not got them: after a lost answer, or if Repeated.
	Responses []zk.MultiResponse
	// Note is the data of the marker, and Stat its stat; Stat.Czxid is the
	// transaction that has executed the operations. If Responses is not nil, Note
	// is the caller's, and Stat is nil: it would cost a request. Both are nil if
	// the marker was removed in the meantime.
	Note []byte
	Stat *zk.Stat
}

// Read is one read of Client.ReadAll.
type Read struct {
	Path     string
	Children bool // the names of the children instead of the data
}

// ReadResult is what one read of Client.ReadAll has found.
type ReadResult struct {
	Data     []byte
	Stat     *zk.Stat // nil after an error, and for a list: use Client.Children if you need its stat
	Children []string // of a list, in no order
	Err      error    // of this read, such as zk.ErrNoNode or zk.ErrNoAuth
}

// ReadAll does many reads in few requests. It returns a result for each read,
// in the order of the reads, with an error of its own. If err is not nil there
// are no results: a path is not valid, ctx has ended, the client was closed, or
// no server has answered until a budget of the client's retry policy was used
// up. After a lost connection only what was not answered is read again.
//
// The reads are no snapshot: a change can come between any two of them. Each
// shows at least all writes that were answered to this client before the call.
//
// A request has up to 256 reads, of about 64 kB by the sizes of earlier
// answers; the first has 32, and is alone. About 256 kB are asked for at a
// time, by all calls in a session together, because the heartbeats of leases
// share the connection. But if large data follow much small data, up to 256
// reads of them are asked for in each of four requests. An answer of more than
// 64 MiB closes the connection, and fewer are asked for then.
//
// Servers before 3.6 have no such requests. There each read is a request, and
// 64 of them are under way at a time. To find that out costs one short
// connection for each connection of the client that ReadAll is used on, to ask
// the server for its version (srvr). If it does not tell, it costs two, and a
// session, which is closed at once. Without an answer it is asked again, with
// pauses of up to a minute, and each read is a request until then.
func (c *Client) ReadAll(ctx context.Context, reads ...Read) ([]ReadResult, error) {
	return managed.ReadAll(ctx, c.in(), reads, resultOf)
}

func resultOf(r request.Result) ReadResult {
	return ReadResult{Data: r.Data, Stat: r.Stat, Children: r.Children, Err: r.Err}
}

// Data is what Client.WatchData delivers.
type Data struct {
	Exists bool
	Data   []byte   // must not be changed: it may be shared
	Stat   *zk.Stat // nil unless Exists
	// Err is set in the last value if the watch ends for another reason than the
	// end of ctx, such as ErrClosed or zk.ErrNoAuth.
	Err error
}

// Children is what Client.WatchChildren delivers.
type Children struct {
	Exists bool
	Names  []string // in no order; must not be changed: they may be shared
	Stat   *zk.Stat // nil unless Exists
	Err    error    // as in Data
}

// WatchData delivers the data of the znode at path, and each change of it,
// until ctx ends; then the channel is closed. The znode need not exist, but the
// chroot must, unless the client has WithCreateChroot: without it the call
// fails with zk.ErrNoNode, and the error names the chroot. The channel has the
// current value at once. A newer value replaces one that was not received yet,
// so a slow reader misses values, but never the last one. The watch survives
// reconnects and the loss of the session.
//
// A server can fail to send an event, as servers since 3.7.3, 3.8.4 and 3.9.2
// do while the client may not read the znode. So the client also looks by
// itself: a change without an event, or the loss of the right to read, is
// delivered within one and a quarter session timeouts and a round trip.
//
// The call costs one request, and two if the znode does not exist; one more if
// the client has not met its chroot yet. Each change costs one request, and the
// creation of the znode two. The looks cost one small request per session
// timeout on average, for all callers of the client that watch this path.
func (c *Client) WatchData(ctx context.Context, path string) (<-chan Data, error) {
	return managed.WatchData(ctx, c.in(), path, func(exists bool, data []byte, stat *zk.Stat, err error) Data {
		return Data{Exists: exists, Data: data, Stat: stat, Err: err}
	})
}

// WatchChildren delivers the names of the children of the znode at path, and
// each change of them, as WatchData does for the data.
func (c *Client) WatchChildren(ctx context.Context, path string) (<-chan Children, error) {
	return managed.WatchChildren(ctx, c.in(), path, func(exists bool, names []string, stat *zk.Stat, err error) Children {
		return Children{Exists: exists, Names: names, Stat: stat, Err: err}
	})
}

// ValidatePath returns an error unless path is a valid absolute path of a
// znode. The rules are those of the servers.
func ValidatePath(path string) error { return request.ValidatePath(path) }
