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

// hub keeps at most one wire watch per path and kind. The wire client cannot
// take a watch back, so whoever leaves leaves it armed, for the next to share.
//
// A watch that has not fired says that nothing has changed since it was armed, as
// long as the session may read the znode: what was read with it is still true, and
// who joins it later needs no request.
// On a reconnect all watches are taken for fired, because their re-registration
// may fail in silence. A caller that still wants to know reads again, under the
// watch that the wire client has armed again where that is certain.
type hub struct {
	mu    sync.Mutex // guards armed
	armed map[watchKey]*watch
	wire  rearmed
}

type watchKey struct {
	kind watchKind
	path string // on the wire
}

type watchKind int

const (
	watchData     watchKind = iota // of a znode that exists: changed or deleted
	watchMissing                   // of one that does not: created; or, if it did after all, as watchData
	watchChildren                  // of one that exists: children come or gone, or deleted
)

// watch is a wire watch, from when it begins to be armed.
type watch struct {
	ready chan struct{} // closed: armed, or err says why not
	fired chan struct{} // closed: it may no longer be true what was read
	node  node          // what was read when it was armed
	err   error
}

// event fires what a change at path concerns. It runs on the goroutine that
// reads the connection.
func (h *hub) event(what zk.EventType, path string) {
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
	h.wire.event(keys)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		h.fireLocked(key)
	}
}

// reset fires everything.
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

// join gives the watch for key, and reports whether it is new: then the caller
// arms it. It is registered before its request is sent, so that no event that
// follows the answer can be missed.
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

// watch arms or joins the watch of a kind on path. An error is that of the read
// which arms it, and leaves no watch.
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

// arm reads a znode under a watch: under the one that the wire client holds for it,
// if the server has that, or else it arms one. It belongs to all who join, so no
// single caller's context bounds it: the connection does.
func (s *session) arm(key watchKey, w *watch) {
	defer close(w.ready)
	on := s.latest()
	has, err := s.has(key, on)
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
		s.sweep(key.path, w.node.children)
	}
}

// readUnder reads a znode under the watch that the server has. A result that does
// not fit to that watch ends its use: a server says nothing of what may not be read,
// and the watch is spent all the same.
func (s *session) readUnder(key watchKey, w *watch) {
	w.node, w.err = call(context.Background(), s, opNameWatch, func(conn *zk.Conn) (n node, err error) {
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
	case w.node.found: // though it was the watch of one that does not exist
		s.hub.wire.forget(key)
		s.hub.drop(key, w)
	case w.err != nil && judge(w.err) == final:
		s.hub.wire.forget(key)
	}
}

// armOne reads a znode and arms a watch, on the connection on or a later one: what
// is in the wire client's queue when a connection ends is sent by the next.
func (s *session) armOne(key watchKey, w *watch, on *link) {
	request := s.hub.wire.begin(key)
	w.node, w.err = call(context.Background(), s, opNameWatch, func(conn *zk.Conn) (n node, err error) {
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
		held.kind = watchData // of a znode that exists after all
	}
	s.hub.wire.end(key, request, w.err == nil && s.latest() == on, held, on)
}

// Watch tells when the znode at path is changed or deleted: the channel is
// closed then, and also when the session reconnects or is over, so look again.
// A znode that does not exist is zk.ErrNoNode and leaves no watch behind. The
// wire watch is shared by all of the session that ask for it, costs one request
// if there is none yet, and none otherwise; there is nothing to stop.
func (s *Session) Watch(ctx context.Context, path string) (<-chan struct{}, error) {
	w, err := s.scope().watch(ctx, watchData, path)
	if err != nil {
		return nil, err
	}
	return w.fired, nil
}

// GetAndWatch is Watch that also returns the znode's data and stat, as they were when
// the watch was armed and are until it fires. They must not be changed.
func (s *Session) GetAndWatch(ctx context.Context, path string) (data []byte, stat *zk.Stat, changed <-chan struct{}, err error) {
	w, err := s.scope().watch(ctx, watchData, path)
	if err != nil {
		return nil, nil, nil, err
	}
	return w.node.data, w.node.stat, w.fired, nil
}

// WatchChildren is Watch for children that come or go. It gives those that were
// there when the watch was armed, and are until it fires; they must not be changed.
func (s *Session) WatchChildren(ctx context.Context, path string) (names []string, changed <-chan struct{}, err error) {
	w, err := s.scope().watch(ctx, watchChildren, path)
	if err != nil {
		return nil, nil, err
	}
	return w.node.children, w.fired, nil
}

// WatchExists reports whether the znode at path exists, with its stat if it does, and
// watches it: changed is closed when the znode is created, changed or deleted, and
// also when the session reconnects or is over, so look again then. An existing znode
// is watched as by Watch, whose watch it shares, and must be readable.
//
// It costs one request if the znode exists and two if not, and none where the session
// has that watch already. There is nothing to stop. The watch on a missing znode stays
// at the server until the znode is created or the session is over, since the wire
// client cannot remove a watch; each path has at most one. So watch the znodes
// that will be created, not one new name after the other.
func (s *Session) WatchExists(ctx context.Context, path string) (exists bool, stat *zk.Stat, changed <-chan struct{}, err error) {
	n, fired, err := s.scope().look(ctx, watchData, path)
	if err != nil {
		return false, nil, nil, err
	}
	return n.found, n.stat, fired, nil
}

// Data is a state of a watched znode.
type Data struct {
	Exists bool
	Data   []byte   // must not be changed: it may be shared
	Stat   *zk.Stat // nil unless Exists
	// Err is set in the last value before the channel is closed by anything but
	// the end of ctx: ErrClosed, zk.ErrNoAuth.
	Err error
}

// Children is a state of a watched znode's children.
type Children struct {
	Exists bool
	Names  []string // in no order; must not be changed: they may be shared
	Stat   *zk.Stat // nil unless Exists
	Err    error    // as in Data
}

// WatchData follows the data of the znode at path, which need not exist. The
// channel has the present value at once; each newer one replaces one that was
// not received yet, and the last is never missed. It lives across reconnects and
// sessions until ctx ends, and is closed then. It costs one request per change,
// two when the znode comes into being.
func (c *Client) WatchData(ctx context.Context, path string) (<-chan Data, error) {
	return follow(ctx, c.scope(), watchData, path, func(n node, err error) Data {
		return Data{Exists: n.found, Data: n.data, Stat: n.stat, Err: err}
	})
}

// WatchChildren follows the names of the children of the znode at path, with the
// same promises as WatchData.
func (c *Client) WatchChildren(ctx context.Context, path string) (<-chan Children, error) {
	return follow(ctx, c.scope(), watchChildren, path, func(n node, err error) Children {
		return Children{Exists: n.found, Names: n.children, Stat: n.stat, Err: err}
	})
}

// follow delivers states of a znode until ctx ends. The first is read before it
// returns, so that an error of the call is an error of the path.
func follow[T any](ctx context.Context, w scope, kind watchKind, path string, form func(node, error) T) (<-chan T, error) {
	n, fired, err := w.look(ctx, kind, path)
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
			// There may be no server for longer than the policy's budget lasts; a
			// follower has no end but its context.
			w.budget = endless()
			n, fired, err = w.look(ctx, kind, path)
			if ctx.Err() != nil {
				return
			}
			// Only this goroutine sends: after the old value is out there is room.
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

// look reads a znode with a watch that fires when that is no longer true,
// whether the znode exists or not.
func (w scope) look(ctx context.Context, kind watchKind, path string) (node, <-chan struct{}, error) {
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
