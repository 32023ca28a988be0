package watches

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// hub keeps at most one watch for each path and kind, which all callers share.
// It arms it by a request of its own (see link.Chain.Ask), on one connection,
// and the watch ends with that. The wire client has no watches.
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
	session *Watches

	mu       sync.Mutex // guards what follows
	armed    map[watchKey]*Watch
	shares   map[<-chan struct{}]*Watch // by the channels of callers: see share
	unwanted map[watchKey]unwanted
	sweeping bool // a sweep is due
}

type watchKey struct {
	kind Kind
	path string // on the wire
}

// Kind is what a watch is for.
type Kind int

const (
	Data     Kind = iota // of a znode that exists: changed or deleted
	Missing              // of one that does not exist: created; or, if it did exist, as Data
	Children             // of one that exists: children created or deleted, or itself deleted
)

// Watch is a watch that callers share. It begins to be armed when it is made.
type Watch struct {
	session *Watches
	key     watchKey
	ready   chan struct{} // closed: armed, or err says why not
	fired   chan struct{} // closed: what was read may have changed
	Node    ops.Node      // what was read when it was armed
	zxid    int64         // the latest transaction that its server had applied then
	err     error
	lookout lookout

	// What follows is guarded by hub.mu.
	on        *link.Link // where it is armed; nil: that has not begun
	wanted    int        // callers that have not left
	shares    []chan struct{}
	firedAt   uint64 // the place of the event that has fired it; 0: there was none
	reading   reading
	deletedOn *link.Link // where that event came from, if it was the znode's deletion
	resumed   bool       // it was armed by setWatches: node was read before
	mayGoOn   bool       // a caller may resume it after a reconnect
	goesOnAs  *Watch     // the one that does
}

