package watches

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/offers"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// trees are the recursive watches of a session: at most one for each path, of
// one connection, which all who watch that tree share.
//
// A server up to 3.8 has one data watch for each connection and path. One that
// the hub arms, for a single event, replaces the recursive one, which is silent
// from then on (ZOOKEEPER-4466). A removal removes every watch on the path. So
// on the path of a tree
//
//   - the hub arms no data watch, because the tree's events tell it the same;
//   - while the tree is being armed or removed the hub arms and removes
//     nothing, and the request is not sent while the hub arms or removes one;
//   - when the tree has been armed, and before it is removed, the hub's watches
//     are fired, so that who is interested reads again;
//   - before it is removed, those who follow single events are told of one, so
//     that they arm their watches on the path again;
//   - the hub removes no watch: the removal of the tree removes all.
//
// A watch for the children replaces only a half of the recursive one that no
// event needs.
type trees struct {
	mu       sync.Mutex               // guards what follows, and the trees
	at       map[string]*tree         // by path on the wire, from before it is armed until it is gone
	arming   map[string]int           // by path: requests under way that arm or remove a watch for one event
	removing map[string]chan struct{} // by path: those that remove one; closed: it is answered
	told     map[string][]*follower   // by path: who hears of events at it and below
}

// tree is a recursive watch.
type tree struct {
	path      string
	on        *link.Link
	phase     treePhase
	moved     chan struct{} // closed and replaced when phase changes
	quiet     chan struct{} // nil: nobody waits; closed: the hub arms no watch on the path
	followers int           // who hear of it, or wait until they do
	order     uint64        // of the answer that has confirmed it
	err       error         // why it is not armed
}

type treePhase int

const (
	treeArming treePhase = iota
	treeArmed
	treeRemoving
	treeGone
)

// follower hears of events.
type follower struct {
	root   request.Prefix
	path   string                 // on the wire
	tree   *tree                  // nil: it hears of the events of other watches only
	relies func(path string) bool // whether it needs the watches on a znode; nil: none

	mu    sync.Mutex // guards ended, and is held while on runs, which must not block
	ended bool
	on    func(order uint64, what zk.EventType, path string)
}

// tell passes an event on. zk.EventNotWatching is the last one.
func (f *follower) tell(order uint64, what zk.EventType, path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.ended = what == zk.EventNotWatching
		f.on(order, what, f.root.Unfix(path))
	}
}

// silence makes sure that on is not called any more.
func (f *follower) silence() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
}

// errNoTrees is the error of WatchTree where there are no recursive watches.
var errNoTrees = errors.New("the server has no recursive watches, or has not said so yet, or they are not to be trusted")

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
func (s *Watches) WatchTree(ctx context.Context, in ops.Scope, path string, on func(order uint64, what zk.EventType, path string)) (armed uint64, remove func(), err error) {
	f := &follower{root: in.Root, path: in.Root.Fix(path), on: on}
	if err = request.ValidatePath(path); err == nil {
		err = s.Client.Fits(request.TextSize(f.path) + request.Int32Size)
	}
	if err == nil {
		armed, err = s.joinTree(ctx, f)
	}
	if err != nil {
		s.leaveTree(f)
		f.silence()
		return 0, nil, &zkerr.Op{Op: request.NameWatch, Path: path, Err: zkerr.WithMeaning(err)}
	}
	return armed, s.leaver(f), nil
}

// leaver returns the function that ends a watch for f.
func (s *Watches) leaver(f *follower) func() {
	return sync.OnceFunc(func() {
		s.leaveTree(f)
		go f.tell(s.Chain().NextOrder(), zk.EventNotWatching, f.path) // the caller may hold what on needs
	})
}

// joinTree makes f hear of the events of a tree, and waits until it does.
func (s *Watches) joinTree(ctx context.Context, f *follower) (armed uint64, err error) {
	if err := s.Err(); err != nil {
		return 0, err
	}
	on, err := s.Offers(ctx, wire.OpAddWatch)
	if errors.Is(err, offers.ErrNotOffered) || errors.Is(err, offers.ErrUnsaid) {
		err = errNoTrees
	}
	if err != nil {
		return 0, err
	}
	for {
		armed, moved, err := s.stepIn(f, on)
		if moved == nil {
			return armed, err
		}
		select {
		case <-moved:
		case <-s.Over():
			return 0, s.Err()
		case <-on.Ended():
			return 0, zk.ErrConnectionClosed
		case <-ctx.Done():
			return 0, ctxerr.Of(ctx)
		}
	}
}

