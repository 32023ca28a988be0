package line

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A hold that lingers makes room when somebody joins the line behind it. A try must
// not join behind one that is in use, so the two agree by the lingering znode:
//
//	name            its UUID is of version 8: it may linger. A list shows that.
//	version 0       in use, and has not lingered yet
//	version 1       it has lingered: a try may join behind it. If it is idle then it
//	                leaves; if it is in use again it writes once more.
//	version 2       it has answered a try so: no other need join
//
// The writes set the data that the znode has already, each over the version that it
// expects, so that none can undo a request to release (Revocation), which is not
// taken for an invitation either.

// invitation is the state of the version of a hold's own znode.
type invitation struct {
	begun    bool          // guarded by the gate's mutex
	answered bool          // guarded by the gate's mutex
	written  chan struct{} // closed: version 1 is written, or has failed
	valid    bool          // it is; read after written
}

// naming is the session in which the gate's znodes are created: their names tell
// whether they may linger.
func (g *gate) naming(sess *framework.Session) *framework.Session {
	if g.lingers.Load() {
		return sess.CustomIDs()
	}
	return sess
}

// mayLinger reports whether the znode's name says so.
func (h *hold) mayLinger() bool {
	own, _ := layout.Parse(h.name)
	return own.Custom()
}

// inviteLocked has others know that h has lingered. It does so once.
func (h *hold) inviteLocked() {
	if h.invited.begun {
		return
	}
	h.invited.begun = true
	h.invited.written = make(chan struct{})
	go h.invite()
}

func (h *hold) invite() {
	defer close(h.invited.written)
	ctx := context.Background() // the session bounds it, and one budget of its retries
	_, err := h.sess.Set(ctx, h.path, h.gate.cfg.Data, 0)
	if err == nil {
		h.invited.valid = true
		return
	}
	if framework.MaybeApplied(err) {
		data, stat, err := h.sess.Get(ctx, h.path)
		h.invited.valid = err == nil && invites(data, stat)
	}
}

// declineLocked answers a try that has joined behind h, which is in use.
func (h *hold) declineLocked() {
	if !h.invited.begun || h.invited.answered {
		return
	}
	h.invited.answered = true
	go func() {
		<-h.invited.written
		if h.invited.valid {
			// If it fails the try gives up by itself, after a while.
			_, _ = h.sess.Set(context.Background(), h.path, h.gate.cfg.Data, 1)
		}
	}()
}

// invites reports whether a znode with this state makes room for a try, or says at
// once that it does not.
func invites(data []byte, stat *zk.Stat) bool {
	return stat.Version == 1 && string(data) != Revocation
}

// invited reports whether all that a contender which joined now would have to wait
// for makes room for it. What lingers in this process leaves here.
func (g *gate) invited(ctx context.Context, sess *framework.Session, blockers iter.Seq[layout.Node]) (bool, error) {
	for blocker := range blockers {
		if !blocker.Custom() {
			return false, nil
		}
		if ours, left := g.endLingering(ctx, blocker.Name); ours {
			if !left {
				return false, nil
			}
			continue
		}
		data, stat, err := sess.Get(ctx, child(g.dir, blocker.Name))
		switch {
		case errors.Is(err, zk.ErrNoNode): // it has left
		case errors.Is(err, zk.ErrNoAuth):
			return false, nil
		case err != nil:
			return false, err
		case !invites(data, stat):
			return false, nil
		}
	}
	return true, nil
}

// endLingering has the znode of that name leave the line, if it is one of this
// process that lingers, and waits for that.
func (g *gate) endLingering(ctx context.Context, name string) (ours, left bool) {
	for _, other := range g.registry.at(g.key.path) {
		other.mu.Lock()
		h := other.seat
		if h == nil || h.name != name {
			other.mu.Unlock()
			continue
		}
		leaving := h.endLingerLocked()
		if leaving == nil {
			leaving = h.removal
		}
		other.mu.Unlock()
		return true, leaving != nil && leaving.await(ctx) == nil
	}
	return false, false
}

// hopeForLingering lets those who only try wait for a blocker that invites them,
// until passed is closed, or for T/3: its process may be dead or cut off. It
// returns nil if there is nothing to wait for.
func (g *gate) hopeForLingering(ctx context.Context, c *contender, blocker string) (passed <-chan struct{}, err error) {
	c.hoping = false
	if len(g.trying()) == 0 {
		return nil, nil
	}
	if c.patience.IsZero() {
		c.patience = time.Now().Add(c.sess.Timeout() / 3)
	}
	if node, _ := layout.Parse(blocker); !node.Custom() || !time.Now().Before(c.patience) {
		return nil, nil
	}
	data, stat, passed, err := c.sess.GetAndWatch(ctx, child(g.dir, blocker))
	switch {
	case errors.Is(err, zk.ErrNoNode): // it has left
		again := make(chan struct{})
		close(again)
		passed = again
	case errors.Is(err, zk.ErrNoAuth):
		return nil, nil
	case err != nil:
		return nil, err
	case !invites(data, stat):
		return nil, nil
	}
	c.hoping = true
	return passed, nil
}
