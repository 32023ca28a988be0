package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/pace"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
)

// collector reads the lines below a path again and again. It keeps what it has
// read, under a watch, and requests only what has changed since. So a pass in
// which nothing has changed costs no request. It is an inspect.Reader.
type collector struct {
	client *framework.Client
	path   string
	pace   *pace.Pace

	lists, nodes cache

	mu       sync.Mutex // guards requests
	requests int
}

func newCollector(client *framework.Client, path string, perSecond int) *collector {
	return &collector{client: client, path: path, pace: pace.New(perSecond)}
}

// collect returns what is below the path, with details of the lines in the set,
// of at most so many contenders each.
func (c *collector) collect(ctx context.Context, detailed map[string]int) (inspect.Forest, error) {
	c.lists.begin()
	c.nodes.begin()
	forest, err := inspect.Tree(ctx, c, c.path, inspect.WithoutDetails())
	if err != nil {
		return inspect.Forest{}, err
	}
	lines := forest.Lines
	for i := range lines {
		most, ok := detailed[lines[i].Path]
		if !ok {
			continue
		}
		if err := inspect.Fill(ctx, c, &lines[i], most); err != nil {
			return inspect.Forest{}, err
		}
	}
	c.lists.end()
	c.nodes.end()
	return forest, nil
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
		e = &entry{}
		e.names, e.changed, e.err = sess.WatchChildren(ctx, path)
		c.lists.put(path, e)
	}
	return e.names, &zk.Stat{}, e.err
}

// Get reads a znode, if it may have changed since it was read.
func (c *collector) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	e := c.nodes.get(path)
	if e == nil {
		sess, err := c.next(ctx)
		if err != nil {
			return nil, nil, err
		}
		e = &entry{}
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
}

// entry is a znode that was read.
type entry struct {
	names   []string
	data    []byte
	stat    *zk.Stat
	err     error
	changed <-chan struct{}
	expires time.Time // if it has no watch
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
	if e.changed == nil {
		if time.Now().After(e.expires) {
			return nil
		}
		c.used[path] = true
		return e
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
	if e.err != nil {
		e.expires = time.Now().Add(forbiddenFor)
	}
	c.entries[path] = e
	c.used[path] = true
}

// begin begins a pass, and end forgets what was not used in it.
func (c *cache) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[string]*entry{}
	}
	c.used = map[string]bool{}
}

func (c *cache) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for path := range c.entries {
		if !c.used[path] {
			delete(c.entries, path)
		}
	}
}
