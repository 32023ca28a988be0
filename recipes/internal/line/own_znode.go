package line

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes/internal/recheck"
)

// Revocation is the data by which anybody asks a holder, or a waiter, to
// release: Apache Curator's.
const Revocation = "__REVOKE__"

// IsRevocation reports whether data asks for the release: it is Revocation, or
// that, a space, and any text. zkr revoke appends the holder's own data, so
// that it can still be read. Curator compares the whole data.
func IsRevocation(data []byte) bool {
	return string(data) == Revocation || strings.HasPrefix(string(data), Revocation+" ")
}

// Revoke asks the contender with the znode at path to leave. It fails with
// zk.ErrNoNode if that has left.
func (l *Line) Revoke(ctx context.Context, path string) error {
	if path != child(l.dir, base(path)) {
		return fmt.Errorf("%s: not in line at %s", path, l.dir)
	}
	_, err := l.client.Set(ctx, path, []byte(Revocation), -1)
	return err
}

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
}

func (w *nodeWatch) startLaterLocked(g *grant) {
	if w.timer == nil {
		w.timer = time.AfterFunc(watchDelay, g.watchNode)
	}
}

func (w *nodeWatch) stopLocked() {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.stop != nil {
		w.stop()
	}
}

// isRevoked reports whether a release was asked for, as far as anybody has
// looked.
func (w *nodeWatch) isRevoked() bool {
	select {
	case <-w.revoked: // never, if it is nil
		return true
	default:
		return false
	}
}

// Revoked is closed when somebody has asked for the share to be released. The
// first call begins to look for it: it costs a read, and one each session
// timeout, since an event can be lost.
func (s *Share) Revoked() <-chan struct{} {
	g := s.grant
	g.queue.mu.Lock()
	defer g.queue.mu.Unlock()
	if g.watch.revoked != nil {
		return g.watch.revoked
	}
	g.watch.revoked = make(chan struct{})
	if g.watch.asked != nil {
		g.watch.asked <- struct{}{} // it holds one, and this is done once
	} else {
		go g.watchNode()
	}
	return g.watch.revoked
}

// OnRevoked has fn called once, when the share's release is asked for, or was
// asked for before, unless the share was left. Revoked must have been called.
// fn must not block.
func (s *Share) OnRevoked(fn func()) {
	g := s.grant
	g.queue.update(func() {
		switch {
		case s.settled:
		case g.watch.isRevoked():
			g.queue.later(fn)
		default:
			s.onRevoked = fn
		}
	})
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
	g.queue.mu.Unlock()
	defer stop()
	var changed <-chan struct{} // nil: it is not watched
	for seen := false; ; {
		var err error
		if changed == nil {
			var stat *zk.Stat
			_, stat, changed, err = g.sess.GetAndWatch(ctx, g.path)
			if err == nil && stat.EphemeralOwner != g.sess.ID() {
				err = zk.ErrNoNode // deleted, and somebody has created another one with its name
			}
		}
		waits := false
		if err == nil {
			waits, err = g.checkRevoked(ctx)
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
		case err != nil && g.sess.Err() == nil:
			again = time.After(g.sess.Timeout() / 3) // no server answers: look later
		case waits:
			again = time.After(recheck.Interval(g.sess)) // an event can be lost
		}
		select {
		case <-changed:
			changed = nil
		case <-again:
		case <-asked:
		case <-g.sess.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// checkRevoked looks at the data, if Revoked was called, and reports whether it
// waits for a request to release. The watch was set before: a request that
// comes after the look is not missed.
func (g *grant) checkRevoked(ctx context.Context) (waits bool, err error) {
	g.queue.mu.Lock()
	revoked := g.watch.revoked
	done := revoked == nil || g.watch.isRevoked()
	g.queue.mu.Unlock()
	if done {
		return false, nil
	}
	data, _, err := g.sess.Get(ctx, g.path)
	asked := err == nil && IsRevocation(data)
	if asked {
		g.queue.update(func() {
			close(revoked)
			for _, s := range g.open {
				if s.onRevoked != nil {
					g.queue.later(s.onRevoked)
				}
			}
			g.resumeOrLeaveLocked()
		})
	}
	return !asked, err
}
