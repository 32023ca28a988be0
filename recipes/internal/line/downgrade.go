package line

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// Downgrade returns a share in l, a line over the same directory whose
// contenders share, on a separate znode. That has the number of s's znode and
// is directly behind it: it is granted with s, and stays granted when s is
// released, because the contenders behind s are also behind it. It carries s's
// fencing token. The error is ErrNotHeld if s is not held until the znode
// exists.
func (s *Share) Downgrade(ctx context.Context, l *Line) (*Share, error) {
	if !s.Held() || !s.bind() {
		return nil, s.notHeld()
	}
	q, err := l.queues.use(l)
	if err != nil {
		return nil, err
	}
	defer l.queues.unuse(q)
	down, err := s.downgrade(ctx, q, l)
	err = l.shown(err)
	if errors.Is(err, framework.ErrSessionLost) && (!errors.Is(err, framework.ErrUnproven) || !s.Held()) {
		return nil, notHeld(err) // and s with it
	}
	return down, err
}

func (s *Share) downgrade(ctx context.Context, q *localQueue, l *Line) (*Share, error) {
	sess := q.client.View(s.grant.sess) // q.dir may mean another one to l
	defer sess.Keep()()
	own, _ := layout.Parse(s.grant.name)
	created, err := sess.InRoomOf(s.grant.queue.client.Resolve(s.grant.path)).CreateProtected(ctx, q.dir, l.rule.Base+own.Digits, q.cfg.Data, zk.FlagEphemeral, q.cfg.ACL...)
	if errors.Is(err, zk.ErrNoNode) { // if it is right, s's znode is gone with the directory
		err = cmp.Or(s.checkNode(ctx, sess, q.dir, true), err)
	}
	if err != nil {
		return nil, err
	}
	c := newContender(q, sess, created, nil)
	g, err := s.claimWith(ctx, c)
	if err != nil {
		c.depart()
		return nil, err
	}
	var down *Share
	q.update(func() {
		q.addGrantLocked(g)
		g.handoffs, g.bound = s.handoffs, true
		down = g.shareLocked(l, ByEnsemble)
		if g.loss != nil { // since it was claimed
			q.dropGrantLocked(g)
		}
	})
	if !down.begin() {
		down.Leave(ctx)
		return nil, down.notHeld()
	}
	return down, nil
}

// claimWith makes a grant of c if s's znode existed when c's was there already:
// then nobody behind s was granted before.
func (s *Share) claimWith(ctx context.Context, c *contender) (*grant, error) {
	if c.children == nil {
		if err := c.list(ctx); err != nil && !errors.Is(err, errNotInLine) {
			return nil, err
		}
	}
	if _, err := c.queue.rule.members(c.children); err != nil {
		return nil, err
	}
	if err := s.checkNode(ctx, c.sess, c.queue.dir, slices.Contains(c.children, s.grant.name)); err != nil {
		return nil, err
	}
	c.dir = s.grant.rank.Dir // and the number is s's: the same rank
	return c.claim(ctx)
}

// checkNode reads s's znode, which is in dir in the view of sess. It returns
// ErrNotHeld if the znode is gone, and s is lost by that. exists says whether
// it exists if its ACL lets nobody read it. That a list has the name is not
// enough, if more can be known: somebody else may have made a znode of that
// name again.
func (s *Share) checkNode(ctx context.Context, sess *managed.Session, dir string, exists bool) error {
	found, stat, err := sess.Exists(ctx, child(dir, s.grant.name))
	switch {
	case err == nil:
		exists = found && stat.EphemeralOwner == sess.ID()
	case !errors.Is(err, zk.ErrNoAuth):
		return err
	}
	if exists {
		return nil
	}
	if s.Held() { // not removed by us
		s.Deleted()
	}
	return s.notHeld()
}

// notHeld returns ErrNotHeld, and the reason.
func (s *Share) notHeld() error { return notHeld(s.Err()) }
