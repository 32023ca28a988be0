package framework

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/retry"
)

// hub keeps at most one wire watch for each path and kind, which all callers
// share. The wire client cannot remove a watch: it stays armed after a caller
// has lost interest, and the next caller joins it.
//
// While a watch has not fired, and the session may read the znode, nothing has
// changed since it was armed. So what was read with it still holds, and a
// caller that joins needs no request.
//
// After a reconnect all watches count as fired, because their re-registration
// may fail silently. A caller that is still interested reads again. It does so
// under the watch that the wire client has armed again, if that is certain: see
// wireWatches.
type hub struct {
	mu          sync.Mutex // guards armed
	armed       map[watchKey]*watch
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
	ready chan struct{} // closed: armed, or err says why not
	fired chan struct{} // closed: what was read may have changed
	node  node          // what was read when it was armed
	err   error
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
	for key := range h.armed {
		h.fireLocked(key)
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
func (h *hub) join(key watchKey) (w *watch, isNew bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w, ok := h.armed[key]; ok {
		return w, false
	}
	w = &watch{ready: make(chan struct{}), fired: make(chan struct{})}
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
// fails, no watch is left.
func (w scope) watch(ctx context.Context, kind watchKind, path string) (*watch, error) {
	if err := ValidatePath(path); err != nil {
		return nil, &opError{op: opNameWatch, path: path, err: err}
	}
	key := watchKey{kind, w.root.fix(path)}
	if err := w.core.cfg.fits(textSize(key.path) + boolSize); err != nil {
		return nil, &opError{op: opNameWatch, path: path, err: err}
	}
	var armed *watch
	err := w.do(ctx, opNameWatch, path, repeatable, func(a *attempt) error {
		var isNew bool
		if armed, isNew = a.session.hub.join(key); isNew {
			go a.session.arm(key, armed)
		}
		select {
		case <-armed.ready:
			return armed.err
		case <-ctx.Done():
			return ctxerr.Of(ctx)
		case <-a.session.over:
			return a.session.Err()
		}
	})
	if err != nil {
		return nil, err
	}
	return armed, nil
}

// arm reads a znode under a watch. That is the watch that the wire client has
// for it, if the server has it, too; otherwise the read arms one. Several
// callers may wait for the result, so no caller's context bounds the read: the
// connection does.
func (s *session) arm(key watchKey, w *watch) {
	defer close(w.ready)
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
	if w.err != nil {
		s.hub.drop(key, w)
	} else if key.kind == watchChildren {
		s.discardStrays(key.path, w.node.children)
	}
}

// readUnder reads a znode under the watch that the server has. If the result
// does not fit that watch, the watch is not used any longer: a server sends no
// event for a znode that the session may not read, and drops the watch.
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
// a later one: the next connection sends what is in the wire client's queue.
func (s *session) armOne(key watchKey, w *watch, on *link) {
	request := s.hub.wireWatches.beginArming(key)
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
// a request, the others none. There is nothing to stop.
func (s *Session) Watch(ctx context.Context, path string) (<-chan struct{}, error) {
	w, err := s.scope().watch(ctx, watchData, path)
	if err != nil {
		return nil, err
	}
	return w.fired, nil
}

// GetAndWatch is Watch, and also returns the znode's data and stat, which hold
// until the channel is closed. The caller must not change them: they are
// shared.
func (s *Session) GetAndWatch(ctx context.Context, path string) (data []byte, stat *zk.Stat, changed <-chan struct{}, err error) {
	w, err := s.scope().watch(ctx, watchData, path)
	if err != nil {
		return nil, nil, nil, err
	}
	return w.node.data, w.node.stat, w.fired, nil
}

// WatchChildren is Watch for the children of the znode at path: changed is
// closed when one is created or deleted, or the znode itself is deleted. It
// also returns the names of the children, in no order, which hold until then.
// The caller must not change them: they are shared.
func (s *Session) WatchChildren(ctx context.Context, path string) (names []string, changed <-chan struct{}, err error) {
	w, err := s.scope().watch(ctx, watchChildren, path)
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
// It costs one request if the znode exists and two if not, and none if the
// session has that watch already. There is nothing to stop. The watch on a
// missing znode stays at the server until the znode is created or the session
// is over, because the wire client cannot remove a watch. There is at most one
// for each path.
func (s *Session) WatchExists(ctx context.Context, path string) (exists bool, stat *zk.Stat, changed <-chan struct{}, err error) {
	n, fired, err := s.scope().readAndWatch(ctx, watchData, path)
	if err != nil {
		return false, nil, nil, err
	}
	return n.found, n.stat, fired, nil
}

// Data is what Client.WatchData delivers.
type Data struct {
	Exists bool
	Data   []byte   // must not be changed: it may be shared
	Stat   *zk.Stat // nil unless Exists
	// Err is set in the last value if the watch ends for another reason than
	// the end of ctx, such as ErrClosed or zk.ErrNoAuth.
	Err error
}

// Children is what Client.WatchChildren delivers.
type Children struct {
	Exists bool
	Names  []string // in no order; must not be changed: they may be shared
	Stat   *zk.Stat // nil unless Exists
	Err    error    // as in Data
}

// WatchData delivers the data of the znode at path, and each change of it,
// until ctx ends. The znode need not exist. The channel has the current value
// at once. A newer value replaces one that was not received yet, so a slow
// reader misses values, but never the last one. The watch survives reconnects
// and the loss of the session; the channel is closed when ctx ends. Each change
// costs one request, and the creation of the znode two.
func (c *Client) WatchData(ctx context.Context, path string) (<-chan Data, error) {
	return follow(ctx, c.scope(), watchData, path, func(n node, err error) Data {
		return Data{Exists: n.found, Data: n.data, Stat: n.stat, Err: err}
	})
}

// WatchChildren delivers the names of the children of the znode at path, and
// each change of them, as WatchData does for the data.
func (c *Client) WatchChildren(ctx context.Context, path string) (<-chan Children, error) {
	return follow(ctx, c.scope(), watchChildren, path, func(n node, err error) Children {
		return Children{Exists: n.found, Names: n.children, Stat: n.stat, Err: err}
	})
}

// follow delivers the states of a znode until ctx ends. It reads the first one
// before it returns, so that it can return the error of a bad path.
func follow[T any](ctx context.Context, w scope, kind watchKind, path string, form func(node, error) T) (<-chan T, error) {
	n, fired, err := w.readAndWatch(ctx, kind, path)
	if err != nil {
		return nil, err
	}
	values := make(chan T, 1)
	values <- form(n, nil)
	go func() {
		defer close(values)
		for {
			select {
			case <-fired:
			case <-ctx.Done():
				return
			}
			// No server may answer for longer than the policy's budget lasts,
			// but only the context ends the watch.
			w.budget = endless()
			n, fired, err = w.readAndWatch(ctx, kind, path)
			if ctx.Err() != nil {
				return
			}
			// Only this goroutine sends: once the old value is removed there is
			// room.
			select {
			case <-values:
			default:
			}
			values <- form(n, err)
			if err != nil {
				return
			}
		}
	}()
	return values, nil
}

var endless = retry.Exponential(50*time.Millisecond, 2*time.Second, math.MaxInt)

// readAndWatch reads a znode, which may be missing, with a watch that fires
// when what was read may have changed.
func (w scope) readAndWatch(ctx context.Context, kind watchKind, path string) (node, <-chan struct{}, error) {
	for {
		seen, err := w.watch(ctx, kind, path)
		if err == nil {
			n := seen.node
			n.found = true
			return n, seen.fired, nil
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return node{}, nil, err
		}
		if seen, err = w.watch(ctx, watchMissing, path); err != nil {
			return node{}, nil, err
		}
		if !seen.node.found {
			return node{}, seen.fired, nil
		}
	}
}
