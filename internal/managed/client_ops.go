package managed

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/compound"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// This file has the operations of a client that are executed in any session.

// Create is framework.Client.Create.
func (c *Client) Create(ctx context.Context, path string, data []byte, flags int32, acl ...zk.ACL) (string, error) {
	return c.scope().Create(ctx, path, data, flags, acl)
}

// Get is framework.Client.Get.
func (c *Client) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	return c.scope().Get(ctx, path)
}

// Set is framework.Client.Set.
func (c *Client) Set(ctx context.Context, path string, data []byte, version int32) (*zk.Stat, error) {
	return c.scope().Set(ctx, path, data, version)
}

// Delete is framework.Client.Delete.
func (c *Client) Delete(ctx context.Context, path string, version int32) error {
	return c.scope().Delete(ctx, path, version)
}

// DeleteCreated is framework.Client.DeleteCreated.
func (c *Client) DeleteCreated(ctx context.Context, path string, created *zk.Stat) error {
	return compound.DeleteCreated(ctx, c.scope(), path, created)
}

// Exists is framework.Client.Exists.
func (c *Client) Exists(ctx context.Context, path string) (bool, *zk.Stat, error) {
	return c.scope().Exists(ctx, path)
}

// Children is framework.Client.Children.
func (c *Client) Children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	return c.scope().Children(ctx, path)
}

// Sync is framework.Client.Sync.
func (c *Client) Sync(ctx context.Context, path string) error { return c.scope().Sync(ctx, path) }

// GetACL is framework.Client.GetACL.
func (c *Client) GetACL(ctx context.Context, path string) ([]zk.ACL, *zk.Stat, error) {
	return c.scope().GetACL(ctx, path)
}

// SetACL is framework.Client.SetACL.
func (c *Client) SetACL(ctx context.Context, path string, acl []zk.ACL, version int32) (*zk.Stat, error) {
	return c.scope().SetACL(ctx, path, acl, version)
}

// Multi is framework.Client.Multi.
func (c *Client) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return c.scope().Multi(ctx, ops)
}

// MakeContainerPath is framework.Client.MakeContainerPath.
func (c *Client) MakeContainerPath(ctx context.Context, path string) error {
	return c.scope().MakeContainerPath(ctx, path)
}

// MakePersistentPath is framework.Client.MakePersistentPath.
func (c *Client) MakePersistentPath(ctx context.Context, path string) error {
	return c.scope().MakePersistentPath(ctx, path)
}

// ValidatePath returns an error unless path is a valid absolute path of a
// znode. The rules are those of the servers.
func ValidatePath(path string) error { return request.ValidatePath(path) }

func (c *Client) scope() ops.Scope { return ops.Scope{Client: c.core().ops, Root: c.root} }

// MultiOnce is framework.Client.MultiOnce.
func (c *Client) MultiOnce(ctx context.Context, marker string, note []byte, ops ...any) (compound.MultiOnceResult, error) {
	return compound.MultiOnce(ctx, c.scope(), marker, note, ops...)
}

// SetUnique is Set at any version of a znode whose path never names
// another one. It is repeated after an unknown outcome.
func (c *Client) SetUnique(ctx context.Context, path string, data []byte) error {
	return c.scope().SetUnique(ctx, path, data)
}

// CreateTTL is framework.Client.CreateTTL.
func (c *Client) CreateTTL(ctx context.Context, path string, data []byte, flags int32, ttl time.Duration, acl ...zk.ACL) (string, error) {
	return c.scope().CreateTTL(ctx, path, data, flags, ttl, acl)
}

// MakeDirectory is MakeContainerPath for a znode that the caller is
// about to create in dir. What it has made is deleted in the background if
// nothing was created in it within a session timeout, or when the client is
// closed, unless the user makes it too. That costs another request, unless
// Filled or Used was called.
func (c *Client) MakeDirectory(ctx context.Context, dir string) error {
	return c.scope().MakeDirectory(ctx, dir)
}

// Filled says that something was created in a directory.
func (c *Client) Filled(dir string) { c.core().ops.Directories.NoteFilled(c.root.Fix(dir)) }

// Used is Filled for a contender, in a directory that recipes make as a
// container: framework.WithSweep may delete it.
func (c *Client) Used(dir string) {
	c.core().ops.Directories.Used(c.root.Fix(dir))
}

// ReadAll is Session.ReadAll in any session.
func (c *Client) ReadAll(ctx context.Context, reads ...request.Read) ([]request.Result, error) {
	return c.scope().ReadAll(ctx, reads)
}

// ReadAll is framework.Client.ReadAll in a client or a session. form makes a
// value of what one read has found.
func ReadAll[R ~struct {
	Path     string
	Children bool
}, T any](ctx context.Context, in interface {
	ReadAll(ctx context.Context, reads ...request.Read) ([]request.Result, error)
}, reads []R, form func(request.Result) T,
) ([]T, error) {
	asked := make([]request.Read, len(reads))
	for i, r := range reads {
		asked[i] = request.Read(r)
	}
	found, err := in.ReadAll(ctx, asked...)
	if err != nil {
		return nil, err
	}
	results := make([]T, len(found))
	for i, r := range found {
		results[i] = form(r)
	}
	return results, nil
}

// Put is framework.Client.Put.
func (c *Client) Put(ctx context.Context, path string, data []byte, acl ...zk.ACL) (version int32, err error) {
	return compound.Put(ctx, c.scope(), path, data, acl)
}

// DeleteTree is framework.Client.DeleteTree.
func (c *Client) DeleteTree(ctx context.Context, path string) (deleted []string, err error) {
	return compound.DeleteTree(ctx, c.scope(), path)
}

// Update is framework.Client.Update.
func (c *Client) Update(ctx context.Context, path string, change func(old []byte, stat *zk.Stat) ([]byte, error)) (*zk.Stat, error) {
	return compound.Update(ctx, c.scope(), path, change)
}

// UpdateOnce is framework.Client.UpdateOnce.
func (c *Client) UpdateOnce(ctx context.Context, path, marker string, change func(old []byte, stat *zk.Stat) ([]byte, error)) (compound.MultiOnceResult, error) {
	return compound.UpdateOnce(ctx, c.scope(), path, marker, change)
}
