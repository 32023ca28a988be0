package line

import (
	"context"
	"fmt"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// Revoke asks the contender with the znode at path, and with such data, to
// leave. It fails with zk.ErrNoNode if that has left.
func (l *Line) Revoke(ctx context.Context, path string, data []byte) error {
	if path != child(l.dir, base(path)) {
		return fmt.Errorf("%s: not in line at %s", path, l.dir)
	}
	return l.client.SetUnique(ctx, path, identity.Request(data))
}

// isRevoked reports whether a release was asked for, as far as anybody has
// looked.
func (w *nodeWatch) isRevoked() bool { return closed.Is(w.revoked) }

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

// checkRevoked looks at the data, if Revoked was called, and reports whether it
// waits for a request to release. The watch was set before: a request that
// comes after the look is not missed.
func (g *grant) checkRevoked(ctx context.Context, sess *managed.Session) (waits bool, err error) {
	g.queue.mu.Lock()
	revoked := g.watch.revoked
	done := revoked == nil || g.watch.isRevoked()
	g.queue.mu.Unlock()
	if done {
		return false, nil
	}
	data, _, err := sess.Get(ctx, g.path)
	asked := err == nil && identity.IsRequest(data)
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
