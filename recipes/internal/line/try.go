package line

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// What only a try needs, which is a waiter that leaves rather than wait for
// another holder. It waits with the others, for the same acquisition, but it is
// refused with ErrBusy
//
//   - in its local queue, if it would have to wait there: localQueue.addLocked;
//   - before the acquisition joins the line, if the first waiter is a try and a
//     look shows that its contender would not be granted: lookFirst;
//   - when the contender has to wait for another holder: refuseTries.
//
// A znode of this process that departs, or lingers, does not make the line
// busy: the try waits until it is gone.

// hurry makes the acquisition look again, for a try that has come.
func (a *acquisition) hurry() {
	select {
	case a.hurried <- struct{}{}:
	default:
	}
}

// tries returns the waiters that only try.
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

// refuseAllTries fails all tries, and those that come from now on. It reports
// whether anybody still waits for a.
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

// lookFirst fails all tries if a contender that joined now would not be
// granted. With permits it fails w, the first waiter, if there is no room.
func (a *acquisition) lookFirst(sess *managed.Session, w *waiter) error {
	if a.queue.rule.Permits != nil {
		return a.tryRoom(sess, w)
	}
	free, err := a.isFree(sess)
	if err == nil && !free {
		a.refuseAllTries()
	}
	return err
}

// isFree reports whether a contender that joined now would be granted without a
// wait for another process.
func (a *acquisition) isFree(sess *managed.Session) (bool, error) {
	rule := a.queue.rule
	for a.ctx.Err() == nil && a.awaitDeparture("") { // contenders that just join, although nobody wants them now
		a.noteDepartures()
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

// newcomer returns a contender that joined now, behind members.
func (r *Rule) newcomer(members []layout.Node) layout.Node {
	own := layout.Node{Base: r.Base, Family: r.Set.Family, RuleName: r.Name}
	if len(members) > 0 {
		own.Seq = members[len(members)-1].Seq + 1
	}
	return own
}

// makesRoom reports whether the znode of a contender ahead has left for one
// that joined now: it is one of this process that departed already, or
// lingered.
func (a *acquisition) makesRoom(ahead string) bool {
	if d := a.departureOf(ahead); d != nil {
		return d.await(a.ctx) == nil
	}
	return a.endLinger(ahead)
}

// endLinger makes the znode of that name leave the line, and waits for that. It
// reports false if the znode is not one of this process that lingers, or is
// still in line.
func (a *acquisition) endLinger(name string) (left bool) {
	for _, q := range a.queue.registry.at(a.queue.key.path) {
		var d *departure
		q.update(func() {
			if g := q.current; g != nil && g.name == name && g.unusedLocked() {
				if d = g.endLingerLocked(); d == nil {
					d = g.departure
				}
			}
		})
		if d != nil {
			return d.await(a.ctx) == nil
		}
	}
	return false
}

// tryRoom fails w, which only tries, if there is no room.
func (a *acquisition) tryRoom(sess *managed.Session, w *waiter) error {
	a.noteDepartures()
	room, err := w.line.lookForRoom(a.ctx, sess, false)
	switch {
	case err != nil:
		return err
	case room.Refused == nil && !room.Free && a.awaitDepartures():
		return a.tryRoom(sess, w)
	case room.Refused != nil:
		a.refuse(w, room.Refused)
	case !room.Free:
		a.refuse(w, ErrBusy)
	}
	return nil
}

// refuseTries fails the tries that have to wait for another holder. When
// passed, if it is not nil, is closed, the others have to look again.
func (a *acquisition) refuseTries(c *contender) (passed <-chan struct{}, err error) {
	if a.queue.rule.Permits != nil {
		return a.refuseTriesForPermits(c)
	}
	a.refuseAllTries()
	return nil, nil
}

// refuseTriesForPermits fails the tries where there is no room, or where the
// first in line waits itself. Behind a first that is about to take permits they
// wait: when passed is closed it has taken them, or has begun to wait.
func (a *acquisition) refuseTriesForPermits(c *contender) (passed <-chan struct{}, err error) {
	tries := a.tries()
	if len(tries) == 0 {
		return nil, nil
	}
	members, err := a.queue.rule.members(c.children)
	if err != nil {
		return nil, err
	}
	_, stat, passed, err := c.sess.GetAndWatch(a.ctx, child(a.queue.dir, members[0].Name))
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return closedNow, nil // it has passed
	case err != nil:
		return nil, err
	case stat.Version != 0: // it waits itself
		c.sess.Unwatch(passed)
		for _, w := range tries {
			a.refuse(w, ErrBusy)
		}
		return nil, nil
	}
	for _, w := range tries {
		if err := a.tryRoom(c.sess, w); err != nil {
			c.sess.Unwatch(passed)
			return nil, err
		}
	}
	return passed, nil
}

// closedNow is a closed channel.
var closedNow = func() <-chan struct{} {
	channel := make(chan struct{})
	close(channel)
	return channel
}()
