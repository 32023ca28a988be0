package cache

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/recipes/internal/privileged"
	"github.com/zkrecipes/zkrecipes/retry"
)

// Pauses after an error.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 10 * time.Second
)

// recheckAtOnce is how many znodes are read again in one request.
const recheckAtOnce = 256

var errNotWatching = errors.New("the connection was lost")

// watch is a recursive watch of the tree, in one connection of a session.
type watch struct {
	c       *Cache
	session *framework.Session
	id      int64         // of the session
	over    chan struct{} // closed: it tells of nothing any more
}

// run keeps the view true until the cache ends, in one connection after the
// other.
func (c *Cache) run() {
	defer close(c.done)
	pauses := retry.Exponential(firstPause, lastPause, math.MaxInt)()
	for c.life.Err() == nil {
		before := c.rounds()
		err := c.follow()
		var failed *failure
		c.mu.Lock()
		switch {
		case errors.As(err, &failed):
			c.enterLocked(Failed, err)
		case errors.Is(err, framework.ErrClosed):
			c.enterLocked(Closed, err)
		default:
			c.staleLocked(err)
		}
		final := c.status.State == Failed || c.status.State == Closed
		c.mu.Unlock()
		if final {
			c.end()
			if failed != nil {
				c.client.Logger().Error("a cache has failed", zap.String("path", c.client.Resolve(c.root)), zap.Error(err))
			}
			return
		}
		if c.rounds() > before {
			pauses.Reset()
			continue
		}
		c.pause(pauses.NextBackOff())
	}
}

func (c *Cache) rounds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

func (c *Cache) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.life.Done():
	case <-c.client.Done():
	}
}

// follow watches the tree, reads it, and reads what events name, for as long as
// a connection lasts. It always returns an error.
func (c *Cache) follow() error {
	s, err := c.client.AwaitSession(c.life)
	if err != nil {
		return err
	}
	if c.View().zxid > 0 {
		// Many clients may have lost the same server, and all of them read again.
		c.pause(random.N(s.Timeout() / 3))
	}
	w := &watch{c: c, session: s, id: s.ID(), over: make(chan struct{})}
	c.begin(w)
	defer c.forget(w)
	_, remove, err := privileged.Framework.WatchTree(c.life, s, c.root, w.on)
	if err != nil {
		return err
	}
	defer remove()
	if err := c.walk(w); err != nil {
		return err
	}
	recheck := time.NewTimer(c.recheckPause())
	defer recheck.Stop()
	for {
		var again []string
		select {
		case <-w.over:
			return errNotWatching
		case <-c.life.Done():
			return c.life.Err()
		case <-recheck.C:
			again = c.nextChecked()
			recheck.Reset(c.recheckPause())
		case <-c.work:
		}
		if err := c.readMarks(w, again); err != nil {
			return err
		}
	}
}

func (c *Cache) begin(w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch = w
}

// forget ends what belongs to a watch. Its events are ignored from now on.
func (c *Cache) forget(w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watch == w {
		c.watch = nil
	}
	c.reading = false
}

// on takes an event. It runs on the goroutine that reads the connection, before
// any later answer is delivered.
func (w *watch) on(order uint64, what zk.EventType, path string) {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.watch != w:
	case what == zk.EventNotWatching:
		c.watch = nil
		close(w.over)
		c.staleLocked(errNotWatching)
	case path == c.root || isBelow(c.root, path) && depth(c.root, path) <= c.cfg.depth:
		// Keeper (ClickHouse) sends the path of the watch, and not of the znode.
		// Other events may come late, of watches that were set again.
		c.marks.add(path, order, path == c.root && what != zk.EventNodeChildrenChanged)
		c.wake()
	}
}

func (c *Cache) wake() {
	select {
	case c.work <- struct{}{}:
	default:
	}
}

// mark makes the next round read a znode.
func (c *Cache) mark(path string, order uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marks.add(path, order, false)
}

func (c *Cache) settle(path string, order uint64) (event bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read++
	return c.marks.settle(path, order)
}

// walk reads everything.
func (c *Cache) walk(w *watch) error {
	c.mu.Lock()
	c.begun++
	c.reading, c.look, c.marks, c.read = true, false, marks{}, 0
	c.mu.Unlock()
	r := c.newRound(w, true, false)
	r.ask(framework.Read{Path: c.root})
	return c.finish(r)
}

// readMarks reads what is marked, and what is to be read again.
func (c *Cache) readMarks(w *watch, again []string) error {
	c.mu.Lock()
	if c.marks.forgotten > 0 {
		c.mu.Unlock()
		return c.walk(w)
	}
	paths := again
	for path := range c.marks.at {
		paths = append(paths, path)
	}
	if c.look {
		paths = append(paths, c.root)
	}
	if len(paths) == 0 {
		c.mu.Unlock()
		return nil
	}
	c.begun++
	c.reading, c.look, c.read = true, false, 0
	c.mu.Unlock()
	r := c.newRound(w, false, again != nil)
	slices.SortFunc(paths, compare) // what is above is read first
	pass, err := c.passing(paths, r.tree)
	if err != nil {
		return err
	}
	if len(pass) < len(paths) {
		c.unmark(paths, pass)
	}
	for _, path := range pass {
		r.ask(framework.Read{Path: path})
	}
	return c.finish(r)
}

// unmark drops the marks of paths that are filtered out.
func (c *Cache) unmark(paths, pass []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, path := range paths {
		if len(pass) > 0 && pass[0] == path {
			pass = pass[1:]
		} else {
			delete(c.marks.at, path)
		}
	}
}

// finish runs a round and shows what it has found.
func (c *Cache) finish(r *round) error {
	if err := r.run(); err != nil {
		return err
	}
	c.unreadable = r.unreadable
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = false
	if c.watch != r.w {
		return errNotWatching // events may be missing
	}
	c.ended = c.begun
	c.view = View{tree: r.tree, zxid: max(c.view.zxid, r.zxid(c.marks.first()))}
	c.status.Unreadable = len(r.unreadable)
	if c.view.zxid > 0 {
		c.enterLocked(Synced, nil)
	}
	if !c.marks.empty() {
		c.wake()
	}
	return nil
}

// recheckPause returns the time until the next znodes are read again.
func (c *Cache) recheckPause() time.Duration {
	if c.cfg.recheck == 0 {
		return math.MaxInt64
	}
	return max(c.cfg.recheck/time.Duration(1+c.View().Len()/recheckAtOnce), time.Millisecond)
}

// nextChecked returns what is to be read again. A pass begins with what could
// not be read before.
func (c *Cache) nextChecked() (paths []string) {
	if c.cursor == "" {
		for path := range c.unreadable {
			paths = append(paths, path)
		}
	}
	tree := c.View().tree
	for range recheckAtOnce {
		n := tree.behind(func(path string) int { return compare(path, c.cursor) })
		if n == nil {
			c.cursor = ""
			break
		}
		c.cursor = n.Path
		paths = append(paths, n.Path)
	}
	if len(paths) == 0 {
		paths = append(paths, c.root)
	}
	return paths
}
