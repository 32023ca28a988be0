package ops

import (
	"context"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file has the operations that are one request: Create, Get, Delete, Sync
// and others.

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

// DeleteOnce sends one delete, on the present connection or not at all: what
// was read before the next one may not be true any more.
func (w Scope) DeleteOnce(ctx context.Context, path string, version int32) error {
	w.Budget = &backoff.StopBackOff{}
	_, err := requestAt(ctx, w, request.NameDelete, path, request.Int32Size, OnceOnly, func(conn *zk.Conn, full string) (struct{}, error) {
		return struct{}{}, conn.Delete(full, version)
	}, nil)
	return err
}

// Node is the result of reading a znode.
type Node struct {
	Data     []byte
	Children []string
	acl      []zk.ACL
	Stat     *zk.Stat
	Found    bool
}

func readData(conn *zk.Conn, full string) (n Node, err error) {
	n.Data, n.Stat, err = conn.Get(full)
	return n, err
}

func readACL(conn *zk.Conn, full string) (n Node, err error) {
	n.acl, n.Stat, err = conn.GetACL(full)
	return n, err
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
