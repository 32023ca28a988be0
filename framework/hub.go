package framework

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// hub keeps at most one watch for each path and kind, which all callers share.
// It arms it by a request of its own (see frames.go), on one connection, and
// the watch ends with that. The wire client has no watches.
//
// While a watch has not fired, nothing has changed since it was armed, and a
// caller that joins needs no request. But a server may use a watch up without
// an event, and an event can be lost. So a watch that was not checked for a
// while is checked before a caller joins it, and about every session timeout
// while somebody follows the znode: see lookout.go.
//
// After a reconnect all watches fire. A caller that is still interested reads
// again, which arms another one. See resume.go for those that need not. A watch
// that nobody is interested in any more is removed: see unwanted.go.
type hub struct {
	session *session

	mu       sync.Mutex // guards what follows
	armed    map[watchKey]*watch
	shares   map[<-chan struct{}]*watch // by the channels of callers: see share
	unwanted map[watchKey]unwanted
	sweeping bool // a sweep is due
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

// watch is a watch that callers share. It begins to be armed when it is made.
type watch struct {
	session *session
	key     watchKey
	ready   chan struct{} // closed: armed, or err says why not
	fired   chan struct{} // closed: what was read may have changed
	node    node          // what was read when it was armed
	zxid    int64         // the latest transaction that its server had applied then
	err     error
	lookout lookout

	// What follows is guarded by hub.mu.
	on        *link // where it is armed; nil: that has not begun
	wanted    int   // callers that have not left
	shares    []chan struct{}
	firedAt   uint64 // the place of the event that has fired it; 0: there was none
	reading   reading
	deletedOn *link  // where that event came from, if it was the znode's deletion
	resumed   bool   // it was armed by setWatches: node was read before
	mayGoOn   bool   // a caller may resume it after a reconnect
	goesOnAs  *watch // the one that does
}

// onEvent fires the watches that a change at path concerns. order is the place
// of the event. It runs on the goroutine that reads the connection.
func (h *hub) onEvent(on *link, order uint64, what zk.EventType, path string) {
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
	mayStay := h.session.trees.isArming(path) // see unwanted.go
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, kind := range kinds {
		key := watchKey{kind, path}
		w := h.armed[key]
		if !mayStay {
			delete(h.unwanted, key)
		} else if w != nil && w.on == on {
			h.noteUnwantedLocked(key, on)
		}
		if w != nil {
			w.firedAt = order
			if what == zk.EventNodeDeleted {
				w.deletedOn = on
			}
			h.fireLocked(w)
		}
	}
}

// reset fires all watches but those that are armed on a connection, nil if
// there is none any more.
func (h *hub) reset(on *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, u := range h.unwanted {
		if u.on != on {
			delete(h.unwanted, key)
		}
	}
	var goOn []*watch
	var since int64
	for _, w := range h.armed {
		switch {
		case on != nil && (w.on == nil || w.on == on):
		case on != nil && w.goOnLocked(on):
			goOn = append(goOn, w.goesOnAs)
			since = max(since, w.node.stat.Mzxid)
		default:
			h.fireLocked(w)
		}
	}
	if len(goOn) > 0 {
		go h.session.goOn(on, goOn, since)
	}
}

// release fires the watches on a path, which the server does not have any
// longer.
func (h *hub) release(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forsakeLocked(path, watchData, watchMissing, watchChildren)
}

// forsakeLocked fires the watches of these kinds on a path, which nobody has at
// the server any longer.
func (h *hub) forsakeLocked(path string, kinds ...watchKind) {
	for _, kind := range kinds {
		key := watchKey{kind, path}
		delete(h.unwanted, key)
		if w := h.armed[key]; w != nil {
			h.fireLocked(w)
		}
	}
}

// fireLocked fires a watch that has not fired.
func (h *hub) fireLocked(w *watch) {
	delete(h.armed, w.key)
	close(w.fired)
	for _, changed := range w.shares {
		delete(h.shares, changed)
		close(changed)
	}
	w.shares = nil
}

// mostShares is how many callers of a watch have a channel each. The others
// have one together, so that a caller who watches again and again, and says
// Unwatch never, does not use up the memory. Unwatch has no effect on that one.
const mostShares = 1 << 10

// share returns a channel that is closed when w fires, and that no other caller
// has: unwatch knows the caller by it.
func (w *watch) share() <-chan struct{} {
	h := &w.session.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.armed[w.key] != w || len(w.shares) == mostShares {
		return w.fired
	}
	changed := make(chan struct{})
	if h.shares == nil {
		h.shares = make(map[<-chan struct{}]*watch)
	}
	h.shares[changed] = w
	w.shares = append(w.shares, changed)
	return changed
}

// join returns the watch for key, and reports whether it is new. If so, the
// caller must arm it. It is registered before its request is sent, so that no
// event that follows the answer can be missed. Unless the watch fires, the
// caller must leave it.
func (h *hub) join(key watchKey) (w *watch, isNew bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w = h.armed[key]
	if isNew = w == nil; isNew {
		w = h.newLocked(key)
	}
	w.wanted++
	return w, isNew
}

func (h *hub) newLocked(key watchKey) *watch {
	w := &watch{session: h.session, key: key, ready: make(chan struct{}), fired: make(chan struct{}), lookout: lookout{checked: time.Now()}}
	if h.armed == nil {
		h.armed = make(map[watchKey]*watch)
	}
	h.armed[key] = w
	return w
}

// drop fires a watch that could not be armed.
func (h *hub) drop(w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.armed[w.key] == w {
		h.fireLocked(w)
	}
}

// watch arms or joins the watch of a kind on path. If the read that arms it
// fails, no watch is left. A watch that is joined is checked first, if recheck
// is true or it was not checked for half a session timeout.
func (w scope) watch(ctx context.Context, kind watchKind, path string, recheck bool) (*watch, error) {
	if err := request.ValidatePath(path); err != nil {
		return nil, &zkerr.Op{Op: request.NameWatch, Path: path, Err: err}
	}
	key := watchKey{kind, w.root.Fix(path)}
	if err := w.core.cfg.fits(request.TextSize(key.path) + request.BoolSize); err != nil {
		return nil, &zkerr.Op{Op: request.NameWatch, Path: path, Err: err}
	}
	var armed *watch
	err := w.do(ctx, request.NameWatch, path, repeatable, func(a *attempt) error {
		again := false
		for {
			var isNew bool
			switch armed, isNew = a.session.hub.join(key); {
			case isNew && w.bundles:
				a.session.bundle.add(armed)
			case isNew:
				go a.session.arm(armed)
			}
			err := armed.await(ctx)
			if err == nil && !isNew && (recheck || armed.isOld()) {
				if err = armed.check(ctx); err == nil {
					recheck = false
					if armed.hasFired() {
						armed.leave()
						continue
					}
				}
			}
			if err == nil {
				return nil
			}
			armed.leave()
			if isNew || again || ctx.Err() != nil || zkerr.Classify(err) != zkerr.Final {
				return err
			}
			again = true // the read that has failed may have begun before this call
		}
	})
	if err != nil {
		return nil, w.nameMissingRoot(ctx, err)
	}
	return armed, nil
}

// await waits until w is armed, or cannot be.
func (w *watch) await(ctx context.Context) error {
	select {
	case <-w.ready:
		return w.err
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	case <-w.session.over:
		return w.session.Err()
	}
}

// arm reads a znode under a watch of the server. Where a tree tells of the
// znode, no watch is armed: see trees. Several callers may wait for the result,
// so no caller's context bounds the read: the connection does.
func (s *session) arm(w *watch) {
	defer close(w.ready)
	on := s.usable() // before the tree is known: this one must not be of an earlier connection
	tree := s.beginOne(w.key.path)
	defer s.trees.endOne(w.key.path)
	if on == nil {
		w.err = zk.ErrNoServer
		s.hub.drop(w)
		return
	}
	s.hub.begin(w, on)
	covered := tree != nil && w.key.kind != watchChildren // what ends the tree fires w
	var r reply
	w.node, r, w.err = s.readUnder(w.key, on, !covered)
	w.zxid = r.zxid
	if !covered && w.err == nil {
		s.hub.noteArmed(w, r.order)
	}
	switch {
	case w.err != nil, w.node.found: // what is armed then tells of data
		s.hub.drop(w)
	case w.key.kind == watchChildren:
		s.discardStrays(w.key.path, w.node.children)
	}
}

// begin notes where w is about to be armed.
func (h *hub) begin(w *watch, on *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.on = on
}

// watchOps are the requests that arm watches.
var watchOps = map[watchKind]wire.Op{watchData: wire.OpGetData, watchMissing: wire.OpExists, watchChildren: wire.OpGetChildren2}

// readUnder reads a znode, and arms a watch if it is to.
func (s *session) readUnder(key watchKey, on *link, arm bool) (n node, r reply, err error) {
	n, err = call(context.Background(), s, Request{Op: request.NameWatch, Path: key.path}, func(*zk.Conn) (_ node, err error) {
		r, err = s.ask(context.Background(), on, watchOps[key.kind], &wire.WatchRequest{Path: key.path, Watch: arm}, 0)
		if err != nil && key.kind == watchMissing && errors.Is(err, zk.ErrNoNode) {
			return node{}, nil
		}
		if err != nil {
			return node{}, err
		}
		return nodeIn(key.kind, r.body)
	}, nil)
	return n, r, err
}

// nodeIn decodes what a watch of this kind reads.
func nodeIn(kind watchKind, body []byte) (n node, err error) {
	var stat wire.Stat
	switch kind {
	case watchData:
		var r wire.DataResponse
		err = wire.Unmarshal(body, &r)
		n.data, stat = r.Data, r.Stat
	case watchChildren:
		r := wire.ChildrenResponse{HasStat: true}
		err = wire.Unmarshal(body, &r)
		n.children, stat = r.Children, r.Stat
	case watchMissing:
		err = wire.Unmarshal(body, &stat)
		n.found = true
	}
	if err != nil { // the link has seen to it that the body can be decoded
		return node{}, fmt.Errorf("%w: %w: %w", zk.ErrConnectionClosed, zkerr.Malformed, err)
	}
	n.stat = (*zk.Stat)(&stat)
	return n, nil
}

// Watch returns a channel that is closed when the znode at path is changed or
// deleted, and also when the session reconnects or is over: so look at the
// znode again then.
//
// A missing znode is zk.ErrNoNode, and leaves no watch behind: see WatchExists.
// All callers in one session share one watch at the server. The first one costs
// a request, and another one if no caller has come for half a session timeout.
// Who does not need the channel any longer can say so: see Unwatch.
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
	return w.share(), nil
}