// stepIn joins the tree at the path of f, or begins to arm it. As long as moved
// is not nil, it must be called again when that is closed.
func (s *Watches) stepIn(f *follower, on *link.Link) (armed uint64, moved <-chan struct{}, err error) {
	ts := &s.trees
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := f.tree; t != nil {
		switch t.phase {
		case treeArming:
			return 0, t.moved, nil
		case treeArmed:
			return t.order, nil, nil
		}
		return 0, nil, t.err
	}
	t := ts.at[f.path]
	if t == nil && s.Client.HasRefused(wire.OpAddWatch) {
		return 0, nil, errNoTrees
	}
	if t == nil {
		t = &tree{path: f.path, on: on, moved: make(chan struct{})}
		if ts.at == nil {
			ts.at = make(map[string]*tree)
		}
		ts.at[f.path] = t
		go s.armTree(t)
	}
	if t.on != on || t.phase == treeRemoving || t.err != nil {
		return 0, t.moved, nil
	}
	f.tree = t
	t.followers++
	ts.tellLocked(f)
	if t.phase == treeArming {
		return 0, t.moved, nil
	}
	return s.Chain().Order(), nil, nil // what has come before is not told
}

func (ts *trees) forgetLocked(path string, which func(*follower) bool) {
	if rest := slices.DeleteFunc(ts.told[path], which); len(rest) > 0 {
		ts.told[path] = rest
	} else {
		delete(ts.told, path)
	}
}

func (ts *trees) tellLocked(f *follower) {
	if ts.told == nil {
		ts.told = make(map[string][]*follower)
	}
	ts.told[f.path] = append(ts.told[f.path], f)
}

// leaveTree makes f hear of no further events. The last one that leaves a tree
// has it removed.
func (s *Watches) leaveTree(f *follower) {
	ts := &s.trees
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.forgetLocked(f.path, func(g *follower) bool { return f == g })
	if t := f.tree; t != nil {
		f.tree = nil
		t.followers--
		s.removeUnusedLocked(t)
	}
}

func (ts *trees) moveLocked(t *tree, to treePhase) {
	t.phase = to
	close(t.moved)
	t.moved = make(chan struct{})
	if to == treeGone {
		delete(ts.at, t.path)
	}
}

// askAbout sends a request about the watches on the path of a tree, when the
// hub does not.
func (s *Watches) askAbout(t *tree, op wire.Op, body wire.Appender) (link.Reply, error) {
	s.trees.mu.Lock()
	var quiet chan struct{}
	if s.trees.arming[t.path] > 0 {
		quiet = make(chan struct{})
		t.quiet = quiet
	}
	s.trees.mu.Unlock()
	if quiet != nil {
		select {
		case <-quiet:
		case <-t.on.Ended():
		case <-s.Over():
		}
	}
	if op == wire.OpRemoveWatches {
		s.hub.release(t.path)
		s.disarm(t.path)
	}
	return ops.Call(context.Background(), s.Session, ops.Request{Op: request.NameWatch, Path: t.path}, func(*zk.Conn) (link.Reply, error) {
		return s.Chain().Ask(context.Background(), t.on, op, body, 0)
	}, nil)
}

// armTree arms a tree. Several callers may wait for it, so no caller's context
// bounds that: the connection does.
func (s *Watches) armTree(t *tree) {
	r, err := s.askAbout(t, wire.OpAddWatch, &wire.AddWatchRequest{Path: t.path, Mode: wire.WatchPersistentRecursive})
	switch {
	case err == nil:
		s.hub.release(t.path)
	case zkerr.IsRefusal(err):
		s.Client.Refuse(wire.OpAddWatch, err)
		err = errNoTrees
	}
	s.trees.mu.Lock()
	defer s.trees.mu.Unlock()
	if err == nil && s.HasEnded(t.on) {
		err = zk.ErrConnectionClosed
	}
	if err != nil {
		t.err = err
		s.trees.moveLocked(t, treeGone)
		return
	}
	t.order = r.Order
	s.trees.moveLocked(t, treeArmed)
	s.removeUnusedLocked(t)
}

// removeUnusedLocked begins to remove a tree that nobody follows.
func (s *Watches) removeUnusedLocked(t *tree) {
	if t.phase == treeArmed && t.followers <= 0 {
		s.trees.moveLocked(t, treeRemoving)
		go s.removeTree(t)
	}
}

// removeTree removes a tree at the server. If the server answers that it has
// not done so, the tree counts as armed, and may be joined.
func (s *Watches) removeTree(t *tree) {
	_, err := s.askAbout(t, wire.OpRemoveWatches, &wire.WatchesRequest{Path: t.path, Type: wire.WatcherAny})
	s.trees.mu.Lock()
	defer s.trees.mu.Unlock()
	switch {
	case t.phase == treeGone:
	case err == nil || isNoWatcher(err) || s.HasEnded(t.on):
		s.trees.moveLocked(t, treeGone)
	default:
		s.trees.moveLocked(t, treeArmed)
		time.AfterFunc(removalPause, func() {
			s.trees.mu.Lock()
			defer s.trees.mu.Unlock()
			s.removeUnusedLocked(t)
		})
	}
}

