package compound

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file deletes a znode and all below it.

const (
	treePasses     = 10        // how often a tree is listed at most: each pass finds what others have created during the last one
	treeBatch      = 100       // znodes that one request deletes at most
	treeBatchBytes = 256 << 10 // of their operations
)

// listed is a znode of a tree, as it was listed.
type listed struct {
	path string
	err  error // why its children were not listed
}

// DeleteTree is framework.Client.DeleteTree.
func DeleteTree(ctx context.Context, w ops.Scope, path string) (deleted []string, err error) {
	if path == "/" {
		return nil, &zkerr.Op{Op: request.NameDelete, Path: path, Err: errors.New("the root is not deleted")}
	}
	for pass := range treePasses {
		all, err := listTree(ctx, w, path)
		if errors.Is(err, zk.ErrNoNode) && pass > 0 {
			return deleted, nil // another client has deleted the rest
		} else if err != nil {
			return deleted, err
		}
		more := false // others have created some
		slices.Reverse(all)
		for len(all) > 0 {
			n := batchOf(w, all)
			left, err := deleteBatch(ctx, w, all[:n], &deleted)
			if err != nil {
				return deleted, err
			}
			more, all = more || left, all[n:]
		}
		if !more {
			return deleted, nil
		}
	}
	return deleted, &zkerr.Op{
		Op: request.NameDelete, Path: path,
		Err: fmt.Errorf("%w: other clients have created znodes in it during each of %d passes", zk.ErrNotEmpty, treePasses),
	}
}

// listTree lists a znode and all below it, level by level.
func listTree(ctx context.Context, w ops.Scope, root string) ([]listed, error) {
	if err := w.Sync(ctx, root); err != nil { // otherwise a member that lags could show old znodes
		return nil, err
	}
	var all []listed
	for level := []string{root}; len(level) > 0; {
		reads := make([]request.Read, len(level))
		for i, path := range level {
			reads[i] = request.Read{Path: path, Children: true}
		}
		results, err := w.ReadAll(ctx, reads)
		if err != nil {
			return nil, err
		}
		above := level
		level = nil
		for i, r := range results {
			switch path := above[i]; {
			case errors.Is(r.Err, zk.ErrNoNode) && len(all) > 0: // deleted meanwhile
			case r.Err != nil && !errors.Is(r.Err, zk.ErrNoAuth):
				return nil, r.Err
			default:
				all = append(all, listed{path, r.Err})
				slices.Sort(r.Children)
				for _, name := range r.Children {
					level = append(level, strings.TrimSuffix(path, "/")+"/"+name)
				}
			}
		}
	}
	return all, nil
}

// batchOf returns how many of the first znodes one request deletes.
func batchOf(w ops.Scope, all []listed) (n int) {
	for size := request.HeadSize + request.OperationHeadSize; n < min(len(all), treeBatch); n++ {
		size += request.OperationSize(&zk.DeleteRequest{Path: w.Root.Fix(all[n].path)})
		if n > 0 && size > min(treeBatchBytes, w.Client.Config.MaxRequest) {
			break
		}
	}
	return n
}

// deleteBatch deletes several znodes in one request, or each alone if that was
// not executed or nobody knows. It reports whether one of them has children
// that were not listed.
func deleteBatch(ctx context.Context, w ops.Scope, batch []listed, deleted *[]string) (left bool, err error) {
	deletes := make([]any, len(batch))
	for i, z := range batch {
		deletes[i] = &zk.DeleteRequest{Path: z.path, Version: ops.AnyVersion}
	}
	_, err = w.Multi(ctx, deletes)
	executed := err == nil || zkerr.MaybeApplied(err) // perhaps
	for _, z := range batch {
		if err != nil {
			switch one := w.Delete(ctx, z.path, ops.AnyVersion); {
			case errors.Is(one, zk.ErrNoNode) && !executed: // another client was faster
				continue
			case errors.Is(one, zk.ErrNotEmpty) && z.err != nil:
				return false, z.err
			case errors.Is(one, zk.ErrNotEmpty):
				left = true
				continue
			case one != nil && !errors.Is(one, zk.ErrNoNode):
				return false, &zkerr.Op{Op: request.NameDelete, Path: z.path, Err: errors.Unwrap(one), Maybe: executed || zkerr.MaybeApplied(one)}
			}
		}
		*deleted = append(*deleted, z.path)
	}
	return left, nil
}
