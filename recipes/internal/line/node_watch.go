package line

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recheck"
)

// watchDelay is how long a znode is held before it is watched. Most are not
// held for so long, and cost no watch.
const watchDelay = 300 * time.Millisecond

// nodeWatch is the watch of a grant's own znode, which somebody else might
// delete, or ask to be released. It is guarded by the queue's mutex.
type nodeWatch struct {
	timer   *time.Timer        // starts it
	stop    context.CancelFunc // nil: not running
	revoked chan struct{}      // closed: a release was asked for; nil: Revoked was not called
	asked   chan struct{}      // a token: look at the data now
	own     *managed.Armed     // of the contender that has waited; nil: none
	read    time.Time          // when the znode was read, or listed, last; zero: own is nil
}

// takeOver gives the grant the watch that its contender has of its own znode.
func (w *nodeWatch) takeOver(o *outlook, session int64, byEvent bool) {
	if o.own == nil {
		return
	}
	if _, owner, err := o.own.Read(); err != nil || owner != session {
		return
	}
	w.own, o.own = o.own, nil
	w.read = o.read
	if !byEvent {
		w.read = time.Now()
	}
}

func (w *nodeWatch) startLaterLocked(g *grant) {
	if w.timer != nil {
		return
	}
	delay := watchDelay
	if w.own != nil { // it costs nothing
		delay = 0
	}
	w.timer = time.AfterFunc(delay, g.watchNode)
}

func (w *nodeWatch) stopLocked() {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.stop != nil {
		w.stop()
	}
}

// A nodeWatcher is what the goroutine knows that watches the znode.
type nodeWatcher struct {
	sess    *managed.Session // waits for a connection however long it takes
	own     *managed.Armed   // of the contender that has waited; nil: none
	asked   <-chan struct{}
	seen    bool             // the znode was read, and was the grant's
	changed <-chan struct{}  // of its watch; nil: it is not watched
	verify  <-chan time.Time // own may be used up without an event; nil: checked
	again   <-chan time.Time // nil: an event comes
}

// nodeEvent is what a nodeWatcher has heard of the znode.
type nodeEvent int

const (
	nodeFired   nodeEvent = iota // the event of its watch
	nodeChecked                  // own is not used up
	nodeDoubted                  // nobody knows whether own is used up
	nodeExists                   // it was read
	nodeExpects                  // it was read, and may be asked to be released
	nodeRefused                  // the read was refused
	nodeMissing                  // it is gone
	nodeHidden                   // it may no longer be read; perhaps it is another one
)

// on sets what w waits for next. It reports false if the znode is lost.
func (w *nodeWatcher) on(e nodeEvent) (exists bool) {
	retry := w.sess.Timeout() / 3
	switch w.again = nil; e {
	case nodeFired:
		w.changed = nil
	case nodeChecked:
		w.verify = nil
	case nodeDoubted:
		w.verify = time.After(retry)
	case nodeExists:
		w.seen = true
	case nodeExpects:
		w.seen = true
		w.again = time.After(recheck.Interval(w.sess)) // an event can be lost
	case nodeRefused:
		w.again = time.After(retry)
	case nodeMissing, nodeHidden:
		return false
	}
	return true
}

// watchNode watches the znode until the grant is lost or begins to leave. It
// runs on a separate goroutine, once for a grant at most.
func (g *grant) watchNode() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w := g.newNodeWatcher(stop)
	if w == nil {
		return
	}
	defer func() { w.sess.Unwatch(w.changed) }()
	for {
		if e := g.lookAtNode(ctx, w); !w.on(e) {
			g.loseNode(e)
			return
		}
		select {
		case <-w.changed:
			w.on(nodeFired)
		case <-w.verify:
			w.on(w.check(ctx))
		case <-w.again:
		case <-w.asked:
		case <-w.sess.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// newNodeWatcher returns nil if there is one already, or the grant has ended.
func (g *grant) newNodeWatcher(stop context.CancelFunc) *nodeWatcher {
	g.queue.mu.Lock()
	defer g.queue.mu.Unlock()
	if g.watch.asked != nil || g.state != held && g.state != idle {
		return nil
	}
	g.watch.stop, g.watch.asked = stop, make(chan struct{}, 1)
	w := &nodeWatcher{sess: g.sess.Endless(), own: g.watch.own, asked: g.watch.asked}
	if w.own == nil {
		return w
	}
	w.seen, w.changed = true, w.own.Changed()
	delay := watchDelay
	if time.Since(g.watch.read) > g.sess.Timeout()/2 {
		delay = 0
	}
	w.verify = time.After(delay)
	return w
}

// lookAtNode reads the znode under a watch, unless it is watched, and looks for
// a request to release.
func (g *grant) lookAtNode(ctx context.Context, w *nodeWatcher) nodeEvent {
	var err error
	if w.changed == nil {
		var stat *zk.Stat
		_, stat, w.changed, err = w.sess.GetAndWatch(ctx, g.path)
		if err == nil && stat.EphemeralOwner != w.sess.ID() {
			err = zk.ErrNoNode // deleted, and somebody has created another one with its name
		}
	}
	expects := false
	if err == nil {
		expects, err = g.checkRevoked(ctx, w.sess)
	}
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nodeMissing
	case w.seen && errors.Is(err, zk.ErrNoAuth):
		return nodeHidden
	case err != nil:
		return nodeRefused
	case expects:
		return nodeExpects
	}
	return nodeExists
}

// check reads the znode again. If own is used up, that closes changed.
func (w *nodeWatcher) check(ctx context.Context) nodeEvent {
	if w.own.Check(ctx) != nil {
		return nodeDoubted
	}
	return nodeChecked
}

// loseNode ends the grant of a znode that is missing or hidden.
func (g *grant) loseNode(e nodeEvent) {
	g.queue.update(func() {
		if e == nodeHidden {
			g.loseLocked(deleted, fmt.Errorf("znode %s can no longer be read: %w", g.name, zk.ErrNoAuth))
		} else {
			g.loseDeletedLocked()
		}
	})
}
