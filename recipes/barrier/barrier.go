package barrier

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/missing"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recheck"
)

// Barrier holds back those who wait until it is removed. It is a persistent
// znode, as Curator's DistributedBarrier and Kazoo's Barrier are. It is safe
// for concurrent use. New returns one; the zero Barrier fails.
//
// What it costs all clients, if no event is lost:
//
//   - set: 1 request, 1 transaction
//   - a wait begins: 2 requests, 1 watch
//   - removed before ten that wait: 14 requests, 1 transaction, wakes 10
type Barrier struct {
	client *managed.Client
	path   string
	cfg    option.Shared
}

// New returns the barrier at path. It makes no request.
func New(client *framework.Client, path string, opts ...Option) (*Barrier, error) {
	cfg, err := newConfig(client, path, opts)
	if err != nil {
		return nil, fmt.Errorf("barrier: new: %w", err)
	}
	return &Barrier{(*managed.Client)(client), path, cfg}, nil
}

// Set puts the barrier in place, unless it is. It outlives this process. If
// framework.MaybeApplied(err) is true, the barrier may be in place now, appear
// later, or be removed already. Set does not repeat the request, since it could
// bring back a barrier that others have removed. Set costs one request, and
// more if the directory is missing, which becomes a container.
func (b *Barrier) Set(ctx context.Context) error {
	if b == nil || b.client == nil {
		return errZero
	}
	dir, _ := layout.Split(b.path)
	err := missing.Create(ctx, b.client.Done(), dir, func() error { return b.client.MakeDirectory(ctx, dir) }, func() error {
		_, err := b.client.Create(ctx, b.path, b.cfg.Data, zk.FlagPersistent, b.cfg.ACL...)
		return err
	})
	if err != nil && (framework.MaybeApplied(err) || !errors.Is(err, zk.ErrNodeExists)) {
		return failed(ctx, "set", b.path, err)
	}
	return nil
}

// Remove deletes the barrier that exists at the call, and no barrier that is
// set later, within the limits of framework.Client.DeleteCreated. Without a
// barrier it returns nil. It fails if the client's chroot is missing. It costs
// four requests, or three without a barrier.
func (b *Barrier) Remove(ctx context.Context) error {
	if b == nil || b.client == nil {
		return errZero
	}
	err := b.client.Sync(ctx, b.path) // the member may be behind
	if err == nil {
		var found bool
		var stat *zk.Stat
		switch found, stat, err = b.client.Exists(ctx, b.path); {
		case err != nil:
		case found:
			err = b.client.DeleteCreated(ctx, b.path, stat)
		default: // the error of this tells a missing barrier from a missing chroot
			_, _, err = b.client.Get(ctx, b.path)
		}
	}
	if err != nil && !framework.Absent(err) {
		return failed(ctx, "remove", b.path, err)
	}
	return nil
}

// Wait returns nil when the barrier that exists at the call has been removed,
// even if it has been set again since. Without a barrier it returns nil
// immediately. It fails when ctx ends, and when no server answers until a
// budget of the client's retry policy is used up. It fails if the client's
// chroot is missing: see framework.Absent. It continues after a lost session.
//
// It costs a sync, and a read with a watch, which is given up when ctx ends:
// see framework.Session.Unwatch. While it waits it looks about once per session
// timeout, in case an event was lost.
func (b *Barrier) Wait(ctx context.Context) error {
	if b == nil || b.client == nil {
		return errZero
	}
	err := b.client.Sync(ctx, b.path) // the member may be behind
	for seen := (version.Created{}); err == nil; {
		var sess *managed.Session
		if sess, err = b.client.AwaitSession(ctx); err != nil {
			break
		}
		if err = b.waitIn(ctx, sess, &seen); err == nil {
			return nil
		}
		if ctx.Err() == nil && sess.Err() != nil {
			err = nil // go on in the next session
		}
	}
	return failed(ctx, "wait for", b.path, err)
}

// waitIn waits in one session. seen is the barrier's znode, zero if none was
// seen yet.
func (b *Barrier) waitIn(ctx context.Context, sess *managed.Session, seen *version.Created) error {
	var patience recheck.Patience
	for {
		_, stat, changed, err := sess.GetAndWatch(ctx, b.path)
		if framework.Absent(err) {
			return nil
		}
		if err != nil {
			return err
		}
		now := version.CreatedOf(stat)
		if *seen != (version.Created{}) && *seen != now {
			sess.Unwatch(changed)
			return nil
		}
		*seen = now
		err = recheck.Wait(ctx, sess, func() (bool, error) { return true, patience.Look(ctx, sess, b.path) }, changed)
		sess.Unwatch(changed)
		if err != nil {
			return err
		}
	}
}
