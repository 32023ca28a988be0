package compound

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file writes data that were computed from those before, if nobody has
// written in between.

// Update writes what change makes of the data of a znode.
func Update(ctx context.Context, w ops.Scope, path string, change func(old []byte, stat *zk.Stat) ([]byte, error)) (*zk.Stat, error) {
	w.Budget = w.Client.Config.Retry() // for all of it
	for {
		set, err := compute(ctx, w, path, change)
		if err != nil {
			return nil, err
		}
		stat, err := w.Set(ctx, path, set.Data, set.Version)
		if !errors.Is(err, zk.ErrBadVersion) || zkerr.MaybeApplied(err) || !w.Rest(ctx) {
			return stat, err
		}
	}
}

// UpdateOnce is Update, with a marker: see once.go.
func UpdateOnce(ctx context.Context, w ops.Scope, path, marker string, change func(old []byte, stat *zk.Stat) ([]byte, error)) (MultiOnceResult, error) {
	o, err := newOnce(w, marker)
	if err != nil {
		return MultiOnceResult{}, err
	}
	for {
		set, err := compute(ctx, o.Scope, path, change)
		if err != nil {
			return o.settle(ctx, err)
		}
		result, err := o.send(ctx, nil, []any{set})
		// If an earlier try is open, it does not matter here: it has the same marker.
		if !errors.Is(err, zk.ErrBadVersion) || !o.Rest(ctx) {
			return result, err
		}
	}
}

// compute reads a znode, and returns the write that change wants.
func compute(ctx context.Context, w ops.Scope, path string, change func([]byte, *zk.Stat) ([]byte, error)) (*zk.SetDataRequest, error) {
	fail := func(err error) (*zk.SetDataRequest, error) {
		return nil, &zkerr.Op{Op: request.NameUpdate, Path: path, Err: err}
	}
	if change == nil {
		return fail(errors.New("the function is nil"))
	}
	old, stat, err := w.Get(ctx, path)
	if err != nil {
		return nil, err
	}
	if stat.Version == -1 {
		return fail(fmt.Errorf("%w: it is -1, which any version matches: write it once by Set", zk.ErrBadVersion))
	}
	data, err := change(old, stat)
	if err != nil {
		return fail(err)
	}
	return &zk.SetDataRequest{Path: path, Data: data, Version: stat.Version}, nil
}

// settle looks for the marker after nothing could be computed. An earlier call
// may have made the change already.
func (o *once) settle(ctx context.Context, failed error) (MultiOnceResult, error) {
	var result MultiOnceResult
	var found bool
	err := o.Do(ctx, request.NameGet, o.path, ops.Repeatable, func(a *ops.Attempt) error {
		err := a.Session.Sync(ctx, o.full)
		if err == nil {
			found, err = o.read(ctx, a.Session, &result)
		}
		return err
	})
	if err == nil && found {
		result.Repeated = !o.open
		return result, nil
	}
	var e *zkerr.Op
	if errors.As(failed, &e) {
		failed = &zkerr.Op{Op: e.Op, Path: e.Path, Err: e.Err, Maybe: o.open}
	}
	return MultiOnceResult{}, failed
}
