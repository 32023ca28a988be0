package line

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/turns"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recheck"
)

// A contender is a znode of ours in line, in one session. Only its acquisition
// uses it.
type contender struct {
	queue    *localQueue
	sess     *managed.Session
	path     string
	name     string
	children []string // the latest list of the directory; nil: look again
	dir      int64    // the czxid of the directory that the list is of
	latest   int64    // its pzxid, then
	// room is what Permits.Reads have found behind the list; nil: not read.
	room    []request.Result
	outlook outlook     // what it watches
	marked  bool        // others can see that it is first and waits
	again   turns.Turns // that it looked again and has not waited

	departure *departure // when nobody wants it
}

func newContender(q *localQueue, sess *managed.Session, created managed.Created, room []request.Result) *contender {
	c := &contender{queue: q, sess: sess, path: created.Path, name: base(created.Path), children: created.Children, room: room}
	c.departure = q.newDeparture(c.name)
	if created.Stat != nil {
		c.dir, c.latest = created.Stat.Czxid, created.Stat.Pzxid
	}
	return c
}

// blocker returns the name of the znode to wait for, or nothing if c is to be
// granted. It fails with errNotInLine when the znode is no longer in line.
func (c *contender) blocker(ctx context.Context) (blocker string, err error) {
	if c.children == nil {
		if err := c.list(ctx); err != nil {
			return "", err
		}
	}
	rule := c.queue.rule
	blocker, err = rule.blocker(c.name, c.children)
	if err == nil && blocker == "" && rule.OtherLayout != nil {
		var other string
		if other, err = rule.OtherLayout(ctx, c.sess, c.queue.dir, c.children); err == nil {
			err = errConflictingLayout(other)
		}
	}
	if !errors.Is(err, errNotInLine) {
		return blocker, err
	}
	// A member never answers a session with less than it has seen, so a list
	// without its znode means that somebody removed it. But joining again while
	// the old znode exists would wait behind itself: ask the leader once more.
	if err := c.sess.Sync(ctx, c.queue.dir); err != nil {
		return "", directoryOf(err)
	}
	if err := c.list(ctx); err != nil {
		return "", err
	}
	blocker, err = rule.blocker(c.name, c.children)
	if errors.Is(err, errNotInLine) {
		c.discardNamesakes()
	}
	return blocker, err
}

// discardNamesakes removes znodes in line that have c's id and another number,
// as after a create that was answered with a wrong one. The next contender of
// this session would wait behind them until the session ends.
func (c *contender) discardNamesakes() {
	id, _, ok := layout.CutProtection(c.name)
	for _, name := range c.children {
		if other, _, _ := layout.CutProtection(name); ok && other == id && name != c.name {
			c.sess.Discard(child(c.queue.dir, name))
		}
	}
}

func (c *contender) list(ctx context.Context) error {
	children, stat, err := c.sess.Children(ctx, c.queue.dir)
	if err != nil {
		return directoryOf(err)
	}
	c.children, c.dir, c.latest, c.room = children, stat.Czxid, stat.Pzxid, nil
	return nil
}

// directoryOf returns errNoDirectory for zk.ErrNoNode. That is not certain: the
// create has succeeded, and a member that finds no directory may be behind.
func directoryOf(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return errNoDirectory
	}
	return err
}

// wait returns true when nobody is ahead any more, and false when the line must
// be looked at again, also with passed or look. An event can be lost, so it
// also looks by itself.
func (c *contender) wait(ctx context.Context, blocker string, passed, look <-chan struct{}) (first bool, err error) {
	rule := c.queue.rule
	ahead := rule.awaited(c.name, blocker, c.children)
	if rule.OtherLayout != nil {
		other, err := rule.OtherLayout(ctx, unread{}, c.queue.dir, c.children)
		ahead.whole = ahead.whole && other == "" && err == nil
	}
	c.children, c.room = nil, nil // of the list
	if err := c.watch(ctx, &ahead); err != nil {
		return false, err
	}
	defer c.queue.waitsFor.Store(nil)
	var patience recheck.Patience
	for {
		what, err := c.news(&ahead)
		switch {
		case err != nil:
			return false, err
		case what == listAgain:
			if closed.Is(c.outlook.ahead[blocker].Changed()) {
				go func() { _ = c.sess.Prove(ctx) }() // at the same time as the list: see claim
			}
			c.again.Pause(ctx, c.sess.Done())
			return false, nil
		case what == nobodyAhead:
			return true, nil
		}
		nearest := child(c.queue.dir, ahead.names[0])
		_, owner, _ := c.outlook.ahead[ahead.names[0]].Read()
		c.queue.waitsFor.Store(&waitingFor{ahead.names[0], owner})
		changed := c.outlook.changed(ahead.names)
		which, err := recheck.WaitWhich(ctx, c.sess, func() (bool, error) {
			if err := patience.Look(ctx, c.sess, nearest); err != nil {
				return false, err
			}
			c.look(ctx, ahead.names[0])
			return false, nil // what it finds comes by changed
		}, changed[0], changed[1], changed[2], passed, look)
		c.again = turns.Turns{}
		if err != nil || which >= len(changed) {
			return false, err
		}
	}
}

// unread is a Reader that reads nothing.
type unread struct{}

var errUnread = errors.New("not read")

func (unread) Get(context.Context, string) ([]byte, *zk.Stat, error) { return nil, nil, errUnread }

func (unread) Children(context.Context, string) ([]string, *zk.Stat, error) {
	return nil, nil, errUnread
}

// rank returns the rank of a grant of c. Dir is the czxid of the directory that
// the latest list has shown c's name in, from the same answer, or from one
// between the create and the list: see managed.Created. So Dir and Seq always
// belong to the same directory. Where c is granted by an event, its znode has
// existed since.
func (c *contender) rank() Rank {
	own, _ := layout.Parse(c.name)
	return Rank{Dir: c.dir, Seq: uint32(own.Seq)}
}

// claim makes a grant of a contender that waits for nobody. That stays so as
// long as the znode exists: what was ahead never comes back. So only the
// session is looked at. The grant is told of a loss from before the last look
// on.
//
// A waiter sends no heartbeat, so claim proves the session. The create is a
// round trip to the leader, and so are the requests of a client that takes
// locks often. After a wait that ends with a list, the proof has begun when the
// event came: see wait.
func (c *contender) claim(ctx context.Context) (*grant, error) {
	byEvent := c.children == nil
	contended, err := c.queue.rule.contended(c.name, c.children)
	if err != nil {
		return nil, err
	}
	g := &grant{queue: c.queue, sess: c.sess, name: c.name, path: c.path, rank: c.rank(), alone: len(c.children) == 1}
	if contended || byEvent {
		g.contention = contention{known: contested, assumed: byEvent, at: time.Now()}
	}
	g.watch.takeOver(&c.outlook, c.sess.ID(), byEvent)
	return g, g.claim(ctx)
}

// claim fails with framework.ErrUnproven where the session cannot be proven in
// bounded time: then the contender must leave, since it keeps others waiting.
func (g *grant) claim(ctx context.Context) error {
	unhold, err := g.sess.Claim(ctx, g.lose)
	if err != nil {
		if over := g.sess.Err(); over != nil {
			err = fmt.Errorf("%w: %w", framework.ErrSessionLost, over)
		}
		return err
	}
	g.queue.mu.Lock()
	defer g.queue.mu.Unlock()
	g.unhold = unhold // g may be lost already: admit looks
	return nil
}
