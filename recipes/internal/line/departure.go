package line

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/internal/stack"
)

// A departure takes one znode of ours out of line: a contender that nobody
// waits for now, or a grant whose last share was left. It is announced first,
// so that other callers of this process know that the znode is about to go.
// Then its delete is sent, on a goroutine that continues when nobody waits for
// it. It ends with the answer. If that does not come, the session tries again,
// and the departure stays announced until the znode is gone or the session
// over.
type departure struct {
	queue     *localQueue
	name      string     // of the znode; empty: of one that is just created, although nobody wants it now
	of        *grant     // whose znode it is; nil: a contender's
	async     bool       // it keeps nobody waiting: Config.AsyncRelease, or nobody has worked under the znode
	next      *departure // of the contender that was created; nil: none
	announced bool       // guarded by queue.mu
	sent      bool       // its delete was, or will be; used by a contender's acquisition only

	done chan struct{}   // closed: err is set, or the shares that waited for it have their result
	err  error           // nobody knows whether the znode is gone
	gone <-chan struct{} // nil: the try has not failed; closed: the session's further tries have removed the znode
}

// newDeparture returns one that keeps nobody waiting.
func (q *localQueue) newDeparture(name string) *departure {
	return &departure{queue: q, name: name, async: true, done: make(chan struct{})}
}

// announceLocked tells the registry of d, once.
func (d *departure) announceLocked() {
	if !d.announced {
		d.announced = true
		d.queue.registry.departures.add(d)
	}
}

// send deletes a znode under which nobody has worked.
func (d *departure) send(sess *managed.Session, path string) {
	d.sent = true
	finish := sess.StartDelete(context.Background(), path, false)
	go func() {
		if err := finish(); err != nil && !errors.Is(err, zk.ErrNoNode) && !isOver(err) {
			d.err, d.gone = err, sess.Discard(path)
		}
		d.end()
	}()
}

// end tells those who wait for d. If the try has failed, it returns when the
// znode is gone or the session over.
func (d *departure) end() {
	all := &d.queue.registry.departures
	if d.gone == nil {
		all.drop(d)
		close(d.done)
		return
	}
	close(d.done)
	<-d.gone
	all.drop(d)
}

// hasFailed reports whether the try has ended, and nobody knows whether the
// znode is gone.
func (d *departure) hasFailed() bool { return closed.Is(d.done) && d.err != nil }

// await returns when the try has ended, with nil if the znode is gone.
func (d *departure) await(ctx context.Context) error {
	if closed.Is(d.done) { // rather than ctx, if both
		return d.err
	}
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	}
}

// awaitGone returns when the znode is gone, or the session over; when the try
// that is under way has failed; or when ctx ends. After a try that had failed
// before it waits for those that follow, unless the ensemble has refused it.
func (d *departure) awaitGone(ctx context.Context) error {
	before := d.hasFailed()
	if err := d.await(ctx); err != nil && (!before || errors.Is(err, zk.ErrNoAuth)) {
		return err
	}
	switch {
	case d.next != nil:
		return d.next.awaitGone(ctx)
	case d.gone == nil:
		return nil
	}
	select {
	case <-d.gone:
		return nil
	case <-ctx.Done():
		return oneline.Join(ctxerr.Of(ctx), d.err)
	}
}

// departures are those of one client that are announced.
type departures struct {
	mu   sync.Mutex
	from map[string][]*departure // by the full path of their line's directory
}

func (all *departures) add(d *departure) {
	all.mu.Lock()
	defer all.mu.Unlock()
	dir := d.queue.key.path
	all.from[dir] = append(all.from[dir], d)
}

func (all *departures) drop(gone *departure) {
	all.mu.Lock()
	defer all.mu.Unlock()
	dir := gone.queue.key.path
	var left []*departure // a new slice: others read the old one
	for _, d := range all.from[dir] {
		if d != gone {
			left = append(left, d)
		}
	}
	if left == nil {
		delete(all.from, dir)
		return
	}
	all.from[dir] = left
}

// at returns those from the line in the full path dir.
func (all *departures) at(dir string) []*departure {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.from[dir]
}

// below returns those from lines below the full path dir.
func (all *departures) below(dir string) (some []*departure) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for path, from := range all.from {
		if isBelow(path, dir) {
			some = append(some, from...)
		}
	}
	return some
}

// depart takes c out of line; nobody has worked under it.
func (c *contender) depart() {
	if c.departure.sent {
		return
	}
	c.queue.update(c.departure.announceLocked)
	c.departure.send(c.sess, c.path)
}

