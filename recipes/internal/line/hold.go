package line

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
)

// A hold is a znode that has its turn. The places on it are one caller's each; with
// the last of them it leaves, or becomes idle. See the package comment for its life.
type hold struct {
	gate   *gate
	sess   *framework.Session
	name   string
	path   string // in the gate's view of the client
	rank   Rank
	unhold func() // ends the session's interest in it

	// Guarded by gate.mu.
	seated   bool   // it counts among the gate's holds
	turn     uint32 // how often it was handed over
	crowd    crowd  // who is kept waiting by it
	idle     idle
	timed    bool      // it is not for long, by MaxHold
	bound    bool      // a guard was given out, or a read stands beside it: it serves nobody else
	guarding int       // guarded writes under way
	places   int       // that have not left
	open     []*Place  // that have no result yet
	taken    bool      // by a caller
	err      error     // why it was lost; nil: it was not
	left     bool      // it has left, and was held until then
	gone     bool      // the znode was removed, or that was asked for
	deadline time.Time // that was known at the loss
	removal  *removal  // nil: none is under way
	own      ownWatch
	invited  invitation
	limit    *time.Timer // MaxHold
	linger   *time.Timer // nil: nothing has lingered yet
	cleanup  *time.Timer // for the znode of a lost hold

	lingering bool // linger runs
}

// removal is one try to remove the znode, on a goroutine of its own, so that it
// goes on when nobody waits for it any more.
type removal struct {
	done chan struct{} // closed: the places that waited for it have their result, or err is set
	err  error         // it is not known whether the znode is gone
}

// errDeleted is why a hold is lost whose znode somebody else has removed.
func (h *hold) errDeleted() error {
	return fmt.Errorf("znode %s deleted: %w", h.name, zk.ErrNoNode)
}

// doubt is why a hold is lost whose session is not proven, and has not told.
func (h *hold) doubt() error {
	select {
	case <-h.gate.client.Done():
		return framework.ErrClosed
	default:
	}
	if over := h.sess.Err(); over != nil {
		return over
	}
	return framework.ErrUnproven
}

// why is why it was lost.
func (h *hold) why() error {
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	return h.err
}

// placeLocked adds a place.
func (h *hold) placeLocked(l *Line) *Place {
	p := &Place{h: h, line: l, turn: h.turn}
	if h.places == 0 {
		h.idle, h.timed = idle{}, l.cfg.MaxHold > 0
	}
	h.places++
	h.open = append(h.open, p)
	return p
}

// unusedLocked reports whether nobody works under it, nor has just left it and does
// not know yet how: it is idle, or leaves because nobody has come.
func (h *hold) unusedLocked() bool {
	return h.idle.cfg != nil || h.removal != nil && len(h.open) == 0
}

// lose ends the hold: at the session's stop margin, or when the session is over,
// the client closes, the znode was deleted, or it was held for too long. It is
// called from any of their goroutines and does not block.
func (h *hold) lose(why error) {
	h.gate.mu.Lock()
	tell := h.loseLocked(why)
	h.gate.mu.Unlock()
	tell()
}

// loseLocked is lose up to what must be done without the lock, which it returns.
func (h *hold) loseLocked(why error) (tell func()) {
	if h.err != nil || h.left {
		return func() {}
	}
	g := h.gate
	h.err, h.deadline = why, h.sess.Deadline()
	h.gone = h.gone || errors.Is(why, zk.ErrNoNode)
	if errors.Is(why, zk.ErrNoNode) || errors.Is(why, framework.ErrClosed) {
		if now := time.Now(); now.Before(h.deadline) {
			h.deadline = now // others may be let in already, or are about to be
		}
	}
	h.stopLocked()
	if h.places > 0 && !h.gone && !g.cfg.StayUntilLeft {
		// The work may still be stopping, and has until the deadline for it.
		h.cleanup = time.AfterFunc(time.Until(h.deadline), h.discard)
	}
	unused := h.idle.cfg != nil // so nobody will release it
	h.idle = idle{}
	if h.removal == nil {
		g.vacateLocked(h)
	}
	var told []func(error)
	for _, p := range h.open {
		if p.onLoss != nil {
			told = append(told, p.onLoss)
		}
	}
	unhold := h.unhold
	return func() {
		for _, fn := range told {
			fn(why)
		}
		if unhold != nil {
			unhold()
		}
		if unused {
			h.discard()
		}
	}
}

// stopLocked ends what runs beside a hold.
func (h *hold) stopLocked() {
	h.own.stopLocked()
	if h.limit != nil {
		h.limit.Stop()
	}
	if h.linger != nil {
		h.linger.Stop()
	}
	if h.crowd.look != nil {
		h.crowd.look()
	}
}

// discard removes the znode of a lost hold, unless that was done before.
func (h *hold) discard() {
	h.gate.mu.Lock()
	gone := h.gone
	h.gone = true
	if h.cleanup != nil {
		h.cleanup.Stop()
	}
	h.gate.mu.Unlock()
	if !gone && h.sess.Err() == nil {
		h.sess.Discard(h.path)
	}
}

// removeLocked starts to remove the znode of a hold that has no places left.
func (h *hold) removeLocked() *removal {
	h.stopLocked()
	h.idle = idle{}
	h.removal = &removal{done: make(chan struct{})}
	go h.remove(h.removal, h.gone)
	h.gone = true
	return h.removal
}

// remove ends when the session has the answer, or is over, or no server answered
// in all of its retry budget; then the session goes on trying by itself. again
// says that an earlier removal may be why the znode is not there.
func (h *hold) remove(r *removal, again bool) {
	g := h.gate
	err := h.sess.Delete(context.Background(), h.path, -1)
	missing := errors.Is(err, zk.ErrNoNode)
	over := errors.Is(err, framework.ErrSessionLost) || errors.Is(err, framework.ErrClosed)

	tell := func() {}
	g.mu.Lock()
	switch {
	case h.err != nil:
		// Lost meanwhile. That the znode stood until now does not take it back: the
		// loss has been told, and is final.
	case err == nil, missing && again:
		h.left = true
	case missing:
		tell = h.loseLocked(h.errDeleted())
	case over:
		tell = h.loseLocked(err)
	default:
		r.err = err
	}
	if r.err == nil {
		h.settleLocked()
	}
	h.removal = nil
	g.vacateLocked(h)
	g.mu.Unlock()

	h.unhold()
	tell()
	if err != nil && !missing && !over {
		h.sess.Discard(h.path)
	}
	close(r.done)
}

// settleLocked gives the last place, which has waited for the removal, its result.
func (h *hold) settleLocked() {
	var result error
	if h.err != nil {
		result = notHeld(h.err)
	}
	for _, p := range slices.Clone(h.open) {
		p.settleLocked(result)
	}
}

// notHeld wraps why it is not.
func notHeld(why error) error { return fmt.Errorf("%w: %w", ErrNotHeld, why) }
