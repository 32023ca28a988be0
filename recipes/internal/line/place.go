package line

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
)

// A Place is one caller's share of a hold. It is safe for concurrent use.
type Place struct {
	h    *hold
	line *Line // whose view of the client the caller has
	turn uint32
	came time.Time // when its caller came; zero: it did not wait in line

	// Guarded by h.gate.mu.
	onLoss  func(error)
	out     bool  // Leave was called
	settled bool  // the result is known, and final
	result  error // of Leave
}

// Line is the line that the place is in.
func (p *Place) Line() *Line { return p.line }

// Path is the path of the znode that holds.
func (p *Place) Path() string { return child(p.line.held(), p.h.name) }

// Timeout is the session time-out.
func (p *Place) Timeout() time.Duration { return p.h.sess.Timeout() }

// Rank orders p among the places of its line.
func (p *Place) Rank() Rank {
	r := p.h.rank
	r.Handoffs = p.turn
	return r
}

// Waited is how long its caller has waited for the place since it came.
func (p *Place) Waited() time.Duration {
	if p.came.IsZero() {
		return 0
	}
	return time.Since(p.came)
}

// begin is called by the caller who takes the place. It reports false if the hold
// was lost before.
func (p *Place) begin() bool {
	h := p.h
	if !h.sess.Proven() {
		h.lose(h.doubt())
	}
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	if h.err != nil {
		return false
	}
	if h.taken { // by another who shares it
		return true
	}
	h.taken = true
	if d := p.line.cfg.MaxHold; d > 0 {
		h.limit = time.AfterFunc(d, p.overstay)
	}
	if h.own.timer == nil {
		h.own.timer = time.AfterFunc(ownWatchDelay, h.watchOwn)
	}
	if p.line.cfg.Linger > 0 && h.gate.seat == h {
		h.lookLocked()
	}
	return true
}

// overstay ends what was held for too long, unless it was handed over just now.
func (p *Place) overstay() {
	h := p.h
	h.gate.mu.Lock()
	tell := func() {}
	if h.turn == p.turn && h.idle.cfg == nil {
		tell = h.loseLocked(fmt.Errorf("%w: %v", ErrMaxHold, p.line.cfg.MaxHold))
	}
	h.gate.mu.Unlock()
	tell()
}

// Held reports whether it is, as far as the clock can prove. Once false it stays
// false: a hold that could not be proven at one instant is lost.
func (p *Place) Held() bool {
	h := p.h
	h.gate.mu.Lock()
	held := !p.out && h.err == nil
	h.gate.mu.Unlock()
	if !held {
		return false
	}
	if !h.sess.Proven() {
		h.lose(h.doubt())
		return false
	}
	return true
}

// Err is nil while held, then why it was lost, or ErrLeft.
func (p *Place) Err() error {
	p.h.gate.mu.Lock()
	defer p.h.gate.mu.Unlock()
	switch {
	case p.settled && p.result == nil:
		return ErrLeft
	case p.h.err != nil:
		return p.h.err
	case p.out:
		return ErrLeft
	}
	return nil
}

// Deadline is until when nobody else can be let in, as far as is known; for a lost
// hold, as was known at the loss.
func (p *Place) Deadline() time.Time {
	p.h.gate.mu.Lock()
	lost, deadline := p.h.err != nil, p.h.deadline
	p.h.gate.mu.Unlock()
	if lost {
		return deadline
	}
	return p.h.sess.Deadline()
}

// OnLoss has fn called, once, when the place is lost, unless Leave had its result
// before. fn must not block.
func (p *Place) OnLoss(fn func(error)) {
	h := p.h
	h.gate.mu.Lock()
	lost := h.err
	if lost == nil {
		p.onLoss = fn
	}
	h.gate.mu.Unlock()
	if lost != nil {
		fn(lost)
	}
}

// bind keeps the znode from serving anybody else from now on. It reports false,
// and does nothing, if the place is not held.
func (p *Place) bind() bool {
	p.h.gate.mu.Lock()
	defer p.h.gate.mu.Unlock()
	if p.out || p.h.err != nil {
		return false
	}
	p.h.bound = true
	return true
}

// Guard is the path of a znode that exists while the place is held, and until its
// znode is removed; when the place was given up before, one that cannot exist. What
// is guarded by it may be executed at any time, so nobody else at home will have
// the znode.
func (p *Place) Guard() string {
	if !p.bind() {
		return p.Path() + "/left" // an ephemeral znode has no children
	}
	return p.Path()
}

