package watches

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/turns"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file has watches of a single event for a caller that has very many, and
// follows them all by one function: no goroutine and no channel is kept for
// any. The hub and the wire client do not know of them. On the path of a tree
// they follow the same rules as the hub: see trees.

// Events calls on as WatchTree does, for the events of all watches of the
// session at path and below, until stop is called, or the connection or the
// session ends. It arms nothing and sends nothing. It fails without a
// connection.
//
// relies reports whether the caller needs the watches on a znode, although
// nobody else does: then they are not removed. While it is asked no watch is
// armed there. It must not block and must not call the framework.
func (s *Watches) Events(in ops.Scope, path string, on func(order uint64, what zk.EventType, path string), relies func(path string) bool) (stop func(), err error) {
	f := &follower{root: in.Root, path: in.Root.Fix(path), on: on, relies: relies}
	if err = request.ValidatePath(path); err == nil {
		err = s.follow(f)
	}
	if err != nil {
		return nil, &zkerr.Op{Op: request.NameWatch, Path: path, Err: zkerr.WithMeaning(err)}
	}
	return s.leaver(f), nil
}

// follow makes f hear of events until the present connection ends.
func (s *Watches) follow(f *follower) error {
	if err := s.Err(); err != nil {
		return err
	}
	on := s.Chain().Usable()
	if on == nil {
		return zk.ErrNoServer
	}
	s.trees.mu.Lock()
	defer s.trees.mu.Unlock()
	if s.HasEnded(on) { // afterwards nobody would tell f
		return zk.ErrConnectionClosed
	}
	s.trees.tellLocked(f)
	return nil
}

// ReadAllAndWatch is Session.ReadAll, and arms a watch for one event with each
// read: of the data with a get, of the children with a list. A get of root, if
// that is missing, arms a watch on its creation, and costs another request.
// There is no watch after any other error. Every read is a request; 64 are
// under way at a time, and a list has a stat. Call Events first: the watches
// have no channel.
//
// All watches are armed on the connection that there is when it is called. If
// that ends the call fails, and no watch is left.
func (s *Watches) ReadAllAndWatch(ctx context.Context, in ops.Scope, root string, reads ...request.Read) ([]request.Result, error) {
	// Servers arm no watch for the reads in a multiRead.
	on, full := s.Chain().Usable(), in.Root.Fix(root)
	return in.ReadAllOn(ctx, on, reads, func(ctx context.Context, op wire.Op, path string, size int) (link.Reply, error) {
		return s.askAndWatch(ctx, on, full, op, path, size)
	})
}

// askAndWatch makes one read, under a watch. The read of a root that is missing
// arms a watch on its creation.
func (s *Watches) askAndWatch(ctx context.Context, on *link.Link, root string, op wire.Op, path string, size int) (link.Reply, error) {
	tree := s.beginOne(path)
	defer s.trees.endOne(path)
	covered := tree != nil && op == wire.OpGetData
	for again := (turns.Turns{}); ; again.Pause(ctx, on.Ended()) {
		r, err := s.Chain().Ask(ctx, on, op, &wire.WatchRequest{Path: path, Watch: !covered}, size)
		if covered || path != root || op != wire.OpGetData || !errors.Is(err, zk.ErrNoNode) {
			return r, err
		}
		r, err = s.Chain().Ask(ctx, on, wire.OpExists, &wire.WatchRequest{Path: path, Watch: true}, 0)
		if err != nil {
			return r, err
		}
	}
}

// SetWatches arms such watches again after a reconnect, without a read, by a
// request for about each 64 kB of paths. Events for what has changed since a
// transaction come before it returns, and there is no watch then. Nor is there
// one for what is in unset: read that again. order and zxid are those of the
// last answer: see ReadAll. What the server has refused is unset. SetWatches
// does not try again: it fails when the connection is lost, or the server is
// too busy.
func (s *Watches) SetWatches(ctx context.Context, in ops.Scope, since int64, reads ...request.Read) (zxid int64, order uint64, unset []request.Read, err error) {
	fail := func(path string, err error) (int64, uint64, []request.Read, error) {
		return 0, 0, nil, &zkerr.Op{Op: request.NameWatch, Path: path, Err: zkerr.WithMeaning(err)}
	}
	keys := make([]watchKey, len(reads))
	for i, r := range reads {
		if err := request.ValidatePath(r.Path); err != nil {
			return fail(r.Path, err)
		}
		keys[i] = keyOf(in.Root, r)
	}
	on := s.Chain().Usable()
	if err := s.Err(); err != nil {
		return fail("/", err)
	}
	if on == nil {
		return fail("/", zk.ErrNoServer)
	}
	armed, left, err := s.setWatches(ctx, on, since, keys)
	if err != nil && (ctx.Err() != nil || ops.IsDetached(err) || zkerr.Classify(err) != zkerr.Final) {
		return fail("/", err)
	}
	for _, key := range left {
		unset = append(unset, request.Read{Path: in.Root.Unfix(key.path), Children: key.kind == Children})
	}
	return armed.Zxid, max(armed.Order, 1), unset, nil
}

// keyOf returns the watch that a read arms.
func keyOf(root request.Prefix, r request.Read) watchKey {
	if r.Children {
		return watchKey{Children, root.Fix(r.Path)}
	}
	return watchKey{Data, root.Fix(r.Path)}
}
