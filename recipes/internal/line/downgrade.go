package line

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes/internal/privileged"
)

// Downgrade returns a share in l, a line over the same directory whose
// contenders share, on a znode of its own. That has the number of s's znode and
// stands directly behind it: it is granted with s, and stays granted when s is
// released, because the contenders behind s are behind it as well. It carries
// s's fencing token. The error is ErrNotHeld if s is not held until the znode
// stands.
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
	if errors.Is(err, framework.ErrSessionLost) && (!errors.Is(err, framework.ErrUnproven) || !s.Held()) {
		return nil, notHeld(err) // and s with it
	}
	return down, err
}

func (s *Share) downgrade(ctx context.Context, q *localQueue, l *Line) (*Share, error) {
	sess, err := l.view(s.grant.sess)
	if err != nil {
		return nil, err
	}
	defer sess.Keep()()
	own, _ := layout.Parse(s.grant.name)
	created, err := privileged.Framework.InRoomOf(sess, s.grant.queue.client.Resolve(s.grant.path)).CreateProtected(ctx, q.dir, l.rule.Base+own.Digits, q.cfg.Data, zk.FlagEphemeral, q.cfg.ACL...)
	if errors.Is(err, zk.ErrNoNode) {
		s.Deleted() // with its directory
		return nil, s.notHeld()
	}
	if err != nil {
		return nil, err
	}
	c := newContender(q, sess, created, nil)
	g, err := s.claimWith(ctx, c)
	if err != nil {
		c.withdraw()
		return nil, err
	}
	var down *Share
	q.update(func() {
		q.addGrantLocked(g)
		g.handoffs, g.bound = s.handoffs, true
		down = g.shareLocked(l, framework.GrantedByEnsemble)
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

// claimWith makes a grant of c if s's znode stood when c's was there already:
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
	// That the list has the name is not enough, if more can be known: somebody
	// else may have made a znode of that name again.
	found, stat, err := c.sess.Exists(ctx, child(c.queue.dir, s.grant.name))
	stands := found && stat.EphemeralOwner == c.sess.ID()
	if errors.Is(err, zk.ErrNoAuth) { // its ACL lets nobody read it
		stands, err = slices.Contains(c.children, s.grant.name), nil
	}
	if err != nil {
		return nil, err
	}
	if !stands {
		if s.Held() { // not removed by us
			s.Deleted()
		}
		return nil, s.notHeld()
	}
	c.dir = s.grant.rank.Dir // and the number is s's: the same rank
	return c.claim(ctx)
}

// notHeld returns ErrNotHeld, and the reason.
func (s *Share) notHeld() error { return notHeld(s.Err()) }
