package ops

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file writes a znode that may be missing.

// Put is framework.Client.Put.
func (w Scope) Put(ctx context.Context, path string, data []byte, acl []zk.ACL) (version int32, err error) {
	w.Budget = w.Client.Config.Retry() // for all of it
	for {
		stat, err := w.Set(ctx, path, data, anyVersion)
		if err == nil {
			return stat.Version, nil
		} else if !errors.Is(err, zk.ErrNoNode) || zkerr.MaybeApplied(err) {
			return 0, err
		}
		_, err = w.Create(ctx, path, data, zk.FlagPersistent, acl)
		if !errors.Is(err, zk.ErrNodeExists) || zkerr.MaybeApplied(err) || !w.rest(ctx) {
			return 0, err
		}
	}
}
