package cache

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/random"
)

// This file finds what no event has told: a server has lost the event, or a
// right to read was granted or withdrawn. One goroutine for all caches of a
// client, in all its views, reads again what they show. What differs is marked,
// as an event would have done.

const (
	// recheckBytes is how many bytes of answers all caches of a client together
	// read again in a session timeout, on average. They fit into one request.
	recheckBytes = 16 << 10
	// recheckPass is how long a pass through a tree takes at most, whatever that
	// costs.
	recheckPass = time.Hour
	// recheckAtOnce is how many znodes a call reads again: three times as many
	// small ones as are due in a session timeout, since many caches can be due
	// in the same one.
	recheckAtOnce = 512

	answerBytes = 96 // of an answer, without its data
	nameBytes   = 32 // of a name in a list
)

// checker rechecks the caches of a client.
type checker struct {
	turn   chan struct{} // holds a token while it reads
	joined chan struct{} // holds a token: another cache may be due earlier

	mu      sync.Mutex // guards what follows
	passes  []*pass
	timeout time.Duration      // of the latest session
	cancel  context.CancelFunc // ends what is being read
	stop    context.CancelFunc // ends run
}

// pass is how far the recheck of a cache has come. It belongs to the cache, and
// not to a connection. Only run uses it.
type pass struct {
	c      *Cache
	begun  bool
	cursor string  // the path that was read last; empty: a pass begins
	least  float64 // bytes that a read counts at least
	size   float64 // bytes of the pass; 0: not known yet
	left   float64 // bytes of it that were not read yet
	lists  float64 // bytes of the lists that it has caused
	share  float64 // bytes that become due in a session timeout
	due    float64 // bytes
}

// checked makes the recheck of c begin, unless it has begun, or is off.
func (c *Cache) checked(timeout time.Duration) {
	if c.cfg.recheck > 0 {
		managed.Attached[checker](c.client, func() any {
			return &checker{turn: make(chan struct{}, 1), joined: make(chan struct{}, 1), cancel: func() {}}
		}).join(c, timeout)
	}
}

func (k *checker) join(c *Cache, timeout time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.checker == k {
		return
	}
	c.checker = k
	k.passes, k.timeout = append(k.passes, &pass{c: c}), timeout
	if len(k.passes) == 1 {
		var ctx context.Context
		ctx, k.stop = context.WithCancel(context.Background())
		go k.run(ctx)
	}
	select {
	case k.joined <- struct{}{}:
	default:
	}
}

// unchecked ends the recheck of c. Nothing is being read for it when it
// returns.
func (c *Cache) unchecked() {
	k := c.checker
	if k == nil {
		return
	}
	k.mu.Lock()
	k.passes = slices.DeleteFunc(k.passes, func(p *pass) bool { return p.c == c })
	if len(k.passes) == 0 {
		k.stop()
	}
	k.cancel()
	k.mu.Unlock()
	k.turn <- struct{}{}
	<-k.turn
}

func (k *checker) run(ctx context.Context) {
	last := time.Now().Add(-random.N(k.step())) // clients that start together do not read together
	for {
		step := k.step()
		select {
		case <-ctx.Done():
			return
		case <-k.joined:
		case <-time.After(time.Until(last.Add(step))):
			last = time.Now()
			k.check(ctx, step)
		}
	}
}

// step returns the time between two looks at what is due.
func (k *checker) step() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	step := k.timeout
	for _, p := range k.passes {
		step = min(step, p.c.cfg.recheck)
	}
	return max(step, time.Millisecond)
}

// part is what is read again now of a cache that is synced.
type part struct {
	*pass
	w     *watch
	after pass // when it is read
}

type partRead struct {
	of   *part
	path string
}

// check reads again what has become due in a step.
func (k *checker) check(ctx context.Context, step time.Duration) {
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, parts := k.begin(cancel)
	if s == nil {
		return
	}
	least := float64(answerBytes)
	if !hasMultiRead(ctx, s, step) {
		least = recheckBytes // a read is a request
	}
	for _, p := range parts {
		p.measure(least)
	}
	share(parts, s.Timeout())
	var reads []partRead
	for _, p := range parts {
		p.due = min(p.due+p.share*float64(step)/float64(s.Timeout()), p.size)
		p.after = *p.pass
		for _, path := range p.after.take() {
			reads = append(reads, partRead{p, path})
		}
	}
	for some := range slices.Chunk(reads, recheckAtOnce) {
		if err := compareAll(ctx, s, some); err != nil {
			return // the same is due at the next step
		}
	}
	for _, p := range parts {
		*p.pass = p.after
	}
}

// hasMultiRead reports whether the server is known to have multiRead, as those
// with recursive watches have. It waits for the server to say so.
func hasMultiRead(ctx context.Context, s *managed.Session, patience time.Duration) bool {
	has, said := s.HasTrees()
	if said == nil {
		return has
	}
	select {
	case <-said:
		has, _ = s.HasTrees()
	case <-time.After(patience):
	case <-ctx.Done():
	}
	return has
}

