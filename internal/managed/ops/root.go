package ops

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// NameMissingRoot adds to the error of an operation that found no znode that
// the chroot or the namespace itself is missing, if it is. It asks the ensemble
// once for each in a connection: one that was found is assumed to stay. If it
// gets no answer about a chroot, the error says so, and not that there is no
// znode: see Absent.
func (w Scope) NameMissingRoot(ctx context.Context, err error) error {
	if w.Root == "" || !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	var e *zkerr.Op
	if !errors.As(err, &e) {
		return err
	}
	for _, root := range []request.Prefix{w.Client.Config.Chroot, w.Root} {
		if root == "" || w.Client.knowsRoot(root) {
			continue
		}
		found, lookErr := w.hasRoot(ctx, string(root))
		switch why := w.Client.missing(root, e.Err); {
		case found:
			w.Client.learnRoot(root)
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

// hasRoot reports whether a znode exists. It does not ask why not, as Exists
// does.
func (w Scope) hasRoot(ctx context.Context, full string) (found bool, err error) {
	all := Scope{Client: w.Client, In: w.In, Budget: w.Client.Config.Retry()}
	err = all.Do(ctx, request.NameExists, full, Repeatable, func(a *Attempt) (err error) {
		found, err = Call(ctx, a.Session, Request{Op: request.NameExists, Path: full}, func(conn *zk.Conn) (bool, error) {
			found, _, err := conn.Exists(full)
			return found, err
		}, nil)
		return err
	})
	return found && err == nil, err // the wire client says found after every error
}

// missing returns the error of an operation that has failed with err, because a
// chroot or a namespace is missing.
func (c *Client) missing(root request.Prefix, err error) error {
	switch {
	case root != c.Config.Chroot:
		return fmt.Errorf("namespace %s does not exist: %w", root, err)
	case c.Config.CreateChroot:
		return fmt.Errorf("chroot %s does not exist: %w", root, err)
	}
	return &zkerr.ChrootMissing{Chroot: string(root), Err: err}
}

// RequireChroot returns an error if the chroot is missing, and the client may
// not create it. It is for a call that has found no znode at path, which is no
// error otherwise. It costs one request until the chroot has been found, and
// one after each reconnect.
func (w Scope) RequireChroot(ctx context.Context, op, path string) error {
	err := w.NameMissingRoot(ctx, &zkerr.Op{Op: op, Path: path, Err: zk.ErrNoNode})
	if errors.As(err, new(*zkerr.ChrootMissing)) {
		return err
	}
	return nil
}

func (c *Client) knowsRoot(root request.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.roots[root]
	return ok
}

func (c *Client) forgetRoot(root request.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.roots, root)
}

func (c *Client) learnRoot(root request.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.roots == nil {
		c.roots = make(map[request.Prefix]struct{})
	}
	c.roots[root] = struct{}{}
}

// Connected says that there is another connection, which may lead to other
// znodes.
func (c *Client) Connected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.roots = nil
}
