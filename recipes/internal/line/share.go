package line

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// How says how a share was granted, as recipes.How does.
type How string

// The values of How.
const (
	ByEnsemble How = "ensemble"
	ByHandoff  How = "handoff"
	ByLinger   How = "linger"
	ByShare    How = "share"
	ByReentry  How = "reentry"
)

// A Share is one caller's part of a grant. It is safe for concurrent use.
type Share struct {
	grant    *grant
	line     *Line // whose view of the client the caller has
	how      How
	handoffs uint32

	// Guarded by grant.queue.mu.
	onLoss    func(*Loss)
	onRevoked func()
	left      bool       // Leave was called
	departure *departure // that Left waits for
	settled   bool       // the result is known, and final
	result    error      // of Left
}

// Line returns the line of the share.
func (s *Share) Line() *Line { return s.line }

// Path returns the path of the znode that is granted.
func (s *Share) Path() string { return child(s.line.grantDir(), s.grant.name) }

// Timeout returns the session timeout.
func (s *Share) Timeout() time.Duration { return s.grant.sess.Timeout() }

// Rank orders the shares of one line.
func (s *Share) Rank() Rank {
	r := s.grant.rank
	r.Handoffs = s.handoffs
	return r
}

// How returns how its caller was granted it.
func (s *Share) How() How { return s.how }

// SessionID returns the id of the session that the znode belongs to.
func (s *Share) SessionID() int64 { return s.grant.sess.ID() }

// begin is called by the caller who takes the share. It reports false if the
// grant was lost before.
func (s *Share) begin() bool {
	g := s.grant
	g.proven()
	g.queue.mu.Lock()
	defer g.queue.mu.Unlock()
	if g.loss != nil {
		return false
	}
	if g.begun { // by another caller who shares it
		return true
	}
	g.begun = true
	if d := s.line.cfg.MaxHold; d > 0 {
		g.maxHold = time.AfterFunc(d, s.endMaxHold)
	}
	g.watch.startLaterLocked(g)
	if s.line.cfg.Linger > 0 && g.queue.current == g {
		g.lookLocked()
	}
	return true
}

// endMaxHold ends what was held for too long, unless it was handed off just
// now.
func (s *Share) endMaxHold() {
	g := s.grant
	g.queue.update(func() {
		if g.handoffs == s.handoffs && g.state != idle {
			g.loseLocked(failed, fmt.Errorf("%w: %v", ErrMaxHold, s.line.cfg.MaxHold))
		}
	})
}

// Held reports whether the grant is held, as far as the clock can prove. Once
// false it stays false: a grant that could not be proven at one instant is
// lost.
func (s *Share) Held() bool {
	g := s.grant
	g.queue.mu.Lock()
	held := !s.left && g.loss == nil
	g.queue.mu.Unlock()
	return held && g.proven()
}

// Err returns nil while held, then why it was lost, or ErrReleased.
func (s *Share) Err() error {
	s.grant.queue.mu.Lock()
	defer s.grant.queue.mu.Unlock()
	if loss := s.lossLocked(); loss != nil {
		return loss.Err
	}
	if s.left {
		return ErrReleased
	}
	return nil
}

// Loss returns how the share was lost, nil if it was not.
func (s *Share) Loss() *Loss {
	s.grant.queue.mu.Lock()
	defer s.grant.queue.mu.Unlock()
	return s.lossLocked()
}

func (s *Share) lossLocked() *Loss {
	if s.settled && s.result == nil {
		return nil // released before
	}
	return s.grant.loss
}

// Deadline returns until when nobody else can be granted, as far as is known
// now. That of a lost share does not move on with its session: the znode is
// removed at the deadline that was known at the loss.
func (s *Share) Deadline() time.Time {
	now := s.grant.sess.Deadline() // read first: it is not later than that of a loss that follows
	if loss := s.Loss(); loss != nil {
		return loss.Deadline
	}
	return now
}

// OnLoss has fn called, once, when the share is lost, unless its result was
// known before. fn must not block.
func (s *Share) OnLoss(fn func(*Loss)) {
	g := s.grant
	g.queue.update(func() {
		if g.loss == nil {
			s.onLoss = fn
			return
		}
		g.queue.later(func() { fn(g.loss) })
	})
}

// bind keeps the znode from serving another caller from now on. It reports
// false, and does nothing, if the share is not held.
func (s *Share) bind() bool {
	s.grant.queue.mu.Lock()
	defer s.grant.queue.mu.Unlock()
	if s.left || s.grant.loss != nil {
		return false
	}
	s.grant.bound = true
	return true
}

