package cache

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/retry"
)

// Pauses after an error.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 10 * time.Second
)

// mostBeyond is how many walks in a row go beyond WithMaxBytes until a cache
// has failed, although znodes were moved during each: they are counted twice.
const mostBeyond = 3

var errNotWatching = errors.New("the connection was lost")

// errHasTrees ends the use of one-shot watches.
var errHasTrees = errors.New("the server has said now that it has recursive watches")

// watch is what tells of events in the tree, in one connection of a session: a
// recursive watch, or two one-shot watches for each znode, which its reads arm.
type watch struct {
	c       *Cache
	session *managed.Session
	id      int64 // of the session
	oneShot bool
	said    <-chan struct{} // closed: the server has said whether it has recursive watches; nil: that does not matter
	over    chan struct{}   // closed: it tells of nothing any more
}

// run keeps the view true until the cache ends, in one connection after the
// other.
func (c *Cache) run() {
	defer close(c.done)
	defer c.disarm()
	defer c.unchecked()
	c.keeper.awaitRead()
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
			return
		}
		if errors.Is(err, errHasTrees) || errors.Is(err, errTooMuch) {
			c.disarm()
		}
		if c.rounds() > before {
			pauses.Reset()
			continue
		}
		if d := pauses.NextBackOff(); errors.Is(err, zk.ErrNoServer) {
			c.awaitConnected(d)
		} else {
			c.pause(d)
		}
	}
}

func (c *Cache) rounds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

func (c *Cache) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.life.Done():
	case <-c.client.Done():
	}
}

// awaitConnected is a pause that ends with the next connection.
func (c *Cache) awaitConnected(d time.Duration) {
	ctx, cancel := context.WithTimeout(c.life, d)
	defer cancel()
	if c.client.WaitConnected(ctx) != nil {
		select {
		case <-ctx.Done():
		case <-c.client.Done():
		}
	}
}

// follow watches the tree, reads it, and reads what events name, for as long as
// a connection lasts. It always returns an error.
func (c *Cache) follow() error {
	s, err := c.client.AwaitSession(c.life)
	if err != nil {
		return err
	}
	reason := ReadFirst
	if c.View().zxid > 0 {
		reason = ReadReconnect
	}
	if c.beyond > 0 {
		reason = ReadSize
	}
	if reason != ReadFirst && !errors.Is(c.Status().Err, errHasTrees) {
		// Many clients may have lost the same server, and all of them read again.
		c.pause(random.N(s.Timeout() / 3))
	}
	w := &watch{c: c, session: s, id: s.ID(), over: make(chan struct{})}
	c.begin(w)
	defer c.forget(w)
	stop, err := w.arm()
	if err != nil {
		return err
	}
	defer stop()
	if w.oneShot && c.armed.in == w.id && c.View().Len() > 0 {
		err = c.rearm(w)
	} else {
		err = c.walk(w, reason)
	}
	if err != nil {
		return err
	}
	c.checked(s.Timeout())
	for {
		select {
		case <-w.over:
			return errNotWatching
		case <-c.life.Done():
			return c.life.Err()
		case <-w.said:
			w.said = nil
			if has, _ := s.HasTrees(); has {
				return errHasTrees
			}
		case <-c.work:
		}
		if err := c.readMarks(w); err != nil {
			return err
		}
	}
}

// arm makes w hear of events.
func (w *watch) arm() (stop func(), err error) {
	for has := !w.c.cfg.oneShot; has; has, w.said = w.session.HasTrees() {
		_, stop, err = w.session.WatchTree(w.c.life, w.c.root, w.on)
		if err == nil || !managed.TreesRefused(err) {
			return stop, err
		}
	}
	w.oneShot = true
	return w.session.Events(w.c.root, w.on, w.relies)
}

// relies reports whether the one-shot watches on a znode are needed. What is
// read later arms them again.
func (w *watch) relies(path string) bool {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watch == w && (c.reading || path == c.root || c.view.tree.get(path) != nil || c.view.hidden.get(path) != nil)
}

func (w *watch) readAll(reads []request.Read) ([]request.Result, error) {
	if w.oneShot {
		return w.session.ReadAllAndWatch(w.c.life, w.c.root, reads...)
	}
	return w.session.ReadAll(w.c.life, reads...)
}

func (c *Cache) begin(w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch = w
}

// isWatching reports whether the connection of a watch has not ended.
func (c *Cache) isWatching(w *watch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watch == w
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
	if c.watch != w {
		return
	}
	if what == zk.EventNotWatching {
		c.watch = nil
		close(w.over)
		c.staleLocked(errNotWatching)
		return
	}
	if path != c.root && !isBelow(c.root, path) {
		return
	}
	kind, levels, children := unsure, depth(c.root, path), what == zk.EventNodeChildrenChanged
	switch {
	case children && w.oneShot:
		levels++
	case children:
		children = false
	case what == zk.EventNodeDeleted && w.oneShot && path != c.root:
		kind = wasDeleted // a read would arm a watch for a znode that may never come again
	case path == c.root && !w.oneShot:
		// Keeper (ClickHouse) sends the path of the watch, and not of the znode.
		// Other events may come late, of watches that were set again.
		kind = sureChanged
	}
	c.moving = true
	if levels <= c.cfg.depth {
		c.marks.add(request.Read{Path: path, Children: children}, order, kind)
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
	c.marks.add(request.Read{Path: path}, order, unsure)
}

func (c *Cache) settle(read request.Read, order uint64) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read++
	return c.marks.settle(read, order)
}

