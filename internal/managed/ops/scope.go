package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/turns"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file has the operations that are one request (Create, Get, Delete, Sync,
// ...) and those that make paths.

// Scope says where operations are executed: in any session, or in one.
type Scope struct {
	Client *Client
	Root   request.Prefix  // of the paths
	In     *Session        // nil: any
	Budget backoff.BackOff // of the operation that this is a part of; nil: a new one

	Patient   bool                 // waits for a connection without end, even while the client is refused
	Allowance ephemerals.Allowance // of the ephemeral znodes that are created

	unique bool // a path names one znode for ever, so a write to it may be repeated
}

// requestAt makes a request of one path, with retries. size is the size of its
// body without the path. settle, if there is one, decides about the result of
// each try.
func requestAt[T any](ctx context.Context, w Scope, op, path string, size int, again Idempotence, wire func(conn *zk.Conn, full string) (T, error),
	settle func(*Attempt, T, error) (T, error),
) (T, error) {
	var value T
	full, err := w.fit(op, path, zk.FlagPersistent, size)
	if err != nil {
		return value, err
	}
	err = w.Do(ctx, op, path, again, func(a *Attempt) error {
		var err error
		s := a.Session
		// This is Call, written out: it keeps one closure instead of two.
		value, err = Detach(ctx, s, func() (T, error) {
			return Observed(ctx, s, Request{Op: op, Path: full}, func(conn *zk.Conn) (T, error) { return wire(conn, full) })
		}, nil)
		if settle != nil {
			value, err = settle(a, value, err)
		}
		return err
	})
	if err != nil {
		var none T
		return none, w.NameMissingRoot(ctx, err)
	}
	return value, nil
}

// fit returns the full path of a request, or an error if it has none or is too
// large. flags are those of a create. size is that of its body without the
// path.
func (w Scope) fit(op, path string, flags int32, size int) (full string, err error) {
	if full, err = w.Root.FixNew(path, flags); err == nil {
		err = w.Client.Fits(request.TextSize(full) + size)
	}
	if err != nil {
		return "", &zkerr.Op{Op: op, Path: path, Err: err}
	}
	return full, nil
}

// Node is the result of reading a znode.
type Node struct {
	Data     []byte
	Children []string
	acl      []zk.ACL
	Stat     *zk.Stat
	Found    bool
}

// Create is framework.Client.Create, once: see sent_once.go.
func (w Scope) Create(ctx context.Context, path string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	if len(acl) == 0 {
		acl = w.Client.Config.ACL
	}
	return w.createOnce(ctx, path, data, flags, request.CreateSize(data, acl), func(conn *zk.Conn, full string) (string, error) {
		if flags == zk.FlagContainer {
			return w.Client.createContainer(conn, full, data, acl)
		}
		return request.Create(conn, full, data, flags, acl)
	})
}

// longestTTL is the longest time to live that the protocol can express.
const longestTTL = time.Duration(wire.MaxTTL) * time.Millisecond

// CreateTTL is framework.Client.CreateTTL.
func (w Scope) CreateTTL(ctx context.Context, path string, data []byte, flags int32, ttl time.Duration, acl []zk.ACL) (string, error) {
	if ttl < time.Millisecond || ttl > longestTTL {
		return "", &zkerr.Op{Op: request.NameCreate, Path: path, Err: fmt.Errorf("time to live %v: must be from 1ms to %v", ttl, longestTTL)}
	}
	if len(acl) == 0 {
		acl = w.Client.Config.ACL
	}
	return w.createOnce(ctx, path, data, flags, request.CreateSize(data, acl)+request.Int64Size, func(conn *zk.Conn, full string) (string, error) {
		made, err := conn.CreateTTL(full, data, flags, acl, ttl)
		if err == nil {
			err = request.CheckMade(full, made, flags)
		}
		return made, err
	})
}

// Delete is framework.Client.Delete.
func (w Scope) Delete(ctx context.Context, path string, version int32) error {
	_, err := requestAt(ctx, w, request.NameDelete, path, request.Int32Size, Repeatable, func(conn *zk.Conn, full string) (struct{}, error) {
		return struct{}{}, conn.Delete(full, version)
	}, func(a *Attempt, v struct{}, err error) (struct{}, error) {
		return v, a.Deleted(err)
	})
	return err
}

// Get is framework.Client.Get.
func (w Scope) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	n, err := requestAt(ctx, w, request.NameGet, path, request.BoolSize, Repeatable, readData, nil)
	return n.Data, n.Stat, err
}

