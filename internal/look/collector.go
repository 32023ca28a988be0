package look

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/ratelimit"
)

// Collector reads the lines below a path again and again. It keeps what it has
// read, under a watch, and requests only what has changed since. A server can
// fail to send an event, so what is old is read again: see life. It is an
// inspect.Reader.
type Collector struct {
	Client *framework.Client
	path   string
	scope  Scope
	pace   *ratelimit.Limiter

	perSecond    int // requests at most; 0: no limit
	lists, nodes cache

	mu       sync.Mutex // guards what follows
	requests int
	answered time.Time // see Heard; it outlives the session
}

// NewCollector returns a collector of what is at and below a path, with at most
// so many requests per second; 0 means no limit.
func NewCollector(client *framework.Client, path string, perSecond int) *Collector {
	return &Collector{Client: client, path: path, pace: ratelimit.New(perSecond), perSecond: perSecond}
}

// NewScopedCollector returns a collector of what is at and below the roots of a
// scope, and reads nothing else. It reads a list of more than a megabyte at
// most once in patience.
func NewScopedCollector(client *framework.Client, scope Scope, perSecond int, patience time.Duration) *Collector {
	c := NewCollector(client, "/", perSecond)
	c.scope, c.lists.patience = scope, patience
	return c
}

// Look is the result of a look.
type Look struct {
	inspect.Forest
	At      time.Time // when it was true: earlier than now without a connection
	Current bool      // the client was connected all the time

	counts map[string]childCount // of each directory
	stands map[string]stand      // of each line, by path, as its directory was listed
}

// Collect returns what is below the path, with details of the lines in the set,
// of at most so many contenders each.
func (c *Collector) Collect(ctx context.Context, detailed map[string]int) (Look, error) {
	life := c.life()
	c.lists.begin(life)
	c.nodes.begin(life)
	connected := c.Connected()
	forest, err := inspect.Tree(ctx, c, c.path, inspect.WithoutDetails())
	if err != nil {
		return Look{}, err
	}
	now := Look{Forest: forest, counts: c.lists.counts(), stands: map[string]stand{}}
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
			return Look{}, err
		}
	}
	c.lists.end()
	c.nodes.end()
	now.Lines = slices.DeleteFunc(lines, func(l inspect.Line) bool { return len(l.Holders)+len(l.Waiting) == 0 }) // all have left
	now.At, now.Current = time.Now(), connected && c.Connected()
	if !now.Current { // what it kept may have changed since
		now.At = c.Heard()
	}
	return now, nil
}

// life returns how long to keep what was read, on average, without an event: a
// session timeout, or longer where there is so much that reading it again would
// take more than a fifth of the requests per second. Without a connection it is
// kept: everything is read again after the next one.
func (c *Collector) life() time.Duration {
	sess, err := c.Client.Session()
	if err != nil || !c.Connected() {
		return math.MaxInt64
	}
	if c.perSecond == 0 {
		return sess.Timeout()
	}
	return max(sess.Timeout(), time.Duration(5*(c.lists.size()+c.nodes.size()))*time.Second/time.Duration(c.perSecond))
}

// Connected reports whether the client is connected.
func (c *Collector) Connected() bool { return c.Client.State() == framework.Connected }

// Heard returns when a server has answered last, as far as is known.
func (c *Collector) Heard() time.Time {
	sess, err := c.Client.Session()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && sess.LastAnswer().After(c.answered) {
		c.answered = sess.LastAnswer()
	}
	return c.answered
}

// Sent returns how many requests were made.
func (c *Collector) Sent() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// Children lists a znode, if it may have changed since it was listed.
func (c *Collector) Children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	if names, known := c.scope.children(path); known {
		return names, &zk.Stat{}, nil
	}
	if !c.scope.Has(path) {
		return nil, nil, zk.ErrNoNode
	}
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
func (c *Collector) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	if !c.scope.Has(path) {
		return nil, nil, zk.ErrNoNode
	}
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
func (c *Collector) next(ctx context.Context) (*framework.Session, error) {
	sess, err := c.Client.Session()
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
