package line

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// A grant is a znode that is first in line. Each caller has a [Share] of it;
// with the last share it leaves, or is kept for the next caller. grant_state.go
// has its life.
type grant struct {
	queue  *localQueue
	sess   *managed.Session // in the queue's view of the client, as path is
	name   string
	path   string
	rank   Rank
	alone  bool   // the latest list before it was granted has shown no other child
	unhold func() // ends the session's interest in it

	// Guarded by queue.mu.
	state      state
	counted    bool       // among the queue's grants: it is admitted, and has neither left nor failed
	loss       *Loss      // lost: why
	departure  *departure // leaving: the try that is under way; nil: none
	async      bool       // departure.async
	discarded  bool       // lost: the znode is gone, or will go, without further requests
	handoffs   uint32     // how often it was handed off
	contention contention
	idle       idleTime
	timed      bool     // it is not held for long, by MaxHold
	bound      bool     // a guard was given out, or a downgraded read relies on it: it serves nobody else
	guarding   int      // guarded writes under way
	shares     int      // that were not left
	open       []*Share // that have no result yet
	begun      bool     // a caller has begun to use it since it was last idle
	watch      nodeWatch
	maxHold    *time.Timer
}

// Loss says how a grant ended before it was released.
type Loss struct {
	Err error
	// Deadline is until when nobody else could be granted, as was known then.
	Deadline time.Time
}

// A Rank orders the grants of one line that exclude each other: the later grant
// has the greater rank. recipes.Token says why.
type Rank struct {
	Dir      int64  // the czxid of the line's directory
	Seq      uint32 // the sequence number of the contender
	Handoffs uint32 // how often the znode was handed off in-process before
}

// onLocked moves the grant on. It reports whether that changed its state.
func (g *grant) onLocked(e event) (changed bool) {
	before := g.state
	g.state = next(before, e)
	if changed = g.state != before; changed && g.state == idle {
		g.queue.idle.Add(1)
	} else if changed && before == idle {
		g.queue.idle.Add(-1)
	}
	return changed
}

// errDeleted is the reason of a loss when somebody else has removed the znode.
func (g *grant) errDeleted() error {
	return fmt.Errorf("znode %s deleted: %w", g.name, zk.ErrNoNode)
}

// proven reports whether the session is proven alive. If it is not, the grant
// is lost.
func (g *grant) proven() bool {
	if g.sess.Proven() {
		return true
	}
	err := framework.ErrUnproven
	if over := g.sess.Err(); over != nil {
		err = over
	}
	if closed.Is(g.queue.client.Done()) {
		err = framework.ErrClosed
	}
	g.lose(err)
	return false
}

// reason returns why it was lost, nil if it was not.
func (g *grant) reason() error {
	g.queue.mu.Lock()
	defer g.queue.mu.Unlock()
	if g.loss == nil {
		return nil
	}
	return g.loss.Err
}

// shareLocked adds a share.
func (g *grant) shareLocked(l *Line, how How) *Share {
	s := &Share{grant: g, line: l, how: how, handoffs: g.handoffs}
	if g.shares == 0 {
		g.onLocked(taken)
		g.timed = l.cfg.MaxHold > 0
	}
	g.shares++
	g.open = append(g.open, s)
	return s
}

// unusedLocked reports whether a new caller need not wait for another to
// release: it is idle, or leaves because nobody has come.
func (g *grant) unusedLocked() bool {
	return g.state == idle || g.departure != nil && len(g.open) == 0
}

// lose ends the grant: at the session's stop margin, or when the session is
// over, or the client closes. It does not block.
func (g *grant) lose(reason error) {
	g.queue.update(func() { g.loseLocked(failed, reason) })
}

// loseDeletedLocked ends a grant whose znode was found missing, unless this
// process is removing it. If the znode exists after all, or another with its
// name, it is removed: nobody else would do that.
func (g *grant) loseDeletedLocked() {
	if g.loseLocked(deleted, g.errDeleted()) {
		g.queue.later(func() { g.sess.Discard(g.path) })
	}
}

// loseLocked ends the grant by an event that may do so, and reports whether it
// did.
func (g *grant) loseLocked(e event, reason error) (ended bool) {
	before := g.state
	if !g.onLocked(e) {
		return false
	}
	missing := errors.Is(reason, zk.ErrNoNode)
	deadline := g.sess.Deadline()
	if now := time.Now(); now.Before(deadline) && (missing || errors.Is(reason, framework.ErrClosed)) {
		deadline = now // others may be granted already, or are about to be
	}
	g.loss = &Loss{Err: reason, Deadline: deadline}
	g.discarded = missing || before == leaving
	g.stopLocked()
	if g.shares > 0 && !g.discarded && !g.queue.rule.KeepUntilReleased {
		// The work may still be stopping, and has until the deadline for it.
		time.AfterFunc(time.Until(deadline), g.discard)
	}
	if g.departure == nil {
		g.queue.dropGrantLocked(g)
	}
	for _, s := range g.open {
		if onLoss := s.onLoss; onLoss != nil {
			g.queue.later(func() { onLoss(g.loss) })
		}
	}
	if g.unhold != nil {
		g.queue.later(g.unhold)
	}
	if before == idle { // nobody will release it
		g.queue.later(g.discard)
	}
	return true
}

// stopLocked ends the goroutines and timers of a grant.
func (g *grant) stopLocked() {
	g.watch.stopLocked()
	g.idle.stopLocked()
	g.contention.stopLocked()
	if g.maxHold != nil {
		g.maxHold.Stop()
	}
}

// discard removes the znode of a lost grant, unless that was done before.
func (g *grant) discard() {
	first := false
	g.queue.update(func() {
		first = !g.discarded
		g.discarded = true
	})
	if first && g.sess.Err() == nil {
		g.sess.Discard(g.path)
	}
}

// settleLocked gives the last share, which has waited for the departure, its
// result.
func (g *grant) settleLocked() {
	var result error
	if g.loss != nil {
		result = notHeld(g.loss.Err)
	}
	for len(g.open) > 0 {
		g.open[0].settleLocked(result) // takes it out of open
	}
}