// onEvent fires the watches that a change at path concerns. order is the place
// of the event. It runs on the goroutine that reads the connection.
func (h *hub) onEvent(on *link.Link, order uint64, what zk.EventType, path string) {
	var kinds []Kind
	switch what {
	case zk.EventNodeCreated:
		kinds = []Kind{Missing}
	case zk.EventNodeDataChanged:
		kinds = []Kind{Data, Missing}
	case zk.EventNodeChildrenChanged:
		kinds = []Kind{Children}
	case zk.EventNodeDeleted:
		kinds = []Kind{Data, Children, Missing}
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
func (h *hub) reset(on *link.Link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, u := range h.unwanted {
		if u.on != on {
			delete(h.unwanted, key)
		}
	}
	var goOn []*Watch
	var since int64
	for _, w := range h.armed {
		switch {
		case on != nil && (w.on == nil || w.on == on):
		case on != nil && w.goOnLocked(on):
			goOn = append(goOn, w.goesOnAs)
			since = max(since, w.Node.Stat.Mzxid)
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
	h.forsakeLocked(path, Data, Missing, Children)
}

// forsakeLocked fires the watches of these kinds on a path, which nobody has at
// the server any longer.
func (h *hub) forsakeLocked(path string, kinds ...Kind) {
	for _, kind := range kinds {
		key := watchKey{kind, path}
		delete(h.unwanted, key)
		if w := h.armed[key]; w != nil {
			h.fireLocked(w)
		}
	}
}

// fireLocked fires a watch that has not fired.
func (h *hub) fireLocked(w *Watch) {
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

// Share returns a channel that is closed when w fires, and that no other caller
// has: unwatch knows the caller by it.
func (w *Watch) Share() <-chan struct{} {
	h := &w.session.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.armed[w.key] != w || len(w.shares) == mostShares {
		return w.fired
	}
	changed := make(chan struct{})
	if h.shares == nil {
		h.shares = make(map[<-chan struct{}]*Watch)
	}
	h.shares[changed] = w
	w.shares = append(w.shares, changed)
	return changed
}

// join returns the watch for key, and reports whether it is new. If so, the
// caller must arm it. It is registered before its request is sent, so that no
// event that follows the answer can be missed. Unless the watch fires, the
// caller must leave it.
func (h *hub) join(key watchKey) (w *Watch, isNew bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w = h.armed[key]
	if isNew = w == nil; isNew {
		w = h.newLocked(key)
	}
	w.wanted++
	return w, isNew
}

func (h *hub) newLocked(key watchKey) *Watch {
	w := &Watch{session: h.session, key: key, ready: make(chan struct{}), fired: make(chan struct{}), lookout: lookout{checked: time.Now()}}
	if h.armed == nil {
		h.armed = make(map[watchKey]*Watch)
	}
	h.armed[key] = w
	return w
}

// drop fires a watch that could not be armed.
func (h *hub) drop(w *Watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.armed[w.key] == w {
		h.fireLocked(w)
	}
}

// Scope says where znodes are watched: in any session, or in one.
type Scope struct {
	ops.Scope
	Of      Finder
	bundles bool // watches that are asked for together are armed together
}

// Finder finds what watches in a session.
type Finder interface {
	// WatchesOf returns it, nil if the session is over.
	WatchesOf(s *ops.Session) *Watches
}

// WatchesOf implements finder: all is in this session.
func (s *Watches) WatchesOf(*ops.Session) *Watches { return s }

// Watch arms or joins the watch of a kind on path. If the read that arms it
// fails, no watch is left. A watch that is joined is checked first, if recheck
// is true or it was not checked for half a session timeout.
func (w Scope) Watch(ctx context.Context, kind Kind, path string, recheck bool) (*Watch, error) {
	if err := request.ValidatePath(path); err != nil {
		return nil, &zkerr.Op{Op: request.NameWatch, Path: path, Err: err}
	}
	key := watchKey{kind, w.Root.Fix(path)}
	if err := w.Client.Fits(request.TextSize(key.path) + request.BoolSize); err != nil {
		return nil, &zkerr.Op{Op: request.NameWatch, Path: path, Err: err}
	}
	var armed *Watch
	err := w.Do(ctx, request.NameWatch, path, ops.Repeatable, func(a *ops.Attempt) error {
		s := w.Of.WatchesOf(a.Session)
		if s == nil {
			return a.Session.Err()
		}
		again := false
		for {
			var isNew bool
			switch armed, isNew = s.hub.join(key); {
			case isNew && w.bundles:
				s.bundle.add(armed)
			case isNew:
				go s.arm(armed)
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
		return nil, w.NameMissingRoot(ctx, err)
	}
	return armed, nil
}

// await waits until w is armed, or cannot be.
func (w *Watch) await(ctx context.Context) error {
	select {
	case <-w.ready:
		return w.err
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	case <-w.session.Over():
		return w.session.Err()
	}
}

// arm reads a znode under a watch of the server. Where a tree tells of the
// znode, no watch is armed: see trees. Several callers may wait for the result,
// so no caller's context bounds the read: the connection does.
func (s *Watches) arm(w *Watch) {
	defer close(w.ready)
	on := s.Chain().Usable() // before the tree is known: this one must not be of an earlier connection
	tree := s.beginOne(w.key.path)
	defer s.trees.endOne(w.key.path)
	if on == nil {
		w.err = zk.ErrNoServer
		s.hub.drop(w)
		return
	}
	s.hub.begin(w, on)
	covered := tree != nil && w.key.kind != Children // what ends the tree fires w
	var r link.Reply
	w.Node, r, w.err = s.readUnder(w.key, on, !covered)
	w.zxid = r.Zxid
	if !covered && w.err == nil {
		s.hub.noteArmed(w, r.Order)
	}
	switch {
	case w.err != nil, w.Node.Found: // what is armed then tells of data
		s.hub.drop(w)
	case w.key.kind == Children:
		s.Listed(w.key.path, w.Node.Children)
	}
}

// begin notes where w is about to be armed.
func (h *hub) begin(w *Watch, on *link.Link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.on = on
}

// watchOps are the requests that arm watches.
var watchOps = map[Kind]wire.Op{Data: wire.OpGetData, Missing: wire.OpExists, Children: wire.OpGetChildren2}

// readUnder reads a znode, and arms a watch if it is to.
func (s *Watches) readUnder(key watchKey, on *link.Link, arm bool) (n ops.Node, r link.Reply, err error) {
	n, err = ops.Call(context.Background(), s.Session, ops.Request{Op: request.NameWatch, Path: key.path}, func(*zk.Conn) (_ ops.Node, err error) {
		r, err = s.Chain().Ask(context.Background(), on, watchOps[key.kind], &wire.WatchRequest{Path: key.path, Watch: arm}, 0)
		if err != nil && key.kind == Missing && errors.Is(err, zk.ErrNoNode) {
			return ops.Node{}, nil
		}
		if err != nil {
			return ops.Node{}, err
		}
		return nodeIn(key.kind, r.Body)
	}, nil)
	return n, r, err
}

// nodeIn decodes what a watch of this kind reads.
func nodeIn(kind Kind, body []byte) (n ops.Node, err error) {
	var stat wire.Stat
	switch kind {
	case Data:
		var r wire.DataResponse
		err = wire.Unmarshal(body, &r)
		n.Data, stat = r.Data, r.Stat
	case Children:
		r := wire.ChildrenResponse{HasStat: true}
		err = wire.Unmarshal(body, &r)
		n.Children, stat = r.Children, r.Stat
	case Missing:
		err = wire.Unmarshal(body, &stat)
		n.Found = true
	}
	if err != nil { // the link has seen to it that the body can be decoded
		return ops.Node{}, fmt.Errorf("%w: %w: %w", zk.ErrConnectionClosed, zkerr.Malformed, err)
	}
	n.Stat = (*zk.Stat)(&stat)
	return n, nil
}
