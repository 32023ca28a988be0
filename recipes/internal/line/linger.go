package line

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/internal/privileged"
)

// idleTime is for how long an idle grant is kept.
type idleTime struct {
	cfg   *Config       // of the caller who left last
	until time.Time     // when it leaves, if nobody has come
	how   framework.How // how the next caller is granted it
	timer *time.Timer   // nil: it has not lingered yet
	runs  bool          // timer does
}

// leaveLaterLocked has an idle grant leave the line when nobody has come in
// time. A timer that runs already looks again when it fires.
func (i *idleTime) leaveLaterLocked(g *grant) {
	wait := time.Until(i.until)
	if wait <= 0 || i.runs {
		return
	}
	i.runs = true
	if i.timer != nil {
		i.timer.Reset(wait)
		return
	}
	i.timer = time.AfterFunc(wait, func() {
		g.queue.update(func() {
			i.runs = false
			g.resumeOrLeaveLocked()
		})
	})
}

func (i *idleTime) stopLocked() {
	if i.timer != nil {
		i.timer.Stop()
	}
}

// EndLinger removes every lingering znode below dir, and waits for that until
// ctx ends; the removal continues then. It also waits for all other znodes of
// this client there that are being removed. A znode for which a caller waits
// in-process is removed when that caller and all others have left.
func EndLinger(ctx context.Context, c *framework.Client, dir string) error {
	var removals []*removal
	queues, full := queuesOf(c), c.Resolve(dir)
	for _, z := range queues.leavingBelow(full) {
		removals = append(removals, z.removal)
	}
	for _, q := range queues.below(full) {
		q.update(func() {
			if g := q.current; g != nil {
				if r := g.endLingerLocked(); r != nil {
					removals = append(removals, r)
				}
			}
		})
	}
	for _, r := range removals {
		if err := r.awaitGone(ctx); err != nil {
			return privileged.Framework.Shown(c, err)
		}
	}
	return nil
}

// endLingerLocked has g leave if it is idle and nobody waits for it in-process.
// It returns nil if g does not leave by that.
func (g *grant) endLingerLocked() *removal {
	if g.state != idle {
		return nil
	}
	g.idle.until = time.Now()
	if g.queue.waiters.Len() > 0 {
		return nil
	}
	return g.removeLocked(context.Background())
}

// GiveBack removes one lingering znode of the client, and waits until it is
// gone: see Attach of package privileged.
func (r *registry) GiveBack(ctx context.Context) bool {
	tried := make(map[*localQueue]struct{})
	for q := r.lingering(tried); q != nil; q = r.lingering(tried) {
		tried[q] = struct{}{}
		var left *removal
		q.update(func() {
			if q.current != nil {
				left = q.current.endLingerLocked()
			}
		})
		if left != nil {
			return left.awaitGone(ctx) == nil
		}
	}
	return false
}

// makesRoom reports whether the znode of a contender ahead, which a contender
// that joined now would have to wait for, has left for it: it is one of this
// process that was about to leave, or lingered.
func (a *acquisition) makesRoom(ahead string) bool {
	if r := a.removalOf(ahead); r != nil {
		return r.await(a.ctx) == nil
	}
	return a.endLinger(ahead)
}

// endLinger has the znode of that name leave the line, and waits for that. It
// reports false if the znode is not one of this process that lingers, or stands
// still.
func (a *acquisition) endLinger(name string) (left bool) {
	for _, q := range a.queue.registry.at(a.queue.key.path) {
		var r *removal
		q.update(func() {
			if g := q.current; g != nil && g.name == name && g.unusedLocked() {
				if r = g.endLingerLocked(); r == nil {
					r = g.removal
				}
			}
		})
		if r != nil {
			return r.await(a.ctx) == nil
		}
	}
	return false
}
