package framework

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

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
// again: where a change must be made exactly once, use UpdateOnce. A znode that
// was deleted and created again since the read can have the same version, since
// each begins at 0. Then Update writes data computed from the old znode to the
// new one. It costs two requests, and two more for each time that another
// client was quicker.
func (c *Client) Update(ctx context.Context, path string, change func(old []byte, stat *zk.Stat) ([]byte, error)) (*zk.Stat, error) {
	w := c.scope()
	w.budget = w.core.cfg.retry() // for all of it
	for {
		set, err := w.compute(ctx, path, change)
		if err != nil {
			return nil, err
		}
		stat, err := w.set(ctx, path, set.Data, set.Version)
		if !errors.Is(err, zk.ErrBadVersion) || MaybeApplied(err) || !w.rest(ctx) {
			return stat, err
		}
	}
}

// UpdateOnce is Update, and creates marker in the same transaction: see
// MultiOnce. So a change is made at most once for a marker, by whatever
// process, and after a lost answer it goes on. If the marker is there, the
// result is Repeated, even if change would fail now or the znode is gone. It
// costs two requests, as Update does, and two more if change fails or the znode
// is missing.
func (c *Client) UpdateOnce(ctx context.Context, path, marker string, change func(old []byte, stat *zk.Stat) ([]byte, error)) (MultiOnceResult, error) {
	o, err := c.scope().once(marker)
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
func (w scope) compute(ctx context.Context, path string, change func([]byte, *zk.Stat) ([]byte, error)) (*zk.SetDataRequest, error) {
	fail := func(err error) (*zk.SetDataRequest, error) {
		return nil, &zkerr.Op{Op: request.NameUpdate, Path: path, Err: err}
	}
	if change == nil {
		return fail(errors.New("the function is nil"))
	}
	old, stat, err := w.get(ctx, path)
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
	err := o.do(ctx, request.NameGet, o.path, repeatable, func(a *attempt) error {
		err := a.session.sync(ctx, o.full)
		if err == nil {
			found, err = o.read(ctx, a.session, &result)
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