// GetAndWatch is Watch, and also returns the znode's data and stat, which were
// current at most half a session timeout ago, and still are unless an event was
// lost. The caller must not change them: they are shared.
func (s *Session) GetAndWatch(ctx context.Context, path string) (data []byte, stat *zk.Stat, changed <-chan struct{}, err error) {
	w, err := s.scope().watch(ctx, watchData, path, false)
	if err != nil {
		return nil, nil, nil, err
	}
	return w.node.data, w.node.stat, w.share(), nil
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
	return w.node.children, w.share(), nil
}

// WatchExists reports whether the znode at path exists, with its stat if it
// does. The channel is closed when the znode is created, changed or deleted,
// and also when the session reconnects or is over: so look again then. The
// session must be allowed to read the znode.
//
// It costs one request if the znode exists and two if not. If the session has
// that watch already it costs none, or one if no caller has come for half a
// session timeout. An event can be lost, as with Watch: call it again after
// about a session timeout. The watch on a missing znode stays at the server
// until the znode is created, the connection ends, or all callers have called
// Unwatch. There is at most one for each path.
func (s *Session) WatchExists(ctx context.Context, path string) (exists bool, stat *zk.Stat, changed <-chan struct{}, err error) {
	n, w, err := s.scope().readAndWatch(ctx, watchData, path, false)
	if err != nil {
		return false, nil, nil, err
	}
	return n.found, n.stat, w.share(), nil
}