// Exists is framework.Client.Exists.
func (w Scope) Exists(ctx context.Context, path string) (bool, *zk.Stat, error) {
	n, err := requestAt(ctx, w, request.NameExists, path, request.BoolSize, Repeatable, func(conn *zk.Conn, full string) (n Node, err error) {
		n.Found, n.Stat, err = conn.Exists(full)
		return n, err
	}, nil)
	if !n.Found {
		return false, nil, err
	}
	return true, n.Stat, err
}

// Children is framework.Client.Children.
func (w Scope) Children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	n, err := requestAt(ctx, w, request.NameList, path, request.BoolSize, Repeatable, func(conn *zk.Conn, full string) (n Node, err error) {
		n.Children, n.Stat, err = conn.Children(full)
		return n, err
	}, func(a *Attempt, n Node, err error) (Node, error) {
		a.Session.Listed(w.Root.Fix(path), n.Children)
		return n, err
	})
	return n.Children, n.Stat, err
}

// Sync is framework.Client.Sync.
func (w Scope) Sync(ctx context.Context, path string) error {
	_, err := requestAt(ctx, w, request.NameSync, path, 0, Repeatable, func(conn *zk.Conn, full string) (string, error) {
		return conn.Sync(full)
	}, nil)
	return err
}

// GetACL is framework.Client.GetACL.
func (w Scope) GetACL(ctx context.Context, path string) ([]zk.ACL, *zk.Stat, error) {
	n, err := requestAt(ctx, w, request.NameGetACL, path, 0, Repeatable, readACL, nil)
	return n.acl, n.Stat, err
}

// MakeContainerPath creates path and every missing znode above it, as
// containers.
func (w Scope) MakeContainerPath(ctx context.Context, path string) error {
	return w.makePath(ctx, path, w.Client.createContainer)
}

// MakePersistentPath creates path and every missing znode above it, as
// persistent znodes.
func (w Scope) MakePersistentPath(ctx context.Context, path string) error {
	return w.makePath(ctx, path, createPersistent)
}

// MakeDirectory is makeDirs for a directory of a recipe.
func (w Scope) MakeDirectory(ctx context.Context, path string) error {
	return w.makeDirs(ctx, path, w.Client.createDirectory)
}

// znodeCreator creates one znode of a path.
type znodeCreator func(conn *zk.Conn, full string, data []byte, acl []zk.ACL) (string, error)

func createPersistent(conn *zk.Conn, full string, data []byte, acl []zk.ACL) (string, error) {
	return request.Create(conn, full, data, zk.FlagPersistent, acl)
}

// makePath is makeDirs for a user, who also gets what a recipe has made: see
// unused.go.
func (w Scope) makePath(ctx context.Context, path string, create znodeCreator) error {
	w.Client.unused.wanted(w.Root.Fix(path))
	return w.makeDirs(ctx, path, create)
}

// makeDirs creates path and every missing znode above it. It begins at the
// lower end, so that it needs no permission for ancestors that exist.
func (w Scope) makeDirs(ctx context.Context, path string, create znodeCreator) error {
	full, err := w.fit(request.NameCreate, path, zk.FlagPersistent, request.CreateSize(nil, w.Client.Config.ACL))
	if err != nil {
		return err
	}
	return w.Do(ctx, request.NameCreate, path, Repeatable, func(a *Attempt) error {
		return w.Client.makeDir(ctx, a.Session, full, create)
	})
}

// makeDir creates full, and what is missing above it. It creates the chroot,
// and what is above that, only if the client may: as persistent znodes, since
// the ensemble removes an empty container.
func (c *Client) makeDir(ctx context.Context, s *Session, full string, create znodeCreator) error {
	if full == "/" {
		return nil
	}
	exists := func() (bool, error) {
		found, err := Call(ctx, s, Request{Op: request.NameExists, Path: full}, func(conn *zk.Conn) (bool, error) {
			found, _, err := conn.Exists(full)
			return found, err
		}, nil)
		if errors.Is(err, zk.ErrNoAuth) { // it may not be read, so it exists
			return true, nil
		}
		return found && err == nil, err // the wire client says found after every error
	}
	isChroot := full == string(c.Config.Chroot)
	if isChroot && !c.Config.CreateChroot {
		found, err := exists()
		switch {
		case found:
			return nil
		case err != nil:
			return err
		}
		c.forgetRoot(c.Config.Chroot)
		return c.missing(c.Config.Chroot, zk.ErrNoNode)
	}
	if isChroot {
		create = createPersistent
	}
	for again := (turns.Turns{}); ; again.Pause(ctx, s.Over()) {
		_, err := Call(ctx, s, Request{Op: request.NameCreate, Path: full}, func(conn *zk.Conn) (string, error) {
			return create(conn, full, nil, c.Config.ACL)
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
