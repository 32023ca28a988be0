package look

import (
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/random"
)

// cache keeps what was read, until it may have changed.
type cache struct {
	mu      sync.Mutex // guards what follows
	entries map[string]*entry
	used    map[string]bool // in this pass
	life    time.Duration   // of an entry, on average
	// patience is how long a large list is kept although it has changed.
	patience time.Duration
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
	large   bool
}

// forbiddenFor is how long a znode that may not be read is left alone.
const forbiddenFor = time.Minute

// largeList is how many bytes of names make a list large.
const largeList = 1 << 20

func isLarge(names []string) bool {
	size := 0
	for _, name := range names {
		size += len(name)
	}
	return size > largeList
}

// get returns what was read, and nil if it must be read again.
func (c *cache) get(path string) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[path]
	if e == nil {
		return nil
	}
	age, life := float64(time.Since(e.read)), e.factor*float64(c.life)
	if e.large {
		life = max(life, float64(c.patience))
	}
	if e.err != nil {
		life = float64(forbiddenFor)
	}
	if age > life {
		return nil
	}
	if closed.Is(e.changed) && (!e.large || time.Since(e.read) > c.patience) {
		return nil
	}
	c.used[path] = true
	return e
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
	e.large = isLarge(e.names)
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