// begin returns the session of the caches that are synced, and a part for each
// of them.
func (k *checker) begin(cancel context.CancelFunc) (s *managed.Session, parts []*part) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cancel = cancel
	for _, p := range k.passes {
		w := p.c.synced()
		if w == nil {
			continue
		}
		if s == nil {
			s, k.timeout = w.session, w.session.Timeout()
		}
		if w.id == s.ID() {
			parts = append(parts, &part{pass: p, w: w})
		}
	}
	return s, parts
}

// cost returns how many bytes a read counts.
func (p *pass) cost(n *Node) float64 { return max(answerBytes+float64(n.Stat.DataLength), p.least) }

// measure begins a pass, unless one is under way. The first passes of caches
// that share begin at random times.
func (p *pass) measure(least float64) {
	if p.size > 0 && p.least == least {
		return
	}
	p.size, p.least = 0, least
	view := p.c.View()
	sum := func(n *Node) bool { p.size += p.cost(n); return true }
	view.tree.each(sum)
	view.hidden.each(sum)
	p.size, p.lists = max(p.size, p.cost(&Node{}))+p.lists, 0
	p.left = p.size
	if !p.begun && p.c.cfg.shares {
		p.begun, p.due = true, float64(random.N(int64(min(p.size, recheckBytes))))
	}
}

// share sets how much of each cache becomes due in a session timeout. All have
// equal parts of recheckBytes. What a small tree leaves of its part is for the
// larger ones. A cache with WithRecheck has no part in this.
func share(parts []*part, timeout time.Duration) {
	var equal []*part
	for _, p := range parts {
		p.share = p.size * float64(timeout) / float64(p.c.cfg.recheck)
		if p.c.cfg.shares {
			equal = append(equal, p)
		}
	}
	slices.SortStableFunc(equal, func(a, b *part) int { return cmp.Compare(a.size, b.size) })
	left := float64(recheckBytes)
	for i, p := range equal {
		most := min(p.size, left/float64(len(equal)-i))
		left -= most
		p.share = max(p.share, most)
	}
}

// take returns what is due: the rest of the pass, or at least a part that is
// worth a request, which other caches may share.
func (p *pass) take() (paths []string) {
	worth := 1.5 * recheckBytes // about 256 small znodes
	if p.c.cfg.shares {
		worth = recheckBytes / 2
	}
	if p.due+1 < min(p.left, worth) { // 1: what is added up is not exact
		return nil
	}
	view := p.c.View()
	add := func(n *Node) bool {
		paths = append(paths, n.Path)
		p.due -= p.cost(n)
		p.left -= p.cost(n)
		return true
	}
	behind := func(path string) int { return compare(path, p.cursor) }
	next := func() *Node {
		n, h := view.tree.behind(behind), view.hidden.behind(behind)
		if n == nil || h != nil && compare(h.Path, n.Path) < 0 {
			return h
		}
		return n
	}
	n := next()
	for more := true; n != nil && more; n, more = next(), p.due > 0 {
		add(n)
		p.cursor = n.Path
	}
	if n == nil {
		p.cursor, p.size = "", 0
	}
	if len(paths) == 0 { // nothing is there
		add(&Node{Path: p.c.root})
	}
	return paths
}

// compareAll reads what is due, and marks what differs.
func compareAll(ctx context.Context, s *managed.Session, due []partRead) error {
	reads := make([]request.Read, len(due))
	for i, d := range due {
		reads[i].Path = d.of.c.client.Resolve(d.path)
	}
	results, err := s.Whole().AtOnce().ReadAll(ctx, reads...)
	for i, found := range results {
		p := due[i].of
		if lists := p.c.compare(p.w, due[i].path, found); p.c.cfg.shares {
			p.after.lists += lists
			p.after.due -= lists
		}
	}
	return err
}

// compare marks a znode if it is not as it is shown, as an event would have
// done, or the list of its children if that has another number. It returns
// what such a list costs.
func (c *Cache) compare(w *watch, path string, found request.Result) (cost float64) {
	view := c.View()
	held, read := view.tree.get(path), request.Read{Path: path}
	if c.cfg.noData {
		found.Data = nil
	}
	switch {
	case errors.Is(found.Err, zk.ErrNoNode):
		if held == nil && view.hidden.get(path) == nil {
			return 0
		}
	case errors.Is(found.Err, zk.ErrNoAuth):
		if held == nil && path != c.root {
			return 0
		}
	case found.Err != nil:
		return 0
	case held == nil || !held.is(newNode(path, found.Data, statOf(found.Stat))):
	case depth(c.root, path) < c.cfg.depth && int(found.Stat.NumChildren) != view.tree.children(path)+view.hidden.children(path):
		read.Children = true
		cost = recheckBytes + float64(nameBytes*found.Stat.NumChildren)
	default:
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watch == w {
		c.missed = true
		c.marks.add(read, found.Order, unsure)
		c.wake()
	}
	return cost
}

// synced returns the watch of a cache that is synced, or nil.
func (c *Cache) synced() *watch {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status.State != Synced {
		return nil
	}
	return c.watch
}
