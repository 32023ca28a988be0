package line

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// idleTime is for how long an idle grant is kept.
type idleTime struct {
	cfg   *Config       // of the caller who left last
	until time.Time     // when it leaves, if nobody has come
	how   framework.How // how the next caller is granted it
	timer *time.Timer   // nil: it has not lingered yet
	runs  bool          // timer does
}

// leaveLaterLocked has an idle grant leave the line when nobody has come in time. A
// timer that runs already looks again when it fires.
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

// EndLinger removes every lingering znode below dir, and waits for that until ctx
// ends; the removal continues then. It also waits for znodes whose release was not
// waited for. A znode for which a caller waits in-process is removed when no caller
// waits any longer.
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
		if err := r.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// endLingerLocked has g leave if it is idle and nobody waits for it in-process. It
// returns nil if g does not leave by that.
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

// A grant that lingers makes room when somebody joins the line behind it. A
// TryAcquire must not join behind a znode that is in use. So the two agree by the
// znode that lingers:
//
//	name            its UUID is of version 8: it may linger. A list shows that.
//	version 0       in use, and it has not lingered yet
//	version 1       it has lingered: a try may join behind it. If it is idle then it
//	                leaves; if it is in use again it writes once more.
//	version 2       it has refused a try: no other try joins
//
// The writes set the data that the znode has already, each over the version that it
// expects: none can undo a request to release (Revocation), and that is not taken
// for a mark either.

// lingerMark is the state of the version of a grant's own znode.
type lingerMark struct {
	begun   bool          // guarded by the queue's mutex
	refused bool          // guarded by the queue's mutex
	written chan struct{} // closed: version 1 is written, or that has failed
	valid   bool          // it is written; read after written
}

// naming returns the session in which the znodes of the queue are created: their
// names tell whether they may linger.
func (q *localQueue) naming(sess *framework.Session) *framework.Session {
	if q.lingers.Load() {
		return sess.CustomIDs()
	}
	return sess
}

// mayLinger reports whether the znode's name says so.
func (g *grant) mayLinger() bool {
	own, _ := layout.Parse(g.name)
	return own.Custom()
}

// markLocked lets others know that g has lingered. It does so once.
func (g *grant) markLocked() {
	if !g.mark.begun {
		g.mark.begun = true
		g.mark.written = make(chan struct{})
		go g.writeMark()
	}
}

func (g *grant) writeMark() {
	defer close(g.mark.written)
	ctx := context.Background() // the session bounds it, and one budget of its retries
	_, err := g.sess.Set(ctx, g.path, g.queue.cfg.Data, 0)
	if err == nil {
		g.mark.valid = true
		return
	}
	if framework.MaybeApplied(err) {
		data, stat, err := g.sess.Get(ctx, g.path)
		g.mark.valid = err == nil && isMarked(data, stat)
	}
}

// refuseTriesLocked answers a try that has joined behind g, which is in use.
func (g *grant) refuseTriesLocked() {
	if !g.mark.begun || g.mark.refused {
		return
	}
	g.mark.refused = true
	go func() {
		<-g.mark.written
		if g.mark.valid {
			// If it fails the try gives up by itself, after a while.
			_, _ = g.sess.Set(context.Background(), g.path, g.queue.cfg.Data, 1)
		}
	}()
}

// isMarked reports whether a znode with this state makes room for a try, or says at
// once that it does not.
func isMarked(data []byte, stat *zk.Stat) bool {
	return stat.Version == 1 && string(data) != Revocation
}

// makesRoom reports whether the znode of a contender ahead, which a contender that
// joined now would have to wait for, is going to leave for it. A znode of this
// process that lingers leaves here.
func (a *acquisition) makesRoom(sess *framework.Session, ahead layout.Node) (bool, error) {
	if r := a.removalOf(ahead.Name); r != nil {
		return r.await(a.ctx) == nil, nil
	}
	if !ahead.Custom() {
		return false, nil
	}
	if ours, left := a.endLinger(ahead.Name); ours {
		return left, nil
	}
	data, stat, err := sess.Get(a.ctx, child(a.queue.dir, ahead.Name))
	switch {
	case errors.Is(err, zk.ErrNoNode): // it has left
		return true, nil
	case errors.Is(err, zk.ErrNoAuth):
		return false, nil
	case err != nil:
		return false, err
	}
	return isMarked(data, stat), nil
}

// endLinger has the znode of that name leave the line, if it is one of this process
// that lingers, and waits for that.
func (a *acquisition) endLinger(name string) (ours, left bool) {
	for _, q := range a.queue.registry.at(a.queue.key.path) {
		var r *removal
		q.update(func() {
			g := q.current
			if ours = g != nil && g.name == name; !ours {
				return
			}
			if r = g.endLingerLocked(); r == nil {
				r = g.removal
			}
		})
		if ours {
			return true, r != nil && r.await(a.ctx) == nil
		}
	}
	return false, false
}

// waitForLingering lets the waiters who only try wait for a blocker that makes room
// for them, until passed is closed, or for T/3: its process may be dead or cut off.
// It returns nil if there is nothing to wait for.
func (a *acquisition) waitForLingering(c *contender, blocker string) (passed <-chan struct{}, err error) {
	c.forLinger = false
	if len(a.tries()) == 0 {
		return nil, nil
	}
	if c.lingerDeadline.IsZero() {
		c.lingerDeadline = time.Now().Add(c.sess.Timeout() / 3)
	}
	if node, _ := layout.Parse(blocker); !node.Custom() || !time.Now().Before(c.lingerDeadline) {
		return nil, nil
	}
	data, stat, passed, err := c.sess.GetAndWatch(a.ctx, child(a.queue.dir, blocker))
	switch {
	case errors.Is(err, zk.ErrNoNode): // it has left
		passed = closed
	case errors.Is(err, zk.ErrNoAuth):
		return nil, nil
	case err != nil:
		return nil, err
	case !isMarked(data, stat):
		return nil, nil
	}
	c.forLinger = true
	return passed, nil
}
