package line

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/missing"
	"github.com/zkrecipes/zkrecipes/internal/stack"
	"github.com/zkrecipes/zkrecipes/internal/turns"
	"github.com/zkrecipes/zkrecipes/retry"
)

// An acquisition is the goroutine that waits in line for a local queue. It has
// an identity: after stop, an old acquisition has no effect on its successor.
type acquisition struct {
	queue   *localQueue
	ctx     context.Context // ends when its last waiter has left
	stop    context.CancelFunc
	hurried chan struct{} // a token: a caller that only tries has come

	departures []*departure // of this process, before the latest look; only run and what it calls use it

	// Guarded by queue.mu.
	joining  *departure // while it joins the line: ends with that, if nobody wants it then; nil: it does not join
	standing *contender // nil: none
	serves   uint64     // the number of the last waiter that its present try is for
	blocked  bool       // it waits for other holders: a try has no hope behind it
}

// newAcquisition returns an acquisition whose requests have the values of ctx,
// for the observers.
func newAcquisition(q *localQueue, ctx context.Context) *acquisition {
	ctx, stop := context.WithCancel(q.client.Values(ctx))
	return &acquisition{queue: q, ctx: ctx, stop: stop, hurried: make(chan struct{}, 1)}
}

// run waits in line until the first waiter is granted, or nobody waits, or an
// error ends the wait of all. After a lost session, or if somebody else removed
// the znode, it joins the line again, at the end. While the directory cannot be
// found it pauses before that.
func (a *acquisition) run() {
	stack.Grow()
	defer a.stop()
	defer a.exit()
	pauses, again := rejoinPauses(), turns.Turns{}
	for {
		a.begin()
		sess, err := a.queue.client.AwaitSession(a.ctx)
		if err != nil {
			a.fail(err) // the client closed, nobody waits, or no server answered
			return
		}
		err = a.stand(sess)
		a.drop()
		switch {
		case err == nil:
			return
		case errors.Is(err, framework.ErrClosed):
		case errors.Is(err, framework.ErrUnproven) && sess.Err() == nil: // others must not wait for us
		case errors.Is(err, errNoDirectory):
			a.pause(pauses.NextBackOff())
			continue
		case errors.Is(err, framework.ErrSessionLost), errors.Is(err, errNotInLine):
			again.Pause(a.ctx, a.queue.client.Done())
			continue
		}
		a.fail(err)
		return
	}
}

// exit cleans up if user code has ended the goroutine. Otherwise it has no
// effect.
func (a *acquisition) exit() {
	a.joined(nil) // if it was joining
	var c *contender
	a.queue.update(func() { c = a.standing })
	if c != nil {
		c.depart()
	}
	a.fail(errExited)
}

// join joins the line. If the last waiter gives up before the answer, the
// contender, whose name is not known yet, departs.
func (a *acquisition) join(sess *managed.Session) (c *contender, err error) {
	a.queue.update(func() {
		if a.queue.acquisition == a {
			a.joining = a.queue.newDeparture("")
		}
	})
	c, err = a.create(sess.Unhurried())
	a.joined(c)
	return c, err
}

// joined ends join, with a contender or nil.
func (a *acquisition) joined(c *contender) {
	var unwanted *departure
	a.queue.update(func() {
		if d := a.joining; d != nil && d.announced {
			unwanted = d
		}
		a.joining = nil
		if c == nil {
			return
		}
		a.standing = c
		if a.queue.acquisition != a {
			c.departure.announceLocked()
		}
		if unwanted != nil {
			unwanted.next = c.departure
		}
	})
	if unwanted != nil {
		unwanted.end()
	}
}

// drop forgets the contender: it was granted, departs, or has lost its znode.
func (a *acquisition) drop() {
	var ended *departure
	a.queue.update(func() {
		if c := a.standing; c != nil && c.departure.announced && !c.departure.sent {
			ended = c.departure
		}
		a.standing = nil
	})
	if ended != nil {
		ended.end()
	}
}

