package line

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// Revocation is the data by which anybody asks a holder, or one who will be, to
// release: Apache Curator's.
const Revocation = "__REVOKE__"

// Revoke asks whoever stands in line with the znode at path to leave. It is
// zk.ErrNoNode if nobody does any more.
func (l *Line) Revoke(ctx context.Context, path string) error {
	if path != child(l.dir, base(path)) {
		return fmt.Errorf("%s: not in line at %s", path, l.dir)
	}
	_, err := l.client.Set(ctx, path, []byte(Revocation), -1)
	return err
}

// ownWatchDelay is how long a znode is held before it is watched. Most are not
// held for so long, and cost no watch.
const ownWatchDelay = 300 * time.Millisecond

// ownWatch is the watch of a hold's own znode, which somebody else might delete,
// or ask to be released. It is guarded by the gate's mutex.
type ownWatch struct {
	timer   *time.Timer        // starts it
	stop    context.CancelFunc // nil: not running
	revoked chan struct{}      // closed: a release was asked for; nil: nobody wants to know
	asked   chan struct{}      // a token: look at the data now
}

func (o *ownWatch) stopLocked() {
	if o.timer != nil {
		o.timer.Stop()
	}
	if o.stop != nil {
		o.stop()
	}
}

// isRevoked reports whether a release was asked for, as far as anybody has looked.
func (o *ownWatch) isRevoked() bool {
	select {
	case <-o.revoked: // never, if it is nil
		return true
	default:
		return false
	}
}

// Revoked is closed when somebody has asked for the place to be given up. The first
// call begins to look for it.
func (p *Place) Revoked() <-chan struct{} {
	h := p.h
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	if h.own.revoked != nil {
		return h.own.revoked
	}
	h.own.revoked = make(chan struct{})
	if h.own.asked != nil {
		h.own.asked <- struct{}{} // it holds one, and this is done once
	} else {
		go h.watchOwn()
	}
	return h.own.revoked
}

// watchOwn watches the znode until the hold is lost or begins to leave. It runs on
// a goroutine of its own, once for a hold at most.
func (h *hold) watchOwn() {
	h.gate.mu.Lock()
	if h.own.asked != nil || h.err != nil || h.gone {
		h.gate.mu.Unlock()
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	asked := make(chan struct{}, 1)
	h.own.stop, h.own.asked = stop, asked
	h.gate.mu.Unlock()
	defer stop()
	for {
		changed, err := h.sess.Watch(ctx, h.path)
		if err == nil {
			err = h.checkRevoked(ctx)
		}
		if errors.Is(err, zk.ErrNoNode) {
			h.lostOwn(ctx)
			return
		}
		var again <-chan time.Time
		if err != nil && h.sess.Err() == nil {
			again = time.After(h.sess.Timeout() / 3) // no server answers: look later
		}
		select {
		case <-changed:
		case <-again:
		case <-asked:
		case <-h.sess.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// checkRevoked looks at the data, if anybody wants to know. The watch was set
// before: a request that comes after the look is not missed.
func (h *hold) checkRevoked(ctx context.Context) error {
	h.gate.mu.Lock()
	revoked := h.own.revoked
	h.gate.mu.Unlock()
	if revoked == nil {
		return nil
	}
	select {
	case <-revoked:
		return nil
	default:
	}
	data, _, err := h.sess.Get(ctx, h.path)
	if err == nil && string(data) == Revocation {
		close(revoked)
		h.gate.mu.Lock()
		h.resumeOrLeaveLocked()
		h.gate.mu.Unlock()
	}
	return err
}

// lostOwn loses a hold whose znode is not there, unless it is the own removal that
// was seen, which ended ctx before it began.
func (h *hold) lostOwn(ctx context.Context) {
	h.gate.mu.Lock()
	tell := func() {}
	if ctx.Err() == nil {
		tell = h.loseLocked(h.errDeleted())
	}
	h.gate.mu.Unlock()
	tell()
}
