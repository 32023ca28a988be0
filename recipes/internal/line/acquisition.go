package line

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/stack"
	"github.com/zkrecipes/zkrecipes/internal/turns"
	"github.com/zkrecipes/zkrecipes/recipes/internal/privileged"
	"github.com/zkrecipes/zkrecipes/retry"
)

// An acquisition is the goroutine that stands in line for a local queue. It has
// an identity: after stop, an old acquisition has no effect on its successor.
type acquisition struct {
	queue *localQueue
	ctx   context.Context // ends when its last waiter has left
	stop  context.CancelFunc
	look  chan struct{} // a token: a caller that only tries has come

	leaving []leavingZnode // of this process, before the latest look; only run and what it calls use it

	// Guarded by queue.mu.
	joining  *removal   // while it joins the line: ends with that, if nobody wants it then; nil: it does not join
	standing *contender // nil: none
	serves   uint64     // the number of the last waiter that its present try is for
	blocked  bool       // it waits for other holders: a try has no hope behind it
}

// newAcquisition returns an acquisition whose requests have the values of ctx,
// for the observers.
func newAcquisition(q *localQueue, ctx context.Context) *acquisition {
	ctx, stop := context.WithCancel(privileged.Framework.Values(ctx, q.client))
	return &acquisition{queue: q, ctx: ctx, stop: stop, look: make(chan struct{}, 1)}
}

// run stands in line until the first waiter is granted, or nobody waits, or an
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
		a.unstand()
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
		c.withdraw()
	}
	a.fail(errExited)
}

// join joins the line. If nobody waits for a meanwhile, its contender, whose
// name is not known yet, counts as leaving.
func (a *acquisition) join(sess *framework.Session) (c *contender, err error) {
	a.queue.update(func() {
		if a.queue.acquisition == a {
			a.joining = newRemoval()
		}
	})
	c, err = a.create(privileged.Framework.Unhurried(sess))
	a.joined(c)
	return c, err
}

// joined ends join, with a contender or nil.
func (a *acquisition) joined(c *contender) {
	var nobodys *removal
	a.queue.update(func() {
		if a.queue.acquisition != a {
			nobodys = a.joining
		}
		a.joining = nil
		if c == nil {
			return
		}
		a.standing = c
		if a.queue.acquisition != a {
			c.noteLocked()
		}
		if nobodys != nil {
			nobodys.next = c.removal
		}
	})
	if nobodys != nil {
		a.queue.registry.ended(a.queue.key.path, leavingZnode{removal: nobodys})
	}
}

// unstand notes that the contender is no longer a's: it was granted, was
// withdrawn, or has lost its znode.
func (a *acquisition) unstand() {
	var ended *contender
	a.queue.update(func() {
		if c := a.standing; c != nil && c.noted && !c.withdrawn {
			ended = c
		}
		a.standing = nil
	})
	if ended != nil {
		a.queue.registry.ended(a.queue.key.path, leavingZnode{ended.name, ended.removal})
	}
}

