package framework

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// Create creates a znode and returns its path, which ends in the sequence
// number if the znode is sequential. flags are those of the wire client:
// zk.FlagPersistent, zk.FlagEphemeral, zk.FlagSequence, zk.FlagContainer. The
// path of a sequential znode may end in a slash: then the number is the whole
// name. Without acl the znode has the client's ACL. On an ensemble without
// containers a container becomes a persistent znode.
//
// A create is not repeated after an unknown outcome: it would bring a znode
// back that others have deleted since. MaybeApplied(err) is then true, and the
// error says what exists at path, if that could be read: zk.ErrNodeExists if a
// znode does. An equal znode may be another client's. Create succeeds only if
// the znode is an ephemeral one of this session that no other create of this
// session can have made. For a sequential create that survives a lost answer
// see Session.CreateProtected. Create costs one request, and two more after an
// unknown outcome, unless it is sequential.
func (c *Client) Create(ctx context.Context, path string, data []byte, flags int32, acl ...zk.ACL) (string, error) {
	return c.scope().create(ctx, path, data, flags, acl)
}

// Get returns the data and the stat of a znode.
func (c *Client) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	return c.scope().get(ctx, path)
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
	return c.scope().set(ctx, path, data, version)
}

// Delete deletes a znode that has the given version; -1 matches any version. If
// a retry after an unknown outcome finds no znode, the delete has succeeded.
//
// A retry deletes the znode that is then at path. Suppose the first try was
// executed, its answer was lost, and another process has created the path
// again. Then Delete(path, -1) deletes that process's znode and returns nil.
// With a lock at a fixed path that is the next holder's znode. A version helps
// little, since each new znode begins at 0. Use DeleteCreated where a path may
// be created again.
func (c *Client) Delete(ctx context.Context, path string, version int32) error {
	return c.scope().delete(ctx, path, version)
}

// DeleteCreated deletes the znode at path if its Czxid and Ctime are those of
// created. It keeps a znode that was created there later, even in a rebuilt
// ensemble, except in the window below. If there is another znode or none, the
// error is zk.ErrNoNode.
// After an unknown outcome it syncs and looks again: if the znode is gone, or
// there is another one, it returns nil.
//
// ZooKeeper has no such delete, so a window remains. DeleteCreated reads
// the znode, and then deletes it if its version has not changed. It deletes
// another znode instead if the path was deleted and created again in between,
// and the new znode has the same version; likewise while a delete whose
// connection has ended is still on its way through the ensemble. It costs two
// requests, and three more for each unknown outcome.
func (c *Client) DeleteCreated(ctx context.Context, path string, created *zk.Stat) error {
	return c.scope().deleteCreated(ctx, path, created)
}

// Exists reports whether a znode exists, and returns its stat if it does.
func (c *Client) Exists(ctx context.Context, path string) (bool, *zk.Stat, error) {
	return c.scope().exists(ctx, path)
}

// Children returns the names of the children of a znode, in no order, and its
// stat.
func (c *Client) Children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	return c.scope().children(ctx, path)
}

// Sync waits until the server of this session has applied all writes that were
// done before: later reads in the session see them.
func (c *Client) Sync(ctx context.Context, path string) error { return c.scope().sync(ctx, path) }

// GetACL returns the ACL and the stat of a znode.
func (c *Client) GetACL(ctx context.Context, path string) ([]zk.ACL, *zk.Stat, error) {
	return c.scope().getACL(ctx, path)
}

// SetACL replaces the ACL of a znode whose ACL has the given version; -1
// matches any version. After an unknown outcome it does what Set does, and
// succeeds if the znode's ACL equals acl, even if another client has set it.
func (c *Client) SetACL(ctx context.Context, path string, acl []zk.ACL, version int32) (*zk.Stat, error) {
	return c.scope().setACL(ctx, path, acl, version)
}

// Multi executes all operations or none. An operation is a *zk.CreateRequest
// (not of a container), *zk.DeleteRequest, *zk.SetDataRequest or
// *zk.CheckVersionRequest. If an operation fails, err is its error, and the
// responses show which one it was. Multi is not repeated after an unknown
// outcome. A create without an ACL has the client's.
func (c *Client) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return c.scope().multi(ctx, ops)
}

// MakeContainerPath creates path, and every missing znode above it and below
// the chroot, as containers. The ensemble removes a container some time after
// its last child was deleted. So this is for the directories of recipes; for
// the parents of data use MakePersistentPath. Znodes that exist are not
// changed. On an ensemble without containers the znodes are persistent. It
// costs one request if nothing or only path is missing, and two more for each
// missing znode above it. For the chroot see WithCreateChroot.
func (c *Client) MakeContainerPath(ctx context.Context, path string) error {
	return c.scope().makePath(ctx, path, c.core().createContainer)
}

// MakePersistentPath creates path, and every missing znode above it and below
// the chroot, as persistent znodes, which exist until they are deleted. Znodes
// that exist are not changed, containers included. It costs as much as
// MakeContainerPath.
func (c *Client) MakePersistentPath(ctx context.Context, path string) error {
	return c.scope().makePath(ctx, path, createPersistent)
}
