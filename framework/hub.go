package framework

import (
	"context"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
)

// hub keeps at most one wire watch for each path and kind, which all callers
// share. The wire client cannot remove a watch: it stays armed after a caller
// has lost interest, and the next caller joins it.
//
// While a watch has not fired, nothing has changed since it was armed, and a
// caller that joins needs no request. But a server may use a watch up without
// an event, and an event can be lost. So a watch that was not checked for a
// while is checked before a caller joins it, and about every session timeout
// while somebody follows the znode: see lookout.go.
//
// After a reconnect all watches count as fired, because their re-registration
// may fail silently. A caller that is still interested reads again. It does so
// under the watch that the wire client has armed again, if that is certain: see
// wireWatches.
type hub struct {
	mu          sync.Mutex // guards armed and resets
	armed       map[watchKey]*watch
	resets      uint64
	wireWatches wireWatches
}

type watchKey struct {
	kind watchKind
	path string // on the wire
}

type watchKind int

const (
	watchData     watchKind = iota // of a znode that exists: changed or deleted
	watchMissing                   // of one that does not exist: created; or, if it did exist, as watchData
	watchChildren                  // of one that exists: children created or deleted, or itself deleted
)

// watch is a wire watch. It begins to be armed when it is made.
type watch struct {
	session *session
	key     watchKey
	ready   chan struct{} // closed: armed, or err says why not
	fired   chan struct{} // closed: what was read may have changed
	node    node          // what was read when it was armed
	err     error
	lookout lookout
	resetBy uint64 // which reset has fired it, guarded by hub.mu; 0: none
}

// onEvent fires the watches that a change at path concerns. It runs on the
// goroutine that reads the connection.
func (h *hub) onEvent(what zk.EventType, path string) {
	var kinds []watchKind
	switch what {
	case zk.EventNodeCreated:
		kinds = []watchKind{watchMissing}
	case zk.EventNodeDataChanged:
		kinds = []watchKind{watchData, watchMissing}
	case zk.EventNodeChildrenChanged:
		kinds = []watchKind{watchChildren}
	case zk.EventNodeDeleted:
		kinds = []watchKind{watchData, watchChildren, watchMissing}
	}
	keys := make([]watchKey, len(kinds))
	for i, kind := range kinds {
		keys[i] = watchKey{kind, path}
	}
	h.wireWatches.onEvent(keys)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		h.fireLocked(key)
	}
}

// reset fires all watches.
func (h *hub) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resets++
	for key, w := range h.armed {
		w.resetBy = h.resets
		h.fireLocked(key)
	}
}

// release fires the watches on a path, which the server does not have any
// longer.
func (h *hub) release(path string) {
	for _, kind := range []watchKind{watchData, watchMissing, watchChildren} {
		key := watchKey{kind, path}
		h.wireWatches.forget(key)
		h.mu.Lock()
		h.fireLocked(key)
		h.mu.Unlock()
	}
}

func (h *hub) fireLocked(key watchKey) {
	if w, ok := h.armed[key]; ok {
		delete(h.armed, key)
		close(w.fired)
	}
}

// join returns the watch for key, and reports whether it is new. If so, the
// caller must arm it. It is registered before its request is sent, so that no
// event that follows the answer can be missed.
func (h *hub) join(s *session, key watchKey) (w *watch, isNew bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w, ok := h.armed[key]; ok {
		return w, false
	}
	w = &watch{session: s, key: key, ready: make(chan struct{}), fired: make(chan struct{}), lookout: lookout{checked: time.Now()}}
	if h.armed == nil {
		h.armed = make(map[watchKey]*watch)
	}
	h.armed[key] = w
	return w, true
}

// drop forgets a watch that could not be armed.
func (h *hub) drop(key watchKey, w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.armed[key] == w {
		h.fireLocked(key)
	}
}