// removalPause is the time between two tries to remove a tree.
const removalPause = time.Second

// beginOne waits until no request about a tree on the path, and no removal of a
// watch, is under way, and notes that a watch is about to be armed. It returns
// the tree that is armed there, if there is one. The caller must call endOne.
func (s *Watches) beginOne(path string) *tree {
	ts := &s.trees
	for over := false; ; {
		ts.mu.Lock()
		t, removed := ts.at[path], ts.removing[path]
		isMoving := t != nil && t.phase != treeArmed
		if over || removed == nil && !isMoving {
			ts.beginOneLocked(path)
			ts.mu.Unlock()
			return t
		}
		var moved <-chan struct{}
		if isMoving {
			moved = t.moved
		}
		ts.mu.Unlock()
		select {
		case <-moved:
		case <-removed:
		case <-s.Over():
			over = true
		}
	}
}

func (ts *trees) beginOneLocked(path string) {
	if ts.arming == nil {
		ts.arming = make(map[string]int)
	}
	ts.arming[path]++
}

// isArming reports whether a request is under way that arms or removes a watch
// for one event on a path.
func (ts *trees) isArming(path string) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.arming[path] > 0
}

// endOne notes that this has been done.
func (ts *trees) endOne(path string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.arming[path]--
	if ts.arming[path] > 0 {
		return
	}
	delete(ts.arming, path)
	if t := ts.at[path]; t != nil && t.quiet != nil {
		close(t.quiet)
		t.quiet = nil
	}
}

// onEvent passes an event on. It runs on the goroutine that reads the
// connection.
func (ts *trees) onEvent(order uint64, what zk.EventType, path string) {
	for _, f := range ts.hearing(path) {
		f.tell(order, what, path)
	}
}

// disarm tells those who follow no tree that something may have happened at a
// path, since their watches on it go.
func (s *Watches) disarm(path string) {
	s.trees.mu.Lock()
	all := slices.DeleteFunc(s.trees.hearingLocked(path), func(f *follower) bool { return f.tree != nil })
	s.trees.mu.Unlock()
	for _, f := range all {
		f.tell(s.Chain().NextOrder(), zk.EventNodeDataChanged, path)
		f.tell(s.Chain().NextOrder(), zk.EventNodeChildrenChanged, path)
	}
}

// hearing returns who hears of the events of a znode.
func (ts *trees) hearing(path string) []*follower {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.hearingLocked(path)
}

func (ts *trees) hearingLocked(path string) (all []*follower) {
	if len(ts.told) == 0 {
		return nil
	}
	for at := path; ; {
		all = append(all, ts.told[at]...)
		if at == "/" || !strings.HasPrefix(at, "/") {
			return all
		}
		at, _ = layout.Split(at)
	}
}

// end tells all followers that the connection, or the session, has ended. What
// is being armed fails by itself.
func (ts *trees) end(order uint64) {
	var all []*follower
	ts.mu.Lock()
	for path, told := range ts.told {
		delete(ts.told, path)
		for _, f := range told {
			if f.tree != nil && f.tree.phase == treeArming {
				ts.told[path] = append(ts.told[path], f)
			} else {
				all = append(all, f)
			}
		}
	}
	for _, t := range ts.at {
		if t.phase != treeArming {
			t.err = zk.ErrConnectionClosed
			ts.moveLocked(t, treeGone)
		}
	}
	ts.mu.Unlock()
	for _, f := range all {
		f.tell(order, zk.EventNotWatching, f.path)
	}
}

// TreesRefused reports whether WatchTree has failed with err because there are
// no recursive watches that can be used now.
func TreesRefused(err error) bool { return errors.Is(err, errNoTrees) }

// Distrust ends all trees of the session: their followers are told that they
// have ended. The operation that arms them must not be used any more: see
// GiveUp of package ops.
func (s *Watches) Distrust() {
	var all []*follower
	s.trees.mu.Lock()
	for _, t := range s.trees.at {
		s.trees.forgetLocked(t.path, func(f *follower) bool {
			if f.tree == t && t.phase == treeArmed {
				all = append(all, f)
			}
			return f.tree == t
		})
		t.followers, t.err = 0, errNoTrees
		s.removeUnusedLocked(t)
	}
	s.trees.mu.Unlock()
	for _, f := range all {
		f.tell(s.Chain().NextOrder(), zk.EventNotWatching, f.path)
	}
}
