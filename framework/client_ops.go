package framework

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// The operations of a Client are made in whichever session there is. Each waits
// for a connection, is tried again on connection loss, and is bounded by ctx and
// by one budget of the retry policy. Errors name the operation and the path and
// wrap the wire client's own (zk.ErrNoNode, ...), ErrClosed, or ctx's error and
// cause; MaybeApplied tells of a write that failed whether it may have been
// executed. Each costs one request, unless it is said otherwise.

// Create creates a znode and returns its path, which for a sequential one ends
// in the sequence number. flags are the wire client's (zk.FlagEphemeral, ...);
// without acl the client's own applies. A container falls back to a persistent
// znode on an ensemble that has none.
//
// After an unknown outcome a sequential create is not repeated; another is, and
// if it then finds that the znode exists the error is zk.ErrNodeExists with
// MaybeApplied.
func (c *Client) Create(ctx context.Context, path string, data []byte, flags int32, acl ...zk.ACL) (string, error) {
	return c.scope().create(ctx, path, data, flags, acl)
}

// Get reads a znode.
func (c *Client) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	return c.scope().get(ctx, path)
}

// Set writes a znode's data if it has the given version, or -1 for any. A retry
// after an unknown outcome that meets zk.ErrBadVersion has MaybeApplied.
func (c *Client) Set(ctx context.Context, path string, data []byte, version int32) (*zk.Stat, error) {
	return c.scope().set(ctx, path, data, version)
}

// Delete removes a znode if it has the given version, or -1 for any. A retry
// after an unknown outcome that finds nothing has succeeded.
//
// A retry removes whatever stands at path by then. If the first try was executed,
// its answer was lost, and somebody has created the path again, Delete(path, -1)
// removes that znode and returns nil: with a lock at a fixed path, the next holder's.
// A version does not help much, since each new znode begins at 0. Use DeleteCreated
// where a path may be created again.
func (c *Client) Delete(ctx context.Context, path string, version int32) error {
	return c.scope().delete(ctx, path, version)
}

// DeleteCreated removes the znode at path that was created by the transaction czxid
// (zk.Stat.Czxid), and not another one that was created at the same
// path later. If another one stands there, or none, the error is zk.ErrNoNode. After
// an unknown outcome it syncs and looks: if the znode is gone by then, or another
// one stands there, it returns nil.
//
// ZooKeeper has no delete by czxid, so a window remains. The znode is looked at, and
// then deleted if its version is still the one that was seen. Another one is removed
// in its place if, in between, the znode was removed, the path was created again, and
// the new znode has the same version; and likewise while a delete whose connection
// has ended is still on its way in the member that it was sent to. It costs two
// requests, and three more for each unknown outcome.
func (c *Client) DeleteCreated(ctx context.Context, path string, czxid int64) error {
	return c.scope().deleteCreated(ctx, path, czxid)
}

// Exists reports whether a znode exists, with its stat if it does.
func (c *Client) Exists(ctx context.Context, path string) (bool, *zk.Stat, error) {
	return c.scope().exists(ctx, path)
}

// Children lists the names of a znode's children, in no order, with its stat.
func (c *Client) Children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	return c.scope().children(ctx, path)
}

// Sync makes later reads of this session see all that was done before it.
func (c *Client) Sync(ctx context.Context, path string) error { return c.scope().sync(ctx, path) }

// GetACL reads a znode's ACL.
func (c *Client) GetACL(ctx context.Context, path string) ([]zk.ACL, *zk.Stat, error) {
	return c.scope().getACL(ctx, path)
}

// SetACL replaces a znode's ACL if it has the given ACL version, or -1 for any.
func (c *Client) SetACL(ctx context.Context, path string, acl []zk.ACL, version int32) (*zk.Stat, error) {
	return c.scope().setACL(ctx, path, acl, version)
}

// Multi executes all ops (*zk.CreateRequest, *zk.DeleteRequest,
// *zk.SetDataRequest, *zk.CheckVersionRequest; containers are not among them) or
// none. It is never repeated after an unknown outcome. When an op fails the
// error is that op's, and the responses tell which it was. A create without an ACL
// (nil or empty) gets the client's, as by Create.
func (c *Client) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return c.scope().multi(ctx, ops)
}

// MakeContainerPath creates path, and every missing znode above it, as container
// znodes. The ensemble removes a container some time after its last child was
// removed, so this is for the directories of recipes: use MakePersistentPath for
// the parents of data. Znodes that exist stay as they are. On an ensemble without
// containers the znodes are persistent. It costs one request if only path is
// missing or nothing is, and two more for each missing znode above it.
func (c *Client) MakeContainerPath(ctx context.Context, path string) error {
	return c.scope().makePath(ctx, path, c.core().createContainer)
}

// MakePersistentPath creates path, and every missing znode above it, as persistent
// znodes, which stay until they are deleted. Znodes that exist stay as they are,
// containers included. It costs as much as MakeContainerPath.
func (c *Client) MakePersistentPath(ctx context.Context, path string) error {
	return c.scope().makePath(ctx, path, createPersistent)
}
