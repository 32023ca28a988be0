package line

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A contender is a znode of ours in line, in one session. Its driver alone uses
// it.
type contender struct {
	gate     *gate
	sess     *framework.Session
	path     string
	name     string
	children []string  // the latest list of the directory; nil: look again
	dir      int64     // the directory's czxid, in that list
	marked   bool      // others can see that it is first and waits
	patience time.Time // until when those who only try wait for what lingers; zero: none does yet
	hoping   bool      // some of them do
}

func newContender(g *gate, sess *framework.Session, created framework.Created) *contender {
	c := &contender{gate: g, sess: sess, path: created.Path, name: base(created.Path), children: created.Children}
	if created.Stat != nil {
		c.dir = created.Stat.Czxid
	}
	return c
}

// turn decides whom to wait for, nobody if blocker is empty. It is errOut when
// the znode is in line no more.
func (c *contender) turn(ctx context.Context) (blocker string, err error) {
	if c.children == nil {
		if err := c.list(ctx); err != nil {
			return "", err
		}
	}
	blocker, err = c.gate.rule.turn(c.name, c.children)
	if err == nil && blocker == "" {
		err = CheckNoKazooLeases(ctx, c.sess, c.gate.dir, c.children)
	}
	if !errors.Is(err, errOut) {
		return blocker, err
	}
	// A member never answers a session with less than it has seen, so a list without
	// the own znode means that somebody removed it. But to join again while it is
	// there would be to wait for oneself: ask the leader once more.
	if err := c.sess.Sync(ctx, c.gate.dir); err != nil {
		return "", c.out(err)
	}
	if err := c.list(ctx); err != nil {
		return "", err
	}
	return c.gate.rule.turn(c.name, c.children)
}

func (c *contender) list(ctx context.Context) error {
	children, stat, err := c.sess.Children(ctx, c.gate.dir)
	if err != nil {
		return c.out(err)
	}
	c.children, c.dir = children, stat.Czxid
	return nil
}

// out takes the directory's absence for that of the znode, but not for certain: the
// create has succeeded, and a member that says so may be wrong.
func (c *contender) out(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return errMissing
	}
	return err
}

// wait returns when the blocker may have left, or with passed or kick: then the
// line must be looked at again. An event can be lost, so it looks by itself, too.
func (c *contender) wait(ctx context.Context, blocker string, passed, kick <-chan struct{}) error {
	c.children = nil
	path := child(c.gate.dir, blocker)
	_, stat, changed, err := c.sess.GetAndWatch(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil // it left between the list and the watch
	}
	if err != nil {
		return err
	}
	c.gate.obstacle.Store(&obstacle{path, stat.EphemeralOwner})
	defer c.gate.obstacle.Store(nil)
	for {
		timer := time.NewTimer(c.lookAgain())
		select {
		case <-timer.C:
			if c.hoping || Gone(ctx, c.sess, path) {
				return nil
			}
			continue
		case <-changed:
		case <-passed:
		case <-kick:
		case <-c.sess.Done():
			err = c.sess.Err()
		case <-ctx.Done():
			err = ctx.Err()
		}
		timer.Stop()
		return err
	}
}

// lookAgain is when wait looks without an event.
func (c *contender) lookAgain() time.Duration {
	if c.hoping {
		return time.Until(c.patience)
	}
	return LookAgain(c.sess)
}

// A Rank orders the grants of one line that exclude each other: the later one has the
// greater rank. See recipes.Token for why.
type Rank struct {
	Dir      int64  // the czxid of the line's directory
	Seq      uint32 // the sequence number of the contender
	Handoffs uint32 // how often the znode was handed off in-process before
}

// rank is that of the grant which the latest list says is c's. Both parts are in that
// list: c's own name stands in it, and its stat is that of the directory in which it
// does. So a directory that was removed and made again meanwhile, by one multi even,
// cannot lend its czxid to a number that another one has given out.
func (c *contender) rank() Rank {
	own, _ := layout.Parse(c.name)
	return Rank{Dir: c.dir, Seq: uint32(own.Seq)}
}

// claim makes a hold of a contender that nobody is ahead of. That stays so as long
// as the znode stands: what is ahead never comes back. So only the session is
// looked at, and from before the last look on its loss is reported to the hold.
func (c *contender) claim(ctx context.Context) (*hold, error) {
	h := &hold{gate: c.gate, sess: c.sess, name: c.name, path: c.path, rank: c.rank()}
	if c.gate.rule.crowded(c.name, c.children) {
		h.crowd = crowd{known: crowded, at: time.Now()}
	}
	if err := h.claim(ctx); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *hold) claim(ctx context.Context) error {
	for {
		if !h.sess.Proven() {
			if err := h.sess.Prove(ctx); err != nil {
				return err
			}
		}
		release, err := h.sess.Hold(h.lose)
		if err == nil {
			h.gate.mu.Lock()
			h.unhold = release // h may have been lost by now; admit looks
			h.gate.mu.Unlock()
			return nil
		}
		if over := h.sess.Err(); over != nil {
			return fmt.Errorf("%w: %w", framework.ErrSessionLost, over)
		}
		// In doubt again since it was proven, by a disconnect or by the clock: the
		// place in line is not lost by that.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-h.sess.Done():
		case <-time.After(claimPause):
		}
	}
}

// claimPause keeps claim from asking in a tight loop.
const claimPause = 10 * time.Millisecond

// withdraw takes the znode out of line; nobody has worked under it.
func (c *contender) withdraw() { c.sess.Discard(c.path) }
