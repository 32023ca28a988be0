package live

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/ratelimit"
)

// collector reads the lines below a path again and again. It keeps what it has
// read, under a watch, and requests only what has changed since. A server can
// fail to send an event, so what is old is read again: see life. It is an
// inspect.Reader.
type collector struct {
	client *framework.Client
	path   string
	pace   *ratelimit.Limiter

	perSecond    int // requests at most; 0: no limit
	lists, nodes cache

	mu       sync.Mutex // guards what follows
	requests int
	answered time.Time // see heard; it outlives the session
}

func newCollector(client *framework.Client, path string, perSecond int) *collector {
	return &collector{client: client, path: path, pace: ratelimit.New(perSecond), perSecond: perSecond}
}

// topLook is the result of a look.
type topLook struct {
	inspect.Forest
	counts  map[string]childCount // of each directory
	stands  map[string]stand      // of each line, by path, as its directory was listed
	at      time.Time             // when it was true: earlier than now without a connection
	current bool                  // the client was connected all the time
}

// collect returns what is below the path, with details of the lines in the set,
// of at most so many contenders each.
func (c *collector) collect(ctx context.Context, detailed map[string]int) (topLook, error) {
	life := c.life()
	c.lists.begin(life)
	c.nodes.begin(life)
	connected := c.connected()
	forest, err := inspect.Tree(ctx, c, c.path, inspect.WithoutDetails())
	if err != nil {
		return topLook{}, err
	}
	now := topLook{Forest: forest, counts: c.lists.counts(), stands: map[string]stand{}}
	lines := forest.Lines
	for i := range lines {
		now.stands[lines[i].Path] = standOf(&lines[i], now.counts)
	}
	for i := range lines {
		most, ok := detailed[lines[i].Path]
		if !ok {
			continue
		}
		if err := inspect.Fill(ctx, c, &lines[i], most); err != nil {
			return topLook{}, err
		}
	}
	c.lists.end()
	c.nodes.end()
	now.Lines = slices.DeleteFunc(lines, func(l inspect.Line) bool { return len(l.Holders)+len(l.Waiting) == 0 }) // all have left
	now.at, now.current = time.Now(), connected && c.connected()
	if !now.current { // what it kept may have changed since
		now.at = c.heard()
	}
	return now, nil
}

// life returns how long to keep what was read, on average, without an event: a
// session timeout, or longer where there is so much that reading it again would
// take more than a fifth of the requests per second. Without a connection it is
// kept: everything is read again after the next one.
func (c *collector) life() time.Duration {
	sess, err := c.client.Session()
	if err != nil || !c.connected() {
		return math.MaxInt64
	}
	if c.perSecond == 0 {
		return sess.Timeout()
	}
	return max(sess.Timeout(), time.Duration(5*(c.lists.size()+c.nodes.size()))*time.Second/time.Duration(c.perSecond))
}

func (c *collector) connected() bool { return c.client.State() == framework.Connected }

// heard returns when a server has answered last, as far as is known.
func (c *collector) heard() time.Time {
	sess, err := c.client.Session()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && sess.LastAnswer().After(c.answered) {
		c.answered = sess.LastAnswer()
	}
	return c.answered
}

// sent returns how many requests were made.
func (c *collector) sent() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// Children lists a znode, if it may have changed since it was listed.
func (c *collector) Children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	e := c.lists.get(path)
	if e == nil {
		sess, err := c.next(ctx)
		if err != nil {
			return nil, nil, err
		}
		e = &entry{sess: sess}
		e.names, e.stat, e.changed, e.err = sess.ChildrenAndWatch(ctx, path)
		c.lists.put(path, e)
	}
	return e.names, e.stat, e.err
}

// Get reads a znode, if it may have changed since it was read.
func (c *collector) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	e := c.nodes.get(path)
	if e == nil {
		sess, err := c.next(ctx)
		if err != nil {
			return nil, nil, err
		}
		e = &entry{sess: sess}
		e.data, e.stat, e.changed, e.err = sess.GetAndWatch(ctx, path)
		c.nodes.put(path, e)
	}
	return e.data, e.stat, e.err
}

// next returns the session when the next request may begin.
func (c *collector) next(ctx context.Context) (*framework.Session, error) {
	sess, err := c.client.Session()
	if err != nil {
		return nil, err
	}
	if err := c.pace.Wait(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	return sess, nil
}

// cache keeps what was read, until it may have changed.
type cache struct {
	mu      sync.Mutex // guards what follows
	entries map[string]*entry
	used    map[string]bool // in this pass
	life    time.Duration   // of an entry, on average
}

// entry is a znode that was read.
type entry struct {
	names   []string
	data    []byte
	stat    *zk.Stat
	err     error
	sess    *framework.Session
	changed <-chan struct{}
	read    time.Time
	factor  float64 // of the cache's life: not all are read again at once
}

// forbiddenFor is how long a znode that may not be read is left alone.
const forbiddenFor = time.Minute

// get returns what was read, and nil if it must be read again.
func (c *cache) get(path string) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[path]
	if e == nil {
		return nil
	}
	age, life := float64(time.Since(e.read)), e.factor*float64(c.life)
	if e.err != nil {
		life = float64(forbiddenFor)
	}
	if age > life {
		return nil
	}
	select {
	case <-e.changed:
		return nil
	default:
		c.used[path] = true
		return e
	}
}

// put keeps what was read. Of errors it keeps only that the znode may not be
// read.
func (c *cache) put(path string, e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.err != nil && !errors.Is(e.err, zk.ErrNoAuth) {
		return
	}
	c.dropLocked(path)
	e.read, e.factor = time.Now(), 0.75+float64(random.N(1000))/2000
	c.entries[path] = e
	c.used[path] = true
}

// dropLocked forgets what was read, and the watch on it.
func (c *cache) dropLocked(path string) {
	if e := c.entries[path]; e != nil && e.err == nil {
		e.sess.Unwatch(e.changed)
	}
	delete(c.entries, path)
}

// begin begins a pass, and end forgets what was not used in it.
func (c *cache) begin(life time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.life = life
	if c.entries == nil {
		c.entries = map[string]*entry{}
	}
	c.used = map[string]bool{}
}

// counts returns those of all directories that were used in this pass.
func (c *cache) counts() map[string]childCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]childCount, len(c.entries))
	for path, e := range c.entries {
		if e.err == nil && c.used[path] {
			all[path] = childCountOf(e.stat)
		}
	}
	return all
}

func (c *cache) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

func (c *cache) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for path := range c.entries {
		if !c.used[path] {
			c.dropLocked(path)
		}
	}
}
