package framework

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// nameMissingRoot adds to the error of an operation that found no znode that
// the chroot or the namespace itself is missing, if it is. It asks the ensemble
// once for each in a connection: one that was found is assumed to stay. If it
// gets no answer about a chroot, the error says so, and not that there is no
// znode: see Absent.
func (w scope) nameMissingRoot(ctx context.Context, err error) error {
	var e *zkerr.Op
	if w.root == "" || !errors.Is(err, zk.ErrNoNode) || !errors.As(err, &e) {
		return err
	}
	for _, root := range []request.Prefix{w.core.chroot, w.root} {
		if root == "" || w.core.knowsRoot(root) {
			continue
		}
		all := scope{core: w.core, in: w.in, budget: w.core.cfg.retry()}
		found, _, lookErr := all.exists(ctx, string(root))
		switch why := w.core.missing(root, e.Err); {
		case found:
			w.core.learnRoot(root)
			continue
		case lookErr == nil:
			err = why
		case errors.As(why, new(*zkerr.ChrootMissing)):
			err = lookErr
		default:
			return err
		}
		return &zkerr.Op{Op: e.Op, Path: e.Path, Root: e.Root, Err: err, Maybe: e.Maybe}
	}
	return err
}

// missing returns the error of an operation that has failed with err, because a
// chroot or a namespace is missing.
func (c *core) missing(root request.Prefix, err error) error {
	switch {
	case root != c.chroot:
		return fmt.Errorf("namespace %s does not exist: %w", root, err)
	case c.cfg.createChroot:
		return fmt.Errorf("chroot %s does not exist: %w", root, err)
	}
	return &zkerr.ChrootMissing{Chroot: string(root), Err: err}
}

// requireChroot returns an error if the chroot is missing, and the client may
// not create it. It is for a call that has found no znode at path, which is no
// error otherwise. It costs one request until the chroot has been found, and
// one after each reconnect.
func (w scope) requireChroot(ctx context.Context, op, path string) error {
	err := w.nameMissingRoot(ctx, &zkerr.Op{Op: op, Path: path, Err: zk.ErrNoNode})
	if errors.As(err, new(*zkerr.ChrootMissing)) {
		return err
	}
	return nil
}

// withChroot makes a create. If a znode is missing, and the client may create
// its chroot, it does so, and makes the create once more, which was not
// executed. It does not ask first whether the chroot is there by now: another
// client may have created it since.
func withChroot[T any](ctx context.Context, w scope, create func(scope) (T, error)) (T, error) {
	c := w.core
	if !c.cfg.createChroot || c.chroot == "" {
		return create(w)
	}
	if w.budget == nil {
		w.budget = c.cfg.retry() // for all of it
	}
	value, err := create(w)
	if !errors.Is(err, zk.ErrNoNode) {
		return value, err
	}
	all := scope{core: c, in: w.in, budget: w.budget}
	if err := all.makePath(ctx, string(c.chroot), createPersistent); err != nil {
		return value, err
	}
	c.learnEnsemble()
	return create(w)
}

func (c *core) knowsRoot(root request.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.roots[root]
	return ok
}

func (c *core) forgetRoot(root request.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.roots, root)
}

func (c *core) learnRoot(root request.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.roots == nil {
		c.roots = make(map[request.Prefix]struct{})
	}
	c.roots[root] = struct{}{}
}