// Guard returns the path of a znode that exists until the share's znode is
// removed. After Leave it returns a path that cannot exist. A guarded write may
// be executed at any time, so no other caller of this process is given the
// znode.
func (s *Share) Guard() string {
	if !s.bind() {
		return s.Path() + "/left" // an ephemeral znode has no children
	}
	return s.Path()
}

// Guarding begins a write that is guarded by the znode. No other caller is
// given the znode until done was called; known says whether the outcome of the
// write is known. Guarding reports false if the share is not held.
func (s *Share) Guarding() (done func(known bool), held bool) {
	g := s.grant
	g.queue.mu.Lock()
	defer g.queue.mu.Unlock()
	if s.left || g.loss != nil {
		return nil, false
	}
	g.guarding++
	return func(known bool) {
		g.queue.mu.Lock()
		defer g.queue.mu.Unlock()
		g.guarding--
		g.bound = g.bound || !known
	}, true
}

// Deleted tells that the znode was found missing, which is a loss unless this
// process has removed it.
func (s *Share) Deleted() {
	s.grant.queue.update(func() {
		if s.handoffs == s.grant.handoffs {
			s.grant.loseDeletedLocked()
		}
	})
}

// Again returns another share of the same grant, for l, a view of the same
// line. Each is left by itself; the znode goes with the last.
func (s *Share) Again(l *Line) (*Share, error) {
	held := s.Held()
	g := s.grant
	g.queue.mu.Lock()
	defer g.queue.mu.Unlock()
	switch {
	case g.loss != nil:
		return nil, notHeld(g.loss.Err)
	case !held || s.left:
		return nil, notHeld(ErrReleased)
	}
	again := g.shareLocked(l, ByReentry)
	again.handoffs = s.handoffs
	return again, nil
}

// Session returns the session of the share, in the view of its line.
func (s *Share) Session() *managed.Session { return s.line.view(s.grant.sess) }

// Leave gives the share up. If it is the last of its grant, the znode begins to
// leave the line, unless it is kept for another caller. Left has the result. Of
// ctx only the values are used, for the observers of the requests.
func (s *Share) Leave(ctx context.Context) {
	s.grant.queue.update(func() { s.leaveLocked(ctx, s.line.cfg.AsyncRelease) })
}

// giveBack leaves a share whose caller was chosen for it and has given up: it
// has not worked under it, so no other caller waits for its departure.
func (s *Share) giveBack(ctx context.Context) {
	s.grant.queue.update(func() { s.leaveLocked(ctx, true) })
}

func (s *Share) leaveLocked(ctx context.Context, async bool) {
	g := s.grant
	if s.settled {
		return
	}
	s.markLeftLocked()
	switch {
	case g.departure != nil:
		s.departure = g.departure
	case g.loss != nil:
		s.departure = nil // of one that failed before the loss
		s.settleLocked(notHeld(g.loss.Err))
		if g.shares == 0 {
			g.queue.later(g.discard)
		}
	case g.shares > 0:
		s.settleLocked(nil)
	default:
		s.leaveLastLocked(ctx, async)
	}
}

// leaveLastLocked leaves the last share of its grant.
func (s *Share) leaveLastLocked(ctx context.Context, async bool) {
	g, cfg := s.grant, &s.line.cfg
	g.async = async
	if g.queue.keepLocked(g, cfg) {
		s.settleLocked(nil)
		return
	}
	d := g.departLocked(ctx)
	if g.async {
		s.settleLocked(nil) // it was held until now, by the clock
		return
	}
	s.departure = d
}

// Left returns the result of Leave, which it waits for until ctx ends; the
// departure continues then, and Leave and Left may be called again.
//
// The result is nil if the share was held until Leave, which the delete itself
// proves: the znode existed until then. It is ErrNotHeld, and the reason, if
// the share was lost before or during the departure. With Config.AsyncRelease
// it is known when Leave has returned: nil if the share was not lost before.
func (s *Share) Left(ctx context.Context) error {
	s.grant.queue.mu.Lock()
	d := s.departure
	s.grant.queue.mu.Unlock()
	if d != nil {
		if err := d.await(ctx); err != nil {
			return s.line.shown(err)
		}
	}
	s.grant.queue.mu.Lock()
	defer s.grant.queue.mu.Unlock()
	return s.result
}

func (s *Share) markLeftLocked() {
	if !s.left {
		s.left = true
		s.grant.shares--
	}
}

// settleLocked makes result final.
func (s *Share) settleLocked(result error) {
	s.settled, s.result, s.onLoss = true, result, nil
	if i := slices.Index(s.grant.open, s); i >= 0 {
		s.grant.open = slices.Delete(s.grant.open, i, i+1)
	}
}
