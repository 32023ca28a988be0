package compound

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/turns"
	"github.com/zkrecipes/zkrecipes/internal/version"
)

// This file deletes a znode if it is the one that the caller knows.

// DeleteCreated is Client.DeleteCreated. It sends each delete once, for the
// version that it has just read. After an unknown outcome it syncs and reads
// again.
func DeleteCreated(ctx context.Context, w ops.Scope, path string, created *zk.Stat) error {
	if created == nil {
		return &zkerr.Op{Op: request.NameDelete, Path: path, Err: errors.New("the stat of the znode is nil")}
	}
	if w.Budget == nil {
		w.Budget = w.Client.Config.Retry()
	}
	fail := func(err error, unsure bool) error {
		var e *zkerr.Op
		if errors.As(err, &e) {
			err = e.Err
		}
		return &zkerr.Op{Op: request.NameDelete, Path: path, Err: err, Maybe: unsure}
	}
	var again turns.Turns
	for unsure := false; ; {
		if unsure {
			if err := w.Sync(ctx, path); err != nil {
				return fail(err, unsure)
			}
		}
		found, stat, err := w.Exists(ctx, path)
		switch {
		case err != nil:
			return fail(err, unsure)
		case found && version.CreatedOf(stat) == version.CreatedOf(created):
			err = w.DeleteOnce(ctx, path, stat.Version)
		case unsure:
			return nil // an earlier try has deleted it, or another client
		default:
			return fail(zk.ErrNoNode, false)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
			again.Pause(ctx, w.Client.Closing) // it has changed since: read it again
			continue
		case !zkerr.MaybeApplied(err) && zkerr.Classify(errors.Unwrap(err)) == zkerr.Final:
			return fail(err, unsure)
		}
		unsure = unsure || zkerr.MaybeApplied(err)
		if !w.Rest(ctx) {
			return fail(err, unsure)
		}
	}
}
