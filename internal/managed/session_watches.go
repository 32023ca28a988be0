package managed

import (
	"context"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/watches"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file has the watches in a view of a session, or of a client.

func (s *Session) watching() watches.Scope {
	return watches.Scope{Scope: s.scope(), Of: s.session().watches}
}

func (c *Client) watching() watches.Scope { return watches.Scope{Scope: c.scope(), Of: c.core()} }

// WatchesOf returns what watches in a session, nil if that is over.
func (c *core) WatchesOf(s *ops.Session) *watches.Watches {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil || c.session.Session != s {
		return nil
	}
	return c.session.watches
}

// Watch is framework.Session.Watch.
func (s *Session) Watch(ctx context.Context, path string) (<-chan struct{}, error) {
	w, err := s.watching().Watch(ctx, watches.Data, path, false)
	if err != nil {
		return nil, err
	}
	return w.Share(), nil
}

// GetAndWatch is framework.Session.GetAndWatch.
func (s *Session) GetAndWatch(ctx context.Context, path string) (data []byte, stat *zk.Stat, changed <-chan struct{}, err error) {
	w, err := s.watching().Watch(ctx, watches.Data, path, false)
	if err != nil {
		return nil, nil, nil, err
	}
	return w.Node.Data, w.Node.Stat, w.Share(), nil
}

// WatchChildren is framework.Session.WatchChildren.
func (s *Session) WatchChildren(ctx context.Context, path string) (names []string, changed <-chan struct{}, err error) {
	w, err := s.watching().Watch(ctx, watches.Children, path, false)
	if err != nil {
		return nil, nil, err
	}
	return w.Node.Children, w.Share(), nil
}

// WatchExists is framework.Session.WatchExists.
func (s *Session) WatchExists(ctx context.Context, path string) (exists bool, stat *zk.Stat, changed <-chan struct{}, err error) {
	n, w, err := s.watching().ReadAndWatch(ctx, watches.Data, path, false)
	if err != nil {
		return false, nil, nil, err
	}
	return n.Found, n.Stat, w.Share(), nil
}

// ChildrenAndWatch is framework.Session.ChildrenAndWatch.
func (s *Session) ChildrenAndWatch(ctx context.Context, path string) (names []string, stat *zk.Stat, changed <-chan struct{}, err error) {
	w, err := s.watching().Watch(ctx, watches.Children, path, false)
	if err != nil {
		return nil, nil, nil, err
	}
	return w.Node.Children, w.Node.Stat, w.Share(), nil
}

// WatchAndResume is GetAndWatch, but what it returns was the znode's during
// the call, also if events are lost: a watch that is armed already is checked.
// After a reconnect has closed changed, resume takes the watch up again, and
// returns its channel, if the znode is as it was read: unless Session.Unwatch
// was called, one request arms all such watches of the session again. If not,
// ok is false: read it again. resume waits for the answer to that request, or
// the end of the connection. Calls that are made at the same time share
// requests: with servers since 3.6, 16 calls or more cost a few.
func (s *Session) WatchAndResume(path string) (data []byte, stat *zk.Stat, changed <-chan struct{}, resume func() (<-chan struct{}, bool), err error) {
	return s.session().watches.WatchAndResume(s.scope(), path)
}

// Arm arms watches of znodes' data, on one connection, each by a read of its
// own. The reads leave together, in the order of the paths, and cost a request
// each. Where the session watches a znode already, that watch is shared. Arm
// tries again as Session.Watch does. On success none is nil, and each must be
// left.
func (s *Session) Arm(ctx context.Context, paths ...string) (all []*Armed, err error) {
	return s.session().watches.Arm(ctx, s.scope(), paths...)
}

// WatchTree arms a persistent recursive watch on path, which need not exist.
// It calls on for each event of the znode and of all below it, with its place
// in the order, until the watch ends: that is the last call, and has
// zk.EventNotWatching. The watch ends when the connection has ended, the
// session is over, remove was called, or DistrustTrees. Events of watches that
// others have armed there come as well. After an error on is never called.
//
// on runs on the goroutine that reads the connection, and may do so before
// WatchTree returns. It must not block and must not call the framework. When
// an answer of the order n is returned, on was called for all events before n.
//
// armed is the place from which on nothing is missed: that of the answer that
// has confirmed the watch, or, if it was armed already, of the latest arrival.
// All callers in one session share one watch for each path. The first one
// costs a request, and the last remove another one, which is sent before any
// later watch on that path is armed. The channels of Session.Watch and others
// for path itself, but for none below it, are closed at both times.
//
// WatchTree does not try again when the connection is lost: it fails. Call it
// again in the next connection. remove returns at once.
func (s *Session) WatchTree(ctx context.Context, path string, on func(order uint64, what zk.EventType, path string)) (armed uint64, remove func(), err error) {
	return s.session().watches.WatchTree(ctx, s.scope(), path, on)
}

// HasTrees reports whether the present connection is known to have recursive
// watches. If the server has not said it yet, said is not nil: it is closed
// when it has.
func (s *Session) HasTrees() (has bool, said <-chan struct{}) {
	return s.session().Says(wire.OpAddWatch)
}

// TreesRefused reports whether WatchTree has failed with err because there are
// no recursive watches: the server is older than 3.6, or has not said in a
// session timeout that it is not, or one has refused them on a connection of
// the session, or DistrustTrees was called. Then the next connection may have
// them, and HasTrees says whether this one may.
func TreesRefused(err error) bool { return watches.TreesRefused(err) }

// Events calls on as WatchTree does, for the events of all watches of the
// session at path and below, until stop is called, or the connection or the
// session ends. It arms nothing and sends nothing. It fails without a
// connection.
//
// relies reports whether the caller needs the watches on a znode, although
// nobody else does: then they are not removed. While it is asked no watch is
// armed there. It must not block and must not call the framework.
func (s *Session) Events(path string, on func(order uint64, what zk.EventType, path string), relies func(path string) bool) (stop func(), err error) {
	return s.session().watches.Events(s.scope(), path, on, relies)
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
func (s *Session) ReadAllAndWatch(ctx context.Context, root string, reads ...request.Read) ([]request.Result, error) {
	return s.session().watches.ReadAllAndWatch(ctx, s.scope(), root, reads...)
}

// SetWatches arms such watches again after a reconnect, without a read, by a
// request for about each 64 kB of paths. Events for what has changed since a
// transaction come before it returns, and there is no watch then. Nor is there
// one for what is in unset: read that again. order and zxid are those of the
// last answer: see ReadAll. What the server has refused is unset. SetWatches
// does not try again: it fails when the connection is lost, or the server is
// too busy.
func (s *Session) SetWatches(ctx context.Context, since int64, reads ...request.Read) (zxid int64, order uint64, unset []request.Read, err error) {
	return s.session().watches.SetWatches(ctx, s.scope(), since, reads...)
}

// Unwatch is framework.Session.Unwatch.
func (s *Session) Unwatch(changed <-chan struct{}) { s.session().watches.Unwatch(changed) }

// UnwatchReads is Unwatch for what ReadAllAndWatch and SetWatches have armed in
// the present connection. It returns at once. A watch that somebody else relies
// on, as one who hears of it by Events may, stays as long as that is so.
func (s *Session) UnwatchReads(reads ...request.Read) {
	s.session().watches.UnwatchReads(s.scope(), reads...)
}

// WatchData is framework.Client.WatchData. form makes a value of what was read,
// or of why the watch ends.
func WatchData[T any](ctx context.Context, c *Client, path string, form func(exists bool, data []byte, stat *zk.Stat, err error) T) (<-chan T, error) {
	return watches.Follow(ctx, c.watching(), watches.Data, path, func(n ops.Node, err error) T { return form(n.Found, n.Data, n.Stat, err) })
}

// WatchChildren is framework.Client.WatchChildren. See WatchData for form.
func WatchChildren[T any](ctx context.Context, c *Client, path string, form func(exists bool, names []string, stat *zk.Stat, err error) T) (<-chan T, error) {
	return watches.Follow(ctx, c.watching(), watches.Children, path, func(n ops.Node, err error) T { return form(n.Found, n.Children, n.Stat, err) })
}

// DistrustTrees ends the use of recursive watches for this client, with a line
// in the log: an event was contradicted by the read that it has caused. They
// are used again after some time, from ten minutes to a day.
func (c *Client) DistrustTrees(why string) { c.core().distrustTrees(why) }

func (c *core) distrustTrees(why string) {
	pause := c.ops.GiveUp(wire.OpAddWatch)
	if pause == 0 {
		return
	}
	go c.cfg.Log.Warn("recursive watches are not used for a while", zap.String("reason", why), zap.Duration("pause", pause))
	if s := c.live(); s != nil {
		s.watches.Distrust()
	}
}

// Armed is one share of a watch that is armed together with others: see Arm.
type Armed = watches.Armed
