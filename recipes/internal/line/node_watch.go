package line

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes/internal/privileged"
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
	own     privileged.Armed   // of the contender that has waited; nil: none
	read    time.Time          // when the znode was read, or listed, last; zero: own is nil
}

// takeOver has the grant go on with the watch that its contender has, of its
// own znode.
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

// watchNode watches the znode until the grant is lost or begins to leave. It
// runs on a goroutine of its own, once for a grant at most.
func (g *grant) watchNode() {
	g.queue.mu.Lock()
	if g.watch.asked != nil || g.state != held && g.state != idle {
		g.queue.mu.Unlock()
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	asked := make(chan struct{}, 1)
	g.watch.stop, g.watch.asked = stop, asked
	own, read := g.watch.own, g.watch.read
	g.queue.mu.Unlock()
	defer stop()
	sess := privileged.Framework.Endless(g.sess)
	var changed <-chan struct{} // nil: it is not watched
	defer func() { sess.Unwatch(changed) }()
	seen := own != nil
	if seen {
		changed = own.Changed()
	}
	var verify <-chan time.Time // own may have been used up without an event
	switch {
	case own == nil:
	case time.Since(read) > sess.Timeout()/2:
		verify = time.After(0)
	default:
		verify = time.After(watchDelay)
	}
	for {
		var err error
		if changed == nil {
			var stat *zk.Stat
			_, stat, changed, err = sess.GetAndWatch(ctx, g.path)
			if err == nil && stat.EphemeralOwner != sess.ID() {
				err = zk.ErrNoNode // deleted, and somebody has created another one with its name
			}
		}
		waits := false
		if err == nil {
			waits, err = g.checkRevoked(ctx, sess)
		}
		hidden := seen && errors.Is(err, zk.ErrNoAuth) // or another one that we may not read
		if hidden || errors.Is(err, zk.ErrNoNode) {
			g.queue.update(func() {
				if hidden {
					g.loseLocked(deleted, fmt.Errorf("znode %s can no longer be read: %w", g.name, zk.ErrNoAuth))
				} else {
					g.loseDeletedLocked()
				}
			})
			return
		}
		seen = seen || err == nil
		var again <-chan time.Time
		switch {
		case err != nil && sess.Err() == nil:
			again = time.After(sess.Timeout() / 3) // the read is refused: try again later
		case waits:
			again = time.After(recheck.Interval(sess)) // an event can be lost
		}
		select {
		case <-changed:
			changed = nil
		case <-verify:
			verify = nil
			if own.Check(ctx) != nil {
				verify = time.After(sess.Timeout() / 3)
			}
		case <-again:
		case <-asked:
		case <-sess.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}