// endLocked ends a. A contender of it is about to leave.
func (a *acquisition) endLocked() {
	a.stop()
	switch {
	case a.standing != nil:
		a.standing.departure.announceLocked()
	case a.joining != nil:
		a.joining.announceLocked()
	}
	a.queue.acquisition = nil
}

// rejoinPauses is how long to pause while the directory cannot be found.
var rejoinPauses = retry.Exponential(100*time.Millisecond, 2*time.Second, math.MaxInt)

// pause waits for d, or until nobody needs what comes after.
func (a *acquisition) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-a.ctx.Done():
	case <-a.queue.client.Done():
	}
}

// stand goes through the line once, in one session. It returns nil when a
// waiter was granted or nobody waits, and otherwise why it is no longer in
// line. On any return without a grant, no znode stays.
//
// It asks for no heartbeat: claim proves the session.
func (a *acquisition) stand(sess *managed.Session) error {
	a.noteDepartures()
	if w := a.first(); w != nil && w.try {
		if err := a.lookFirst(sess, w); err != nil || a.first() == nil {
			return err
		}
	}
	c, err := a.join(sess)
	if err != nil {
		return err
	}
	defer c.outlook.end()
	for first := false; !first; {
		blocker, err := c.blocker(a.ctx)
		if errors.Is(err, errNotInLine) && !errors.Is(err, errNoDirectory) {
			return err
		}
		if err != nil {
			c.depart()
			return err
		}
		if blocker == "" {
			break
		}
		if a.awaitDeparture(blocker) {
			a.noteDepartures()
			c.children = nil
			continue
		}
		passed, err := a.refuseTries(c)
		if err == nil && a.first() != nil {
			first, err = c.wait(a.ctx, blocker, passed, a.hurried)
		}
		c.sess.Unwatch(passed)
		a.noteDepartures()
		if err != nil || a.first() == nil {
			c.depart()
			return err
		}
	}
	if a.queue.rule.Permits != nil {
		return a.takePermits(c)
	}
	return a.grant(c)
}

// create creates the znode in line, and its directory where that is missing.
func (a *acquisition) create(sess *managed.Session) (c *contender, err error) {
	q := a.queue
	err = missing.Create(a.ctx, sess.Done(), q.dir, a.makeDir, func() (err error) {
		c, err = a.createFitting(sess)
		return err
	})
	if err == nil && !q.rule.PersistentDir {
		q.client.Used(q.dir)
	}
	return c, err
}

// createFitting creates the znode once, with room for what may be created
// later. It fails the waiters that want too much of that.
func (a *acquisition) createFitting(sess *managed.Session) (*contender, error) {
	for {
		c, err := a.createOnce(sess)
		if err == nil || !managed.SessionFull(err) {
			return c, err
		}
		w := a.wantsMost()
		if w == nil {
			return nil, err
		}
		if a.refuse(w, err); a.first() == nil { // otherwise others may want less
			return nil, err
		}
	}
}

// createOnce creates the znode in line. Where it replaces one that was alone in
// line, and nobody has joined since, it knows without a list that it is alone.
func (a *acquisition) createOnce(sess *managed.Session) (*contender, error) {
	const flags = zk.FlagEphemeral | zk.FlagSequence
	q := a.queue
	before, reserving := a.leavesAlone(), a.reserving(sess)
	if before == nil {
		created, room, err := reserving.CreateProtectedAndRead(a.ctx, q.dir, q.rule.Base, q.cfg.Data, flags, q.cfg.ACL,
			q.rule.Permits.reads()...)
		if err != nil {
			return nil, err
		}
		return newContender(q, sess, created, room), nil
	}
	created, alone, err := reserving.CreateProtectedInstead(a.ctx, q.dir, q.rule.Base, q.cfg.Data, flags, q.cfg.ACL, child(q.dir, before.name))
	if err != nil {
		return nil, err
	}
	c := newContender(q, sess, created, nil)
	if alone {
		c.children, c.dir = []string{c.name}, before.rank.Dir
	}
	return c, nil
}