// Guarding begins a write that is guarded by the znode, which nobody else has until
// done was called with whether the outcome is known. It reports false if the place
// is not held.
func (p *Place) Guarding() (done func(known bool), held bool) {
	h := p.h
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	if p.out || h.err != nil {
		return nil, false
	}
	h.guarding++
	return func(known bool) {
		h.gate.mu.Lock()
		defer h.gate.mu.Unlock()
		h.guarding--
		h.bound = h.bound || !known
	}, true
}

// Deleted tells that the znode was found missing, which is a loss unless it is the
// own removal that was found.
func (p *Place) Deleted() {
	h := p.h
	h.gate.mu.Lock()
	tell := func() {}
	if !h.gone && p.turn == h.turn {
		tell = h.loseLocked(h.errDeleted())
	}
	h.gate.mu.Unlock()
	tell()
}

// Share makes another place on the same hold, for l, a view of the same line. Each
// leaves by itself; the znode goes with the last.
func (p *Place) Share(l *Line) (*Place, error) {
	held := p.Held()
	h := p.h
	h.gate.mu.Lock()
	defer h.gate.mu.Unlock()
	switch {
	case h.err != nil:
		return nil, notHeld(h.err)
	case !held || p.out:
		return nil, notHeld(ErrLeft)
	}
	q := h.placeLocked(l)
	q.turn = p.turn
	return q, nil
}

// Session is the session that the place belongs to, in the view of its line.
func (p *Place) Session() (*framework.Session, error) { return p.in(p.line.client) }

// in is the session that the place belongs to, in the view of c.
func (p *Place) in(c *framework.Client) (*framework.Session, error) {
	sess, err := c.Session()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", framework.ErrSessionLost, err)
	}
	if sess.ID() != p.h.sess.ID() {
		return nil, framework.ErrSessionLost
	}
	return sess, nil
}

// Leave gives the place up. If it is the last on its hold the znode is removed,
// unless it is kept for others at home; ctx bounds the wait for that, and the
// removal goes on when ctx ends. Leave may be called again, and then waits again.
//
// The result is nil if the place was held until now, which a removal itself proves:
// the znode stood there until it. It is ErrNotHeld, and why, if the place
// was lost, before or during the removal.
func (p *Place) Leave(ctx context.Context) error {
	p.Held() // what cannot be proven any more must not pass for held until now
	if r := p.quit(); r != nil {
		select {
		case <-r.done: // rather than ctx, if both
		default:
			select {
			case <-r.done:
			case <-ctx.Done():
				return ctxerr.Of(ctx)
			}
		}
		if r.err != nil {
			return r.err
		}
	}
	p.h.gate.mu.Lock()
	defer p.h.gate.mu.Unlock()
	return p.result
}

// Quit begins to leave, and does not wait for it.
func (p *Place) Quit() {
	p.Held() // as Leave does
	p.quit()
}

// quit is Leave without the wait: for the removal that it returns, nil if the
// result is known.
func (p *Place) quit() *removal {
	h := p.h
	h.gate.mu.Lock()
	if p.settled {
		h.gate.mu.Unlock()
		return nil
	}
	p.outLocked()
	switch {
	case h.removal != nil:
		r := h.removal
		h.gate.mu.Unlock()
		return r
	case h.err != nil:
		p.settleLocked(notHeld(h.err))
		last := h.places == 0
		h.gate.mu.Unlock()
		if last {
			h.discard()
		}
		return nil
	case h.places > 0:
		p.settleLocked(nil)
		h.gate.mu.Unlock()
		return nil
	}
	if h.gate.keepLocked(h, &p.line.cfg) {
		p.settleLocked(nil)
		h.gate.mu.Unlock()
		return nil
	}
	r := h.removeLocked()
	h.gate.mu.Unlock()
	return r
}

func (p *Place) outLocked() {
	if !p.out {
		p.out = true
		p.h.places--
	}
}

// settleLocked makes result final.
func (p *Place) settleLocked(result error) {
	p.settled, p.result, p.onLoss = true, result, nil
	if i := slices.Index(p.h.open, p); i >= 0 {
		p.h.open = slices.Delete(p.h.open, i, i+1)
	}
}
