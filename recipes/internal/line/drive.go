package line

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/retry"
)

// drive stands in line until the gate's first waiter is let in, or nobody waits
// any more (ctx ends), or an error ends the wait of all. A lost session, or a
// znode removed by somebody else, costs the place in line only: it joins again,
// at the end. While the directory cannot be found it pauses before that.
func (g *gate) drive(ctx context.Context, d *driver) {
	defer d.stop()
	pauses := rejoins()
	for {
		g.tries(d)
		sess, err := g.client.AwaitSession(ctx)
		if err == nil {
			err = g.stand(ctx, d, sess)
		} else {
			g.fail(d, err) // ErrClosed, ctx, or no server in all of the retry budget
			return
		}
		switch {
		case err == nil:
			return
		case errors.Is(err, framework.ErrClosed):
		case errors.Is(err, errMissing):
			g.pause(ctx, pauses.NextBackOff())
			continue
		case errors.Is(err, framework.ErrSessionLost), errors.Is(err, errOut):
			continue
		}
		g.fail(d, err)
		return
	}
}

// rejoins is how long to pause while the directory cannot be found.
var rejoins = retry.Exponential(100*time.Millisecond, 2*time.Second, math.MaxInt)

// pause waits for d, or until nobody needs what comes after.
func (g *gate) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-g.client.Done():
	}
}

// stand goes through the line once, in one session. It returns nil when a waiter
// was let in or nobody waits any more, and otherwise why it is not in line any
// more. On any return without a hold, no znode stays.
func (g *gate) stand(ctx context.Context, d *driver, sess *framework.Session) error {
	// The quick heartbeat, from the first look to the grant, whose hold asks for it
	// too: so that the session is still proven when the turn comes.
	defer sess.Keep()()

	if g.triesFirst(d) {
		if err := g.lookFirst(ctx, d, sess); err != nil || g.first(d) == nil {
			return err
		}
	}
	c, err := g.join(ctx, g.naming(sess))
	if err != nil {
		return err
	}
	for {
		blocker, err := c.turn(ctx)
		if errors.Is(err, errOut) && !errors.Is(err, errMissing) {
			return err
		}
		if err != nil {
			c.withdraw()
			return err
		}
		if blocker == "" {
			break
		}
		passed, err := g.hope(ctx, d, c, blocker)
		if err == nil && g.first(d) != nil {
			err = c.wait(ctx, blocker, passed, d.kick)
		}
		if err != nil || g.first(d) == nil {
			c.withdraw()
			return err
		}
	}
	if g.rule.Take != nil {
		return g.take(ctx, d, c)
	}
	return g.grant(ctx, d, c)
}

// grant ends stand with a hold of c, which nobody is ahead of.
func (g *gate) grant(ctx context.Context, d *driver, c *contender) error {
	h, err := c.claim(ctx)
	if err != nil {
		c.withdraw()
		return err
	}
	return g.letIn(d, c, h)
}

// letIn ends stand with h for the first waiter. If h was lost already, or nobody
// waits for d any more, it is taken back.
func (g *gate) letIn(d *driver, c *contender, h *hold) error {
	if g.admit(d, h) {
		return nil
	}
	c.withdraw()
	h.unhold()
	return h.why()
}

// lookFirst ends the wait of those who only try, if one who joined now would not be
// let in.
func (g *gate) lookFirst(ctx context.Context, d *driver, sess *framework.Session) error {
	if g.rule.Take != nil {
		return g.lookForRoom(ctx, d, sess)
	}
	free, err := g.look(ctx, sess)
	if err == nil && !free {
		g.busy(d)
	}
	return err
}

// hope ends the wait of those who only try and have to wait for others in line. By
// passed, if it is not nil, the rest of them learn that they have to look again.
func (g *gate) hope(ctx context.Context, d *driver, c *contender, blocker string) (passed <-chan struct{}, err error) {
	if g.rule.Take != nil {
		return g.hopeForRoom(ctx, d, c)
	}
	passed, err = g.hopeForLingering(ctx, c, blocker)
	if err == nil && passed == nil {
		g.busy(d)
	}
	return passed, err
}

// look reports whether a contender that joined now would be let in at once, or as
// soon as what lingers has made room for it.
func (g *gate) look(ctx context.Context, sess *framework.Session) (bool, error) {
	children, _, err := sess.Children(ctx, g.dir)
	if errors.Is(err, zk.ErrNoNode) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	blockers, err := g.rule.blockers(children)
	if err != nil {
		return false, err
	}
	return g.invited(ctx, sess, blockers)
}

// joinTries bounds how often the directory may vanish before the create: the
// server removes a container that has become empty, and it is made again.
const joinTries = 10

// contending is what is created in line.
const contending = zk.FlagEphemeral | zk.FlagSequence

// join creates the gate's znode in line, and its directory where that is missing.
func (g *gate) join(ctx context.Context, sess *framework.Session) (*contender, error) {
	for try := 1; ; try++ {
		created, err := sess.CreateProtected(ctx, g.dir, g.rule.Base, g.cfg.Data, contending, g.cfg.ACL...)
		if err == nil {
			return newContender(g, sess, created), nil
		}
		if !errors.Is(err, zk.ErrNoNode) || try == joinTries {
			return nil, err
		}
		if err := g.makeDir(ctx); err != nil {
			return nil, err
		}
	}
}

func (g *gate) makeDir(ctx context.Context) error {
	if !g.rule.Stays {
		return g.client.MakeContainerPath(ctx, g.dir)
	}
	if above := g.dir[:strings.LastIndexByte(g.dir, '/')]; above != "" {
		if err := g.client.MakeContainerPath(ctx, above); err != nil {
			return err
		}
	}
	_, err := g.client.Create(ctx, g.dir, nil, zk.FlagPersistent)
	if errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrNoNode) { // or what is above was reaped: join looks again
		return nil
	}
	return err
}
