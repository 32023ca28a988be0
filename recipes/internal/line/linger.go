package line

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// idleTime is for how long an idle grant is kept.
type idleTime struct {
	cfg   *Config     // of the caller who left last
	until time.Time   // when it leaves, if nobody has come
	how   How         // how the next caller is granted it
	timer *time.Timer // nil: it has not lingered yet
	runs  bool        // timer does
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
func EndLinger(ctx context.Context, c *managed.Client, dir string) error {
	queues, full := queuesOf(c), c.Resolve(dir)
	all := queues.departures.below(full)
	for _, q := range queues.below(full) {
		q.update(func() {
			if g := q.current; g != nil {
				if d := g.endLingerLocked(); d != nil {
					all = append(all, d)
				}
			}
		})
	}
	for _, d := range all {
		if err := d.awaitGone(ctx); err != nil {
			return c.Shown(err)
		}
	}
	return nil
}

// endLingerLocked has g leave if it is idle and nobody waits for it in-process.
// It returns nil if g does not leave by that.
func (g *grant) endLingerLocked() *departure {
	if g.state != idle {
		return nil
	}
	g.idle.until = time.Now()
	if g.queue.waiters.Len() > 0 {
		return nil
	}
	return g.departLocked(context.Background())
}

// GiveBack removes one lingering znode of the client, and waits until it is
// gone: see managed.Client.Attach.
func (r *registry) GiveBack(ctx context.Context) bool {
	tried := make(map[*localQueue]struct{})
	for q := r.lingering(tried); q != nil; q = r.lingering(tried) {
		tried[q] = struct{}{}
		var left *departure
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