// walk reads everything.
func (c *Cache) walk(w *watch, reason ReadReason) error {
	var ids []version.Created
	if c.keeper != nil {
		var err error
		if ids, err = c.keeper.identity(w); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.begun++
	c.reading, c.look, c.missed, c.moving = true, false, false, false
	c.marks, c.read = marks{}, 0
	c.mu.Unlock()
	c.armed = armed{}
	r := c.newRound(w, reason)
	if r.ids = ids; c.keeper != nil && c.keeper.isAnother(ids) {
		r.another, r.tree = true, nil
	}
	r.ask(request.Read{Path: c.root})
	err := c.finish(r)
	switch {
	case err == nil:
		c.beyond = 0
	case errors.Is(err, errTooMuch):
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.beyond++; !c.moving || c.beyond == mostBeyond {
			return &failure{err}
		}
	}
	return err
}

// readMarks reads what is marked.
func (c *Cache) readMarks(w *watch) error {
	var reads []request.Read
	deleted := map[string]struct{}{}
	c.mu.Lock()
	if c.marks.forgotten > 0 {
		c.mu.Unlock()
		return c.walk(w, ReadOverflow)
	}
	before, missed := maps.Clone(c.marks.at), c.missed
	c.missed = false
	for read, k := range before {
		if k.kind == wasDeleted {
			deleted[read.Path] = struct{}{}
			delete(c.marks.at, read)
			read = request.Read{Path: parent(read.Path), Children: true}
		}
		reads = append(reads, read)
	}
	reason := ReadEvents
	switch {
	case missed:
		reason = ReadRecheck
	case len(reads) == 0 && c.look:
		reason = ReadReach
	}
	if c.look {
		reads = append(reads, request.Read{Path: c.root})
	}
	if len(reads) == 0 && c.status.State == Synced {
		c.mu.Unlock()
		return nil
	}
	c.begun++
	c.reading, c.look, c.read = true, false, 0
	c.mu.Unlock()
	r := c.newRound(w, reason)
	r.deleted = deleted
	slices.SortFunc(reads, compareReads)
	pass, err := c.passing(reads, r.tree)
	if err != nil {
		return err
	}
	if len(pass) < len(reads) {
		c.unmark(reads, pass)
	}
	for _, read := range pass {
		r.ask(read)
	}
	err = c.finish(r)
	switch {
	case errors.Is(err, errTooMuch):
		return c.walk(w, ReadSize)
	case errors.Is(err, errAnotherHistory):
		return c.walk(w, ReadReconnect)
	case err != nil: // the next connection may go on
		c.mu.Lock()
		defer c.mu.Unlock()
		c.marks.restore(before)
	}
	return err
}

// compareReads is the order of the reads of a round: first what is above, and a
// znode before its list, since that is read anyway if the znode is another one.
func compareReads(a, b request.Read) int {
	switch c := compare(a.Path, b.Path); {
	case c != 0 || a.Children == b.Children:
		return c
	case b.Children:
		return -1
	}
	return 1
}

// unmark drops the marks of what is filtered out.
func (c *Cache) unmark(reads, pass []request.Read) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, read := range reads {
		if len(pass) > 0 && pass[0] == read {
			pass = pass[1:]
		} else {
			delete(c.marks.at, read)
		}
	}
}

// finish runs a round and shows what it has found.
func (c *Cache) finish(r *round) error {
	err := r.run()
	read := c.describe(r, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		err = c.showLocked(r)
	}
	c.observeReadLocked(r, read, err)
	if err == nil && c.view.zxid > 0 {
		c.enterLocked(Synced, nil)
	}
	return err
}

func (c *Cache) showLocked(r *round) error {
	c.reading = false
	if c.watch != r.w {
		return errNotWatching // events may be missing
	}
	if c.keeper != nil {
		c.keeper.replaceLocked(r)
	}
	c.ended, c.latest = c.begun, r.answers[len(r.answers)-1]
	zxid := r.zxid(c.marks.first())
	if c.shownIn == r.w.id { // in another session it may fall: the history may be another one
		zxid = max(zxid, c.view.zxid)
	}
	c.view, c.shownIn = View{tree: r.tree, hidden: r.hidden, zxid: zxid, known: c.view.known || zxid > 0}, r.w.id
	c.armed = c.armed.after(r)
	if !c.marks.empty() {
		c.wake()
	}
	return nil
}