// watch arms or joins the watch of a kind on path. If the read that arms it
// fails, no watch is left. A watch that is joined is checked first, if recheck
// is true or it was not checked for half a session timeout.
func (w scope) watch(ctx context.Context, kind watchKind, path string, recheck bool) (*watch, error) {
	if err := ValidatePath(path); err != nil {
		return nil, &opError{op: opNameWatch, path: path, err: err}
	}
	key := watchKey{kind, w.root.fix(path)}
	if err := w.core.cfg.fits(textSize(key.path) + boolSize); err != nil {
		return nil, &opError{op: opNameWatch, path: path, err: err}
	}
	var armed *watch
	err := w.do(ctx, opNameWatch, path, repeatable, func(a *attempt) error {
		for {
			var isNew bool
			if armed, isNew = a.session.hub.join(a.session, key); isNew {
				go a.session.arm(key, armed)
			}
			select {
			case <-armed.ready:
			case <-ctx.Done():
				return ctxerr.Of(ctx)
			case <-a.session.over:
				return a.session.Err()
			}
			if armed.err != nil || isNew || !recheck && !armed.isOld() {
				return armed.err
			}
			if err := armed.check(ctx); err != nil {
				return err
			}
			if recheck = false; !armed.hasFired() {
				return nil
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return armed, nil
}

// arm reads a znode under a watch. If the wire client and the server both have
// one for it, that is used; otherwise the read arms one. Where a tree tells of
// the znode, the read arms none: see trees. Several callers may wait for the
// result, so no caller's context bounds the read: the connection does.
func (s *session) arm(key watchKey, w *watch) {
	defer close(w.ready)
	tree := s.beginOne(key.path)
	defer s.trees.endOne(key.path)
	if tree != nil && key.kind != watchChildren {
		s.readUnder(key, w) // what ends the tree fires w
	} else {
		s.armAtServer(key, w)
	}
	if w.err != nil {
		s.hub.drop(key, w)
	} else if key.kind == watchChildren {
		s.discardStrays(key.path, w.node.children)
	}
}

// armAtServer reads a znode under a watch of its own.
func (s *session) armAtServer(key watchKey, w *watch) {
	on := s.latest()
	has, err := s.serverHas(key, on)
	switch {
	case err != nil:
		w.err = err
	case has:
		s.readUnder(key, w)
	default:
		s.armOne(key, w, on)
	}
}

// readUnder reads a znode under a watch that the wire client has. If the result
// does not fit that watch, the watch is no longer used: a server sends no event
// for a znode that the session may not read, and drops the watch.
func (s *session) readUnder(key watchKey, w *watch) {
	w.node, w.err = call(context.Background(), s, Request{Op: opNameWatch, Path: key.path}, func(conn *zk.Conn) (n node, err error) {
		switch key.kind {
		case watchData:
			n.data, n.stat, err = conn.Get(key.path)
		case watchChildren:
			n.children, n.stat, err = conn.Children(key.path)
		case watchMissing:
			n.found, n.stat, err = conn.Exists(key.path)
		}
		return n, err
	}, nil)
	switch {
	case w.node.found: // but the watch was that of a missing znode
		s.hub.wireWatches.forget(key)
		s.hub.drop(key, w)
	case w.err != nil && classify(w.err) == final:
		s.hub.wireWatches.forget(key)
	}
}

// armOne reads a znode and arms a watch. It does so on the connection on, or on
// a later one: the next connection sends what is in the wire client's queue. A
// watch that the wire client has already, and perhaps no server, is armed by a
// read that leaves no second one in the wire client: see wireWatches.
func (s *session) armOne(key watchKey, w *watch, on *link) {
	request := s.hub.wireWatches.beginArming(key)
	if request.again {
		s.readUnder(key, w)
		s.hub.wireWatches.endArming(key, request, w.err == nil && !w.node.found && s.latest() == on, key, on)
		return
	}
	w.node, w.err = call(context.Background(), s, Request{Op: opNameWatch, Path: key.path}, func(conn *zk.Conn) (n node, err error) {
		switch key.kind {
		case watchData:
			n.data, n.stat, _, err = conn.GetW(key.path)
		case watchChildren:
			n.children, n.stat, _, err = conn.ChildrenW(key.path)
		case watchMissing:
			n.found, n.stat, _, err = conn.ExistsW(key.path)
		}
		return n, err
	}, nil)
	held := key
	if w.node.found {
		held.kind = watchData // the znode exists
	}
	s.hub.wireWatches.endArming(key, request, w.err == nil && s.latest() == on, held, on)
}

// Watch returns a channel that is closed when the znode at path is changed or
// deleted, and also when the session reconnects or is over: so look at the
// znode again then.
//
// A missing znode is zk.ErrNoNode, and leaves no watch behind: see WatchExists.
// All callers in one session share one watch at the server. The first one costs
// a request, and another one if no caller has come for half a session timeout.
// There is nothing to stop.
//
// The channel stays open if a server sends no event: servers since 3.7.3, 3.8.4
// and 3.9.2 send none for a znode while the session may not read it, even if it
// may do so again later. So call Watch again after about a session timeout. Or
// use Client.WatchData, which looks by itself.
func (s *Session) Watch(ctx context.Context, path string) (<-chan struct{}, error) {
	w, err := s.scope().watch(ctx, watchData, path, false)
	if err != nil {
		return nil, err
	}
	return w.fired, nil
}

// GetAndWatch is Watch, and also returns the znode's data and stat, which were
// current at most half a session timeout ago, and still are unless an event was
// lost. The caller must not change them: they are shared.
func (s *Session) GetAndWatch(ctx context.Context, path string) (data []byte, stat *zk.Stat, changed <-chan struct{}, err error) {
	w, err := s.scope().watch(ctx, watchData, path, false)
	if err != nil {
		return nil, nil, nil, err
	}
	return w.node.data, w.node.stat, w.fired, nil
}

// WatchChildren is Watch for the children of the znode at path: changed is
// closed when one is created or deleted, or the znode itself is deleted. It
// also returns the names of the children, in no order, with the limits that
// GetAndWatch has. The caller must not change them: they are shared.
func (s *Session) WatchChildren(ctx context.Context, path string) (names []string, changed <-chan struct{}, err error) {
	w, err := s.scope().watch(ctx, watchChildren, path, false)
	if err != nil {
		return nil, nil, err
	}
	return w.node.children, w.fired, nil
}

// WatchExists reports whether the znode at path exists, with its stat if it
// does. The channel is closed when the znode is created, changed or deleted,
// and also when the session reconnects or is over: so look again then. The
// session must be allowed to read the znode.
//
// It costs one request if the znode exists and two if not. If the session has
// that watch already it costs none, or one if no caller has come for half a
// session timeout. There is nothing to stop. An event can be lost, as with
// Watch: call it again after about a session timeout. The watch on a
// missing znode stays at the server until the znode is created or the session
// is over, because the wire client cannot remove a watch. There is at most one
// for each path.
func (s *Session) WatchExists(ctx context.Context, path string) (exists bool, stat *zk.Stat, changed <-chan struct{}, err error) {
	n, w, err := s.scope().readAndWatch(ctx, watchData, path, false)
	if err != nil {
		return false, nil, nil, err
	}
	return n.found, n.stat, w.fired, nil
}
