package presence

import (
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/random"
)

// stayAway removes the znode for now, and again if a create whose answer was
// lost makes it after all.
func (n *Node) stayAway(sess *managed.Session) {
	if !n.life.gone {
		n.tell(Status{State: Pending, Err: n.illness()})
	}
	late, sent := n.life.sent[sess.ID()]
	if !sent {
		n.rest(sess, nil, 0)
		return
	}
	switch err := n.withdraw(sess); {
	case err != nil:
		n.rest(sess, nil, sess.Timeout()/spread)
	case late && !n.cfg.sequential:
		n.rest(sess, nil, n.keeper.interval(sess))
	default:
		delete(n.life.sent, sess.ID())
	}
}

// withdraw removes the znode in this session. After nil it is gone, but a
// request whose answer was lost may still come.
func (n *Node) withdraw(sess *managed.Session) error {
	if n.cfg.sequential && n.life.sent[sess.ID()] {
		if err := n.awaitStrays(sess); err != nil {
			return err
		}
	}
	path := n.Path()
	if path == "" { // a sequential one that was never made
		return nil
	}
	for {
		found, stat, err := statNow(sess, path)
		switch {
		case err != nil:
		case found && stat.EphemeralOwner == sess.ID():
			err = sess.Delete(background, path, stat.Version)
			n.noteLate(sess, stat.Version, err)
			if err == nil || framework.MaybeApplied(err) {
				n.life.in = 0 // our own delete is not somebody else's
			}
		case n.life.in == sess.ID() && n.cfg.yield && !n.ending():
			err = n.noteMissing(sess)
		default:
			n.life.in = 0
		}
		switch {
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode) && n.life.in == sess.ID():
			n.turn(sess, nil, 0) // somebody else was quicker
			continue
		case err == nil, errors.Is(err, zk.ErrNoNode):
			return nil
		}
		return err
	}
}

// awaitStrays returns nil when no znode is there of a sequential create whose
// answer was lost. The session removes it, by its id.
func (n *Node) awaitStrays(sess *managed.Session) error {
	dir, name := layout.Split(n.path)
	for {
		left, err := sess.LookForStrays(dir, name)
		if left == nil || err != nil {
			return err
		}
		select {
		case <-left:
		case <-n.client.Done():
			return framework.ErrClosed
		}
	}
}

// leave removes the znode wherever it may be. It returns nil once it is gone,
// and an error only if the client closes first, and has not closed a session.
func (n *Node) leave() error {
	for {
		var in int64
		now, err := n.client.Session()
		if err == nil {
			in = now.ID()
		}
		open := n.closeEarlier(in)
		late, sent := n.life.sent[in]
		switch {
		case len(n.life.sent) == 0:
			return nil
		case open != nil && n.clientCloses():
			return open
		case !sent || !now.Connected():
		default:
			now = now.AtOnce()
			err := n.withdraw(now)
			if err == nil {
				late = late || n.life.late.session == in
				if delete(n.life.sent, in); late && !n.cfg.sequential { // of a sequential one the session removes it, by its id
					n.keeper.guard(n, now)
				}
				continue
			}
			if isRefusal(err) && now.Err() == nil {
				n.tell(Status{State: Pending, Err: err})
				n.rest(now, nil, n.life.refused.NextBackOff())
				continue
			}
		}
		n.rest(nil, nil, 100*time.Millisecond+random.N(100*time.Millisecond))
	}
}

// closeEarlier forgets the sessions but one that are known to be closed, and
// asks for those that are not.
func (n *Node) closeEarlier(but int64) (open error) {
	for id := range n.life.sent {
		if id == but {
			continue
		}
		if _, err := n.client.CloseEarlier(background, id); err != nil {
			open = err
		} else {
			delete(n.life.sent, id)
		}
	}
	return open
}