// reserving returns a view of the session in which a contender reserves room
// for what it may have to create later: permits, of whoever waits for the most
// of them, or a downgraded read.
func (a *acquisition) reserving(sess *managed.Session) *managed.Session {
	q := a.queue
	if w := a.wantsMost(); w != nil {
		p := w.line.rule.Permits
		return sess.Reserving(w.line.client.Resolve(p.Dir), p.Name, p.N)
	}
	if q.rule.DowngradeTo != "" {
		return sess.Reserving(q.client.Resolve(q.dir), q.rule.DowngradeTo, 1)
	}
	return sess
}

// wantsMost returns the first of the waiters who want the most permits, nil if
// nobody waits for any.
func (a *acquisition) wantsMost() (most *waiter) {
	a.queue.update(func() {
		if a.queue.acquisition != a || a.queue.rule.Permits == nil {
			return
		}
		for e := a.queue.waiters.Front(); e != nil; e = e.Next() {
			if w := e.Value.(*waiter); most == nil || w.line.rule.Permits.N > most.line.rule.Permits.N {
				most = w
			}
		}
	})
	return most
}

func (a *acquisition) makeDir() error {
	q := a.queue
	if !q.rule.PersistentDir {
		return q.client.MakeDirectory(a.ctx, q.dir)
	}
	above := q.dir[:strings.LastIndexByte(q.dir, '/')]
	if err := q.client.MakeDirectory(a.ctx, cmp.Or(above, "/")); err != nil { // of the root: the chroot and the namespace
		return err
	}
	return q.client.MakePersistentPath(a.ctx, q.dir)
}

// grant ends stand with a grant of c, which waits for nobody.
func (a *acquisition) grant(c *contender) error {
	g, err := c.claim(a.ctx)
	if err != nil {
		c.depart()
		return err
	}
	return a.grantFirst(c, g)
}

// grantFirst ends stand with g for the first waiter. If g was lost already, or
// nobody waits, g is taken back.
func (a *acquisition) grantFirst(c *contender, g *grant) error {
	if a.admit(g) {
		return nil
	}
	c.depart()
	g.unhold()
	return g.reason()
}

// admit ends a: the waiters in front get the grants. It reports false, and
// changes nothing, if any grant was lost already, or nobody waits, or the first
// waiter by now needs another number of permits.
func (a *acquisition) admit(grants ...*grant) (ok bool) {
	q := a.queue
	q.update(func() {
		if q.acquisition != a || q.rule.Permits != nil && q.firstLocked().line.rule.Permits.N != len(grants) {
			return
		}
		for _, g := range grants {
			if g.loss != nil {
				return
			}
		}
		ok = true
		q.acquisition = nil
		for _, g := range grants {
			q.addGrantLocked(g)
		}
		if q.rule.Permits == nil {
			q.current = grants[0]
		}
		q.chooseAllLocked(ByEnsemble, grants...)
		q.serveLocked()
	})
	return ok
}

// begin notes that a makes another try, for all who wait now.
func (a *acquisition) begin() {
	a.queue.update(func() { a.serves = a.queue.joined })
}

// fail ends a, and fails the waiters that joined before this try with err.
// Later ones get a new acquisition: a part of the time, or of the retries, that
// led to err was used up before they came.
func (a *acquisition) fail(err error) {
	q := a.queue
	q.update(func() {
		if q.acquisition != a {
			return
		}
		a.endLocked()
		q.refuseLocked(func(w *waiter) bool { return w.number <= a.serves }, err)
		q.serveLocked()
	})
}

// first returns the first waiter, nil if nobody waits for a.
func (a *acquisition) first() (w *waiter) {
	a.queue.update(func() {
		if a.queue.acquisition == a {
			w = a.queue.firstLocked()
		}
	})
	return w
}

// refuse fails one waiter, if it still waits for a.
func (a *acquisition) refuse(w *waiter, err error) {
	a.queue.update(func() {
		if a.queue.acquisition == a {
			a.queue.refuseLocked(func(other *waiter) bool { return other == w }, err)
		}
	})
}
