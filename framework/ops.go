package framework

import (
	"context"
	"errors"
	"fmt"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/turns"
)

// scope says where operations are executed: in any session, or in one.
type scope struct {
	core   *core
	root   request.Prefix
	in     *session        // nil: any
	budget backoff.BackOff // of the operation that this is a part of; nil: a new one

	patient bool // waits for a connection without end, even while the client is refused
	bundles bool // watches that are asked for together are armed together
	unique  bool // a path names one znode for ever, so a write to it may be repeated
	allowance
}

func (c *Client) scope() scope { return scope{core: c.core(), root: c.root} }

// requestAt makes a request of one path, with retries. size is the size of its
// body without the path. settle, if there is one, decides about the result of
// each try.
func requestAt[T any](ctx context.Context, w scope, op, path string, size int, again idempotence, wire func(conn *zk.Conn, full string) (T, error),
	settle func(*attempt, T, error) (T, error),
) (T, error) {
	var value T
	full, err := w.fit(op, path, zk.FlagPersistent, size)
	if err != nil {
		return value, err
	}
	err = w.do(ctx, op, path, again, func(a *attempt) error {
		var err error
		value, err = call(ctx, a.session, Request{Op: op, Path: full}, func(conn *zk.Conn) (T, error) { return wire(conn, full) }, nil)
		if settle != nil {
			value, err = settle(a, value, err)
		}
		return err
	})
	if err != nil {
		var none T
		return none, w.nameMissingRoot(ctx, err)
	}
	return value, nil
}

// fit returns the full path of a request, or an error if it has none or is too
// large. flags are those of a create. size is that of its body without the
// path.
func (w scope) fit(op, path string, flags int32, size int) (full string, err error) {
	if full, err = w.root.FixNew(path, flags); err == nil {
		err = w.core.cfg.fits(request.TextSize(full) + size)
	}
	if err != nil {
		return "", &zkerr.Op{Op: op, Path: path, Err: err}
	}
	return full, nil
}

// node is the result of reading a znode.
type node struct {
	data     []byte
	children []string
	acl      []zk.ACL
	stat     *zk.Stat
	found    bool
}

func (w scope) create(ctx context.Context, path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	if len(acl) == 0 {
		acl = w.core.cfg.acl
	}
	return w.createOnce(ctx, path, data, flags, request.CreateSize(data, acl), func(conn *zk.Conn, full string) (string, error) {
		if flags == zk.FlagContainer {
			return w.core.createContainer(conn, full, data, acl)
		}
		return request.Create(conn, full, data, flags, acl)
	})
}

// znodeCreator creates one znode of a path.
type znodeCreator func(conn *zk.Conn, full string, data []byte, acl []zk.ACL) (string, error)

func createPersistent(conn *zk.Conn, full string, data []byte, acl []zk.ACL) (string, error) {
	return request.Create(conn, full, data, zk.FlagPersistent, acl)
}

func (w scope) delete(ctx context.Context, path string, version int32) error {
	_, err := requestAt(ctx, w, request.NameDelete, path, request.Int32Size, repeatable, func(conn *zk.Conn, full string) (struct{}, error) {
		return struct{}{}, conn.Delete(full, version)
	}, func(a *attempt, v struct{}, err error) (struct{}, error) {
		return v, a.deleted(err)
	})
	return err
}

func (w scope) get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	n, err := requestAt(ctx, w, request.NameGet, path, request.BoolSize, repeatable, readData, nil)
	return n.data, n.stat, err
}

func (w scope) exists(ctx context.Context, path string) (bool, *zk.Stat, error) {
	n, err := requestAt(ctx, w, request.NameExists, path, request.BoolSize, repeatable, func(conn *zk.Conn, full string) (n node, err error) {
		n.found, n.stat, err = conn.Exists(full)
		return n, err
	}, nil)
	if !n.found {
		return false, nil, err
	}
	return true, n.stat, err
}

func (w scope) children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	n, err := requestAt(ctx, w, request.NameList, path, request.BoolSize, repeatable, func(conn *zk.Conn, full string) (n node, err error) {
		n.children, n.stat, err = conn.Children(full)
		return n, err
	}, func(a *attempt, n node, err error) (node, error) {
		a.session.discardStrays(w.root.Fix(path), n.children)
		return n, err
	})
	return n.children, n.stat, err
}

func (w scope) sync(ctx context.Context, path string) error {
	_, err := requestAt(ctx, w, request.NameSync, path, 0, repeatable, func(conn *zk.Conn, full string) (string, error) {
		return conn.Sync(full)
	}, nil)
	return err
}

func (w scope) getACL(ctx context.Context, path string) ([]zk.ACL, *zk.Stat, error) {
	n, err := requestAt(ctx, w, request.NameGetACL, path, 0, repeatable, readACL, nil)
	return n.acl, n.stat, err
}

// makePath is makeDirs for a user, who also gets what a recipe has made: see
// unused.go.
func (w scope) makePath(ctx context.Context, path string, create znodeCreator) error {
	w.core.unused.used(w.root.Fix(path))
	return w.makeDirs(ctx, path, create)
}

// makeDirs creates path and every missing znode above it. It begins at the
// lower end, so that it needs no permission for ancestors that exist.
func (w scope) makeDirs(ctx context.Context, path string, create znodeCreator) error {
	full, err := w.fit(request.NameCreate, path, zk.FlagPersistent, request.CreateSize(nil, w.core.cfg.acl))
	if err != nil {
		return err
	}
	return w.do(ctx, request.NameCreate, path, repeatable, func(a *attempt) error {
		return w.core.makeDir(ctx, a.session, full, create)
	})
}

// makeDir creates full, and what is missing above it. It creates the chroot,
// and what is above that, only if the client may: as persistent znodes, since
// the ensemble removes an empty container.
func (c *core) makeDir(ctx context.Context, s *session, full string, create znodeCreator) error {
	if full == "/" {
		return nil
	}
	exists := func() (bool, error) {
		found, err := call(ctx, s, Request{Op: request.NameExists, Path: full}, func(conn *zk.Conn) (bool, error) {
			found, _, err := conn.Exists(full)
			return found, err
		}, nil)
		if errors.Is(err, zk.ErrNoAuth) { // it may not be read, so it exists
			return true, nil
		}
		return found && err == nil, err // the wire client says found after every error
	}
	isChroot := full == string(c.chroot)
	if isChroot && !c.cfg.createChroot {
		found, err := exists()
		switch {
		case found:
			return nil
		case err != nil:
			return err
		}
		c.forgetRoot(c.chroot)
		return c.missing(c.chroot, zk.ErrNoNode)
	}
	if isChroot {
		create = createPersistent
	}
	for again := (turns.Turns{}); ; again.Pause(ctx, s.over) {
		_, err := call(ctx, s, Request{Op: request.NameCreate, Path: full}, func(conn *zk.Conn) (string, error) {
			return create(conn, full, nil, c.cfg.acl)
		}, nil)
		parent, _ := layout.Split(full)
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			c.unused.used(parent)
			return nil
		case errors.Is(err, zk.ErrNoAuth):
			// The server checks the permission to create before it checks
			// whether the znode exists.
			found, existsErr := exists()
			switch {
			case found:
				return nil
			case existsErr != nil:
				return existsErr
			case isChroot:
				return fmt.Errorf("chroot %s: %w", full, err)
			}
			return err
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}
		// The parent is missing, or was removed in between. ctx and the session
		// bound this loop, and a container is not removed before it has had a
		// child, or has been unused for a while.
		if err := c.makeDir(ctx, s, parent, create); err != nil {
			return err
		}
	}
}