// endLocked ends a. A contender of it is about to leave.
func (a *acquisition) endLocked() {
	a.stop()
	switch {
	case a.standing != nil:
		a.standing.noteLocked()
	case a.joining != nil:
		a.queue.registry.addLeaving(a.queue.key.path, leavingZnode{removal: a.joining})
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
func (a *acquisition) stand(sess *framework.Session) error {
	a.noteLeaving()
	if a.firstOnlyTries() {
		if err := a.lookFirst(sess); err != nil || a.first() == nil {
			return err
		}
	}
	c, err := a.join(sess)
	if err != nil {
		return err
	}
	defer c.outlook.leave()
	for first := false; !first; {
		blocker, err := c.blocker(a.ctx)
		if errors.Is(err, errNotInLine) && !errors.Is(err, errNoDirectory) {
			return err
		}
		if err != nil {
			c.withdraw()
			return err
		}
		if blocker == "" {
			break
		}
		if a.awaitLeaving(blocker) {
			a.noteLeaving()
			c.children = nil
			continue
		}
		passed, err := a.refuseTries(c)
		if err == nil && a.first() != nil {
			first, err = c.wait(a.ctx, blocker, passed, a.look)
		}
		c.sess.Unwatch(passed)
		a.noteLeaving()
		if err != nil || a.first() == nil {
			c.withdraw()
			return err
		}
	}
	if a.queue.rule.Permits != nil {
		return a.takePermits(c)
	}
	return a.grant(c)
}

// joinTries bounds how often the directory may vanish before the create: the
// server removes a container that has become empty, and it is made again.
const joinTries = 10

// create creates the znode in line, and its directory where that is missing.
func (a *acquisition) create(sess *framework.Session) (*contender, error) {
	q, again := a.queue, turns.Turns{}
	for try := 1; ; try++ {
		c, err := a.createOnce(sess)
		if err == nil {
			if !q.rule.PersistentDir {
				privileged.Framework.Used(q.client, q.dir)
			}
			return c, nil
		}
		if w := a.wantsMost(); w != nil && privileged.Framework.SessionFull(err) {
			if a.refuse(w, err); a.first() != nil { // others may want less
				continue
			}
		}
		if !errors.Is(err, zk.ErrNoNode) || try >= joinTries {
			return nil, err
		}
		if err := a.makeDir(); err != nil {
			return nil, err
		}
		again.Pause(a.ctx, sess.Done())
	}
}

// createOnce creates the znode in line. Where it replaces one that stood alone
// in line, and nobody has joined since, it knows without a list that it is
// alone.
func (a *acquisition) createOnce(sess *framework.Session) (*contender, error) {
	const flags = zk.FlagEphemeral | zk.FlagSequence
	q := a.queue
	before, reserving := a.leavingAlone(), a.reserving(sess)
	if before == nil {
		created, room, err := privileged.Framework.CreateProtectedAndRead(a.ctx, reserving, q.dir, q.rule.Base, q.cfg.Data, flags, q.cfg.ACL,
			q.rule.Permits.reads()...)
		if err != nil {
			return nil, err
		}
		return newContender(q, sess, created, room), nil
	}
	created, alone, err := privileged.Framework.CreateProtectedInstead(a.ctx, reserving, q.dir, q.rule.Base, q.cfg.Data, flags, q.cfg.ACL, child(q.dir, before.name))
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
func (a *acquisition) reserving(sess *framework.Session) *framework.Session {
	q := a.queue
	if w := a.wantsMost(); w != nil {
		p := w.line.rule.Permits
		return privileged.Framework.Reserving(sess, w.line.client.Resolve(p.Dir), p.Name, p.N)
	}
	if q.rule.DowngradeTo != "" {
		return privileged.Framework.Reserving(sess, q.client.Resolve(q.dir), q.rule.DowngradeTo, 1)
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

// leavingAlone returns the latest grant that is leaving this directory, and
// whose znode was alone in it when it was granted; nil if there is none. Its
// local queue may be another one, in another view.
func (a *acquisition) leavingAlone() *grant {
	for _, z := range slices.Backward(a.leaving) {
		if g := z.removal.of; g != nil && g.alone {
			return g
		}
	}
	return nil
}

func (a *acquisition) makeDir() error {
	q := a.queue
	if !q.rule.PersistentDir {
		return privileged.Framework.MakeDirectory(a.ctx, q.client, q.dir)
	}
	above := q.dir[:strings.LastIndexByte(q.dir, '/')]
	if err := privileged.Framework.MakeDirectory(a.ctx, q.client, cmp.Or(above, "/")); err != nil { // of the root: the chroot and the namespace
		return err
	}
	return q.client.MakePersistentPath(a.ctx, q.dir)
}

// grant ends stand with a grant of c, which nobody stands ahead of.
func (a *acquisition) grant(c *contender) error {
	g, err := c.claim(a.ctx)
	if err != nil {
		c.withdraw()
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
	c.withdraw()
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
		q.chooseAllLocked(framework.GrantedByEnsemble, grants...)
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

// firstOnlyTries reports whether the first waiter only tries.
func (a *acquisition) firstOnlyTries() bool {
	w := a.first()
	return w != nil && w.try
}

// tries returns the waiters who only try.
func (a *acquisition) tries() (all []*waiter) {
	q := a.queue
	q.update(func() {
		for e := q.waiters.Front(); e != nil; e = e.Next() {
			if w := e.Value.(*waiter); w.try {
				all = append(all, w)
			}
		}
	})
	return all
}

// refuse fails one waiter, if it still waits for a.
func (a *acquisition) refuse(w *waiter, err error) {
	a.queue.update(func() {
		if a.queue.acquisition == a {
			a.queue.refuseLocked(func(other *waiter) bool { return other == w }, err)
		}
	})
}

// refuseAllTries fails all waiters who only try, and those that come from now
// on. It reports whether anybody still waits for a.
func (a *acquisition) refuseAllTries() (waited bool) {
	q := a.queue
	q.update(func() {
		if q.acquisition != a {
			return
		}
		a.blocked = true
		q.refuseLocked(func(w *waiter) bool { return w.try }, ErrBusy)
		waited = q.acquisition == a
	})
	return waited
}

// lookAgain has a look for the sake of a caller that only tries.
func (a *acquisition) lookAgain() {
	select {
	case a.look <- struct{}{}:
	default:
	}
}

// lookFirst fails the waiters who only try, if one that joined now would not be
// granted.
func (a *acquisition) lookFirst(sess *framework.Session) error {
	if a.queue.rule.Permits != nil {
		return a.lookForRoom(sess)
	}
	free, err := a.isFree(sess)
	if err == nil && !free {
		a.refuseAllTries()
	}
	return err
}

// isFree reports whether a contender that joined now would be granted at once.
func (a *acquisition) isFree(sess *framework.Session) (bool, error) {
	rule := a.queue.rule
	for a.ctx.Err() == nil && a.awaitLeaving("") { // contenders that just join, although nobody wants them now
		a.noteLeaving()
	}
	children, _, err := sess.Children(a.ctx, a.queue.dir)
	if framework.Absent(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	ahead, err := rule.members(children)
	if err != nil {
		return false, err
	}
	own := rule.newcomer(ahead)
	for {
		last, err := rule.lastConflict(&own, ahead)
		if err != nil || last < 0 {
			return err == nil, err
		}
		if !a.makesRoom(ahead[last].Name) {
			return false, nil
		}
		ahead = ahead[:last]
	}
}

// noteLeaving is called before each look at the line. A znode of this process
// that is leaving may still be in the list, but have left when the answer is
// read.
func (a *acquisition) noteLeaving() { a.leaving = a.queue.registry.leavingAt(a.queue.key.path) }

// removalOf returns the removal of a znode that was leaving before the latest
// look, and keeps nobody waiting; nil if there is none.
func (a *acquisition) removalOf(znode string) *removal {
	for _, z := range a.leaving {
		if z.name == znode && z.removal.async && !z.removal.failed() {
			return z.removal
		}
	}
	return nil
}

// awaitLeaving waits for the removal of a znode of this process that was
// leaving before the latest look: that must be repeated then. It reports false
// if the znode was not leaving.
func (a *acquisition) awaitLeaving(znode string) bool {
	r := a.removalOf(znode)
	if r != nil {
		_ = r.await(a.ctx) // well or not: the next look shows it
	}
	return r != nil
}

// refuseTries fails the waiters who only try and have to wait for another
// holder. When passed, if it is not nil, is closed, the others have to look
// again.
func (a *acquisition) refuseTries(c *contender) (passed <-chan struct{}, err error) {
	if a.queue.rule.Permits != nil {
		return a.refuseTriesForPermits(c)
	}
	a.refuseAllTries()
	return nil, nil
}
