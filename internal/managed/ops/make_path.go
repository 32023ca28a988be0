package ops

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/turns"
)

// This file makes directories: paths for users and for recipes, and the chroot.

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
// package directories.
func (w Scope) makePath(ctx context.Context, path string, create znodeCreator) error {
	w.Client.Directories.NoteWanted(w.Root.Fix(path))
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
			c.Directories.NoteFilled(parent)
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

// createContainer creates a container, or a persistent znode if the client
// makes none.
func (c *Client) createContainer(conn *zk.Conn, full string, data []byte, acl []zk.ACL) (string, error) {
	path, err := c.CreateContainer(conn, c.server(), full, data, acl)
	if err == nil || zkerr.Classify(err) == zkerr.Ambiguous {
		c.Directories.NoteUsed(full, err == nil)
	}
	return path, err
}

// server returns the server of the latest connection, a zero one if there is
// none.
func (c *Client) server() servers.Server {
	s := c.above.Live()
	if s == nil {
		return servers.Server{}
	}
	if l := s.Chain().Latest(); l != nil {
		return l.To()
	}
	return servers.Server{}
}

// createDirectory is createContainer for a recipe. A create whose answer is
// lost counts only if the session has seen a transaction before it: what exists
// is otherwise anybody's.
func (c *Client) createDirectory(conn *zk.Conn, full string, data []byte, acl []zk.ACL) (string, error) {
	after := c.latestSeen(conn)
	c.noteUnused(full, after)
	path, err := c.createContainer(conn, full, data, acl)
	switch {
	case err == nil:
	case after == 0 || zkerr.Classify(err) != zkerr.Ambiguous:
		c.Directories.NoteFailed(full)
	default:
		c.Directories.NoteOpen(full)
	}
	return path, err
}

// latestSeen returns the latest transaction that the session of conn has seen,
// 0 if that is not known.
func (c *Client) latestSeen(conn *zk.Conn) int64 {
	s := c.above.Live()
	if s == nil || s.Conn() != conn {
		return 0
	}
	return s.Chain().Seen()
}

// WithChroot makes a create. If a znode is missing, and the client may create
// its chroot, it does so, and makes the create once more, which was not
// executed. It does not ask first whether the chroot is there by now: another
// client may have created it since.
func WithChroot[T any](ctx context.Context, w Scope, create func(Scope) (T, error)) (T, error) {
	c := w.Client
	if !c.Config.CreateChroot || c.Config.Chroot == "" {
		return create(w)
	}
	if w.Budget == nil {
		w.Budget = c.Config.Retry() // for all of it
	}
	value, err := create(w)
	if !errors.Is(err, zk.ErrNoNode) {
		return value, err
	}
	all := Scope{Client: c, In: w.In, Budget: w.Budget}
	if err := all.makePath(ctx, string(c.Config.Chroot), createPersistent); err != nil {
		return value, err
	}
	c.above.ChrootMade()
	return create(w)
}
