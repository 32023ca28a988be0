package ops

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file writes data that were computed from those before, if nobody has
// written in between.

// Update writes what change makes of the data of a znode.
func (w Scope) Update(ctx context.Context, path string, change func(old []byte, stat *zk.Stat) ([]byte, error)) (*zk.Stat, error) {
	w.Budget = w.Client.Config.Retry() // for all of it
	for {
		set, err := w.compute(ctx, path, change)
		if err != nil {
			return nil, err
		}
		stat, err := w.Set(ctx, path, set.Data, set.Version)
		if !errors.Is(err, zk.ErrBadVersion) || zkerr.MaybeApplied(err) || !w.rest(ctx) {
			return stat, err
		}
	}
}

// UpdateOnce is update, with a marker: see once.
func (w Scope) UpdateOnce(ctx context.Context, path, marker string, change func(old []byte, stat *zk.Stat) ([]byte, error)) (MultiOnceResult, error) {
	o, err := w.once(marker)
	if err != nil {
		return MultiOnceResult{}, err
	}
	for {
		set, err := o.compute(ctx, path, change)
		if err != nil {
			return o.settle(ctx, err)
		}
		result, err := o.send(ctx, nil, []any{set})
		// If an earlier try is open, it does not matter here: it has the same marker.
		if !errors.Is(err, zk.ErrBadVersion) || !o.rest(ctx) {
			return result, err
		}
	}
}

// compute reads a znode, and returns the write that change wants.
func (w Scope) compute(ctx context.Context, path string, change func([]byte, *zk.Stat) ([]byte, error)) (*zk.SetDataRequest, error) {
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
	err := o.Do(ctx, request.NameGet, o.path, Repeatable, func(a *Attempt) error {
		err := a.Session.sync(ctx, o.full)
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
