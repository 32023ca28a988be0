package compound

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file writes a znode that may be missing.

// Put is framework.Client.Put.
func Put(ctx context.Context, w ops.Scope, path string, data []byte, acl []zk.ACL) (version int32, err error) {
	w.Budget = w.Client.Config.Retry() // for all of it
	for {
		stat, err := w.Set(ctx, path, data, ops.AnyVersion)
		if err == nil {
			return stat.Version, nil
		} else if !errors.Is(err, zk.ErrNoNode) || zkerr.MaybeApplied(err) {
			return 0, err
		}
		_, err = w.Create(ctx, path, data, zk.FlagPersistent, acl)
		if !errors.Is(err, zk.ErrNodeExists) || zkerr.MaybeApplied(err) || !w.Rest(ctx) {
			return 0, err
		}
	}
}