// departAll takes back grants that nobody was given.
func departAll(grants []*grant) {
	for _, g := range grants {
		var unhold func()
		d := g.queue.newDeparture(g.name)
		g.queue.update(func() {
			unhold = g.unhold
			d.announceLocked()
		})
		if unhold != nil {
			unhold()
		}
		d.send(g.sess, g.path)
	}
}

// departLocked begins to remove the znode of a grant that has no shares left.
// Of ctx only the values are used, for the observers.
func (g *grant) departLocked(ctx context.Context) *departure {
	g.stopLocked()
	again := !g.onLocked(ended)
	d := g.queue.newDeparture(g.name)
	d.of, d.async, g.departure = g, g.async, d
	d.announceLocked()
	if d.async {
		patient := g.contention.known != contested
		g.queue.later(func() { g.departBehind(ctx, d, patient) })
	} else {
		go g.awaitDeparture(d, g.sess.StartDelete(ctx, g.path, false), again)
	}
	return d
}

// departBehind sends the delete, and lets the waiters join the line again. The
// requests of a session are executed in order, so the next contender of this
// process does not find the znode ahead of it. If it does after all, because
// the delete had to be sent again, it waits for the departure:
// acquisition.awaitDeparture.
func (g *grant) departBehind(ctx context.Context, d *departure, patient bool) {
	q := g.queue
	go g.awaitDeparture(d, g.sess.StartDelete(ctx, g.path, patient), false)
	q.update(func() {
		q.dropGrantLocked(g)
		q.later(g.unhold) // its loss is no longer news
	})
}

// awaitDeparture ends when the session has the answer, or is over, or no server
// answered in all of its retry budget; then the session tries again by itself.
// If again is true, an earlier try may have removed the znode.
func (g *grant) awaitDeparture(d *departure, finish func() error, again bool) {
	stack.Grow()
	err := finish()
	missing, over := errors.Is(err, zk.ErrNoNode), isOver(err)
	g.queue.update(func() {
		switch {
		case g.state == lost:
			// That the znode existed until now does not take it back: the loss has been
			// told, and is final.
		case err == nil, missing && again:
			g.onLocked(removed)
		case missing:
			g.loseLocked(failed, g.errDeleted())
		case over:
			g.loseLocked(failed, cmp.Or(g.sess.Err(), err)) // without a path, which is the queue's
		default:
			d.err = err
		}
		if d.err == nil {
			g.settleLocked()
		}
		g.departure = nil
		g.queue.dropGrantLocked(g)
		g.queue.later(g.unhold)
	})
	if err != nil && !missing && !over {
		d.gone = g.sess.Discard(g.path)
	}
	if d.async && missing && !again {
		c := g.queue.client
		c.Logger().Warn("the znode of a lease was deleted before its release",
			zap.String("path", c.Resolve(g.queue.path)), zap.String("znode", c.Resolve(g.path)))
	}
	d.end()
}

// isOver reports whether err says that the session is over, and its znodes with
// it.
func isOver(err error) bool {
	return errors.Is(err, framework.ErrSessionLost) || errors.Is(err, framework.ErrClosed)
}

// noteDepartures is called before each look at the line. A znode of this
// process that departs may still be in the list, but be gone when the answer is
// read.
func (a *acquisition) noteDepartures() {
	a.departures = a.queue.registry.departures.at(a.queue.key.path)
}

// departureOf returns the departure of a znode that was announced before the
// latest look, and keeps nobody waiting; nil if there is none.
func (a *acquisition) departureOf(znode string) *departure {
	for _, d := range a.departures {
		if d.name == znode && d.async && !d.hasFailed() {
			return d
		}
	}
	return nil
}

// awaitDeparture waits for the end of that departure. It reports false if there
// is none. Otherwise the look must be repeated.
func (a *acquisition) awaitDeparture(znode string) bool {
	d := a.departureOf(znode)
	if d != nil {
		_ = d.await(a.ctx) // well or not: the next look shows it
	}
	return d != nil
}

// awaitDepartures is awaitDeparture for all znodes: there may be room for
// permits then.
func (a *acquisition) awaitDepartures() (any bool) {
	for _, d := range a.departures {
		if d.async && !d.hasFailed() {
			any = true
			_ = d.await(a.ctx)
		}
	}
	return any
}

// leavesAlone returns the latest grant that departs from this directory, and
// whose znode was alone in it when it was granted; nil if there is none. Its
// local queue may be another one, in another view.
func (a *acquisition) leavesAlone() *grant {
	for _, d := range slices.Backward(a.departures) {
		if g := d.of; g != nil && g.alone {
			return g
		}
	}
	return nil
}
