package cache

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/missing"
	"github.com/zkrecipes/zkrecipes/internal/version"
)

// round reads znodes, and what it then finds that has to be read as well. It
// begins with the present view and ends with the next one, which is shown only
// if the watch has stood all the while. A round ends, however many events come
// in the meantime: their marks are for the next one.
type round struct {
	c *Cache
	w *watch
	// reason says why it reads. A walk begins at the root, and lists what has
	// children.
	reason ReadReason
	began  time.Time
	whole  bool // a walk

	ids     []version.Created // of a walk with a keeper: see keeper.identity
	another bool              // the view is from a snapshot of another root

	tree    *tree
	fresh   []*Node          // to be put into tree
	byPath  map[string]*Node // fresh
	got     int64            // bytes of the znodes that a walk has read
	over    string           // the path at which they were too many
	hidden  *tree
	deleted map[string]struct{} // they were, and may be there again

	todo    []request.Read
	asked   map[request.Read]struct{} // and not answered yet; nil if whole: a walk comes to each znode once
	at      int                       // how many reads a call has
	done    map[request.Read]int64    // what was read, and as of which transaction; nil if whole
	answers []answer
	latest  witness
}

// errTooMuch is the error of a round whose znodes take more than WithMaxBytes.
// What it has not read again may be gone. So another walk comes next, unless
// nothing has changed during a walk.
var errTooMuch = errors.New("see WithMaxBytes")

// errAnotherHistory is the error of a round that is no walk, and has found a
// znode as it was before the state that is shown: the ensemble was replaced,
// and nothing that was read before can be relied on.
var errAnotherHistory = errors.New("a znode has gone back to an earlier state")

// answer is a place in the order of events and answers, with the transaction
// that the server had applied.
type answer struct {
	order uint64
	zxid  int64
}

// How many reads a call of ReadAll has: it needs memory for all their data.
const (
	leastReads = 16
	firstReads = 256
	mostReads  = 8192
	muchData   = 4 << 20 // bytes
)

func (c *Cache) newRound(w *watch, reason ReadReason) *round {
	r := &round{c: c, w: w, reason: reason, began: time.Now(), whole: reason.Walk(), tree: c.view.tree, byPath: map[string]*Node{}, at: firstReads}
	if !r.whole {
		r.hidden, r.asked = c.view.hidden, map[request.Read]struct{}{}
		r.done = map[request.Read]int64{}
		r.answers, r.latest = []answer{c.latest}, c.armed.latest
	}
	c.round = r
	return r
}

func (r *round) ask(read request.Read) {
	if r.asked != nil {
		if _, ok := r.asked[read]; ok {
			return
		}
		r.asked[read] = struct{}{}
	}
	r.todo = append(r.todo, read)
}

func (r *round) run() error {
	for len(r.todo) > 0 {
		if closed.Is(r.w.over) {
			return errNotWatching
		}
		reads := r.next()
		results, err := r.read(reads)
		if err != nil {
			return err
		}
		r.todo = r.todo[len(reads):]
		if err := r.take(reads, results); err != nil {
			return err
		}
	}
	return nil
}

// largeData is the size beyond which data are not read again before their stat.
const largeData = 4 << 10

// read makes reads. A walk that comes to large data that are held asks for the
// stat first, and reads them only if they have changed. So it does not find
// that they may not be read any longer: a recheck does.
func (r *round) read(reads []request.Read) ([]request.Result, error) {
	var large []request.Read
	for _, read := range reads {
		if n := r.held(read.Path); r.whole && !r.w.oneShot && !read.Children && n != nil && len(n.Data) > largeData {
			large = append(large, read)
		}
	}
	if len(large) == 0 {
		return r.w.readAll(reads)
	}
	stats, err := r.w.session.StatAll(r.c.life, large...)
	if err != nil {
		return nil, err
	}
	known := make(map[request.Read]request.Result)
	for i, found := range stats {
		if found.Err == nil {
			n := r.held(large[i].Path)
			if n.Stat.version() != statOf(found.Stat).version() {
				continue
			}
			found.Data = n.Data
		}
		known[large[i]] = found
	}
	others, err := r.w.readAll(slices.DeleteFunc(slices.Clone(reads), func(read request.Read) bool {
		_, ok := known[read]
		return ok
	}))
	if err != nil {
		return nil, err
	}
	results := make([]request.Result, len(reads))
	for i, read := range reads {
		found, ok := known[read]
		if !ok {
			found, others = others[0], others[1:]
		}
		results[i] = found
	}
	return results, nil
}

// next returns what is to be read first.
func (r *round) next() []request.Read {
	n := min(len(r.todo), r.at)
	return r.todo[:n:n]
}

// take applies the answers in their order: one that says that a znode is gone
// says so of what was read below it before, and not after.
func (r *round) take(reads []request.Read, results []request.Result) error {
	places := make([]answer, len(results))
	order := make([]int, len(results))
	var bytes int
	for i := range results {
		places[i].zxid, places[i].order = results[i].Zxid, results[i].Order
		order[i] = i
		bytes += len(results[i].Data)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(places[a].order, places[b].order) })
	for _, i := range order {
		if last := len(r.answers) - 1; last < 0 || r.answers[last] != places[i] {
			r.answers = append(r.answers, places[i])
		}
		if r.done != nil {
			r.done[reads[i]] = places[i].zxid
		}
		r.latest = r.latest.or(reads[i].Path, results[i].Stat)
		if err := r.apply(reads[i], results[i], places[i].order); err != nil {
			return err
		}
	}
	r.flush()
	if r.over != "" || !r.whole && r.tree.memory() > r.c.cfg.maxBytes {
		at := cmp.Or(r.over, reads[len(reads)-1].Path)
		return fmt.Errorf("more than %d bytes at %s: %w", r.c.cfg.maxBytes, at, errTooMuch)
	}
	if bytes > muchData {
		r.at = max(r.at/4, leastReads)
	} else {
		r.at = min(2*r.at, mostReads)
	}
	return nil
}

func (r *round) apply(read request.Read, found request.Result, order uint64) error {
	changed := r.c.settle(read, order)
	delete(r.asked, read)
	switch path := read.Path; {
	case path == r.c.root && (errors.Is(found.Err, zk.ErrNoAuth) || missing.Chroot(found.Err)):
		return found.Err // nothing can be said
	case errors.Is(found.Err, zk.ErrNoNode):
		r.remove(path)
	case errors.Is(found.Err, zk.ErrNoAuth):
		r.remove(path)
		r.hidden = r.hidden.put(newNode(path, nil, Stat{}))
	case found.Err != nil:
		return found.Err
	case read.Children:
		return r.list(path, found.Children)
	default:
		if r.hidden.get(path) != nil {
			r.hidden = r.hidden.without(path)
		}
		return r.get(path, found, order, changed)
	}
	return nil
}

// get applies the answer to a get.
func (r *round) get(path string, found request.Result, order uint64, changed bool) error {
	if above := parent(path); path != r.c.root && r.held(above) == nil {
		// It was created, or is filtered out, or may not be read.
		r.c.mark(above, order)
		return nil
	}
	if r.c.cfg.noData {
		found.Data = nil
	}
	held, now := r.held(path), newNode(path, found.Data, statOf(found.Stat))
	another := held == nil || held.Stat.version().Created != now.Stat.version().Created
	switch {
	case !r.whole && held != nil && now.Stat.version().IsBefore(held.Stat.version()):
		return errAnotherHistory
	case held == nil:
		r.put(now)
	case another:
		r.remove(path)
		r.put(now)
	case !held.is(now):
		r.put(now)
	case changed && !r.whole && held.Stat == now.Stat && r.c.isWatching(r.w): // otherwise a restore may have taken it back
		r.c.client.DistrustTrees("an event of " + r.c.client.Resolve(path) + ", which has not changed")
	}
	if r.whole {
		r.count(r.held(path))
	}
	if depth(r.c.root, path) == r.c.cfg.depth {
		return nil
	}
	n := int(found.Stat.NumChildren)
	if n == 0 && !another {
		r.removeBelow(path)
	}
	if (n > 0 || r.w.oneShot) && (another || r.whole) {
		r.ask(request.Read{Path: path, Children: true})
	}
	return nil
}

// list applies the answer to a list.
func (r *round) list(path string, names []string) error {
	if r.held(path) == nil {
		return nil // it is gone since
	}
	r.flush()
	slices.Sort(names) // so are paths, and there is little to sort in a tree
	reads := make([]request.Read, len(names))
	for i, name := range names {
		reads[i].Path = layout.Join(path, name)
	}
	var gone []string
	r.tree.eachChild(path, func(n *Node) bool {
		if _, ok := slices.BinarySearch(names, strings.TrimPrefix(n.Path[len(path):], "/")); !ok {
			gone = append(gone, n.Path)
		}
		return true
	})
	for _, child := range gone {
		r.remove(child)
	}
	reads, err := r.c.passing(reads, r.tree)
	if err != nil {
		return err
	}
	if r.whole {
		r.todo = slices.Grow(r.todo, len(reads)) // all are asked for
	}
	for _, child := range reads {
		_, deleted := r.deleted[child.Path]
		if r.whole || deleted || r.held(child.Path) == nil {
			r.ask(child)
		}
	}
	return nil
}

func (r *round) held(path string) *Node {
	if n := r.byPath[path]; n != nil {
		return n
	}
	return r.tree.get(path)
}

func (r *round) put(n *Node) {
	r.fresh = append(r.fresh, n)
	r.byPath[n.Path] = n
}

// count adds up what a walk has read. What else it holds may be gone, and does
// not count: at the end of the walk nothing of that is left.
func (r *round) count(n *Node) {
	r.got += n.bytes()
	if r.over == "" && r.got > r.c.cfg.maxBytes {
		r.over = n.Path
	}
}

// flush puts what was read into the tree.
func (r *round) flush() {
	if len(r.fresh) == 0 {
		return
	}
	r.tree = r.tree.put(r.fresh...)
	r.fresh = r.fresh[:0]
	clear(r.byPath)
}

// remove removes a znode and all that is below it.
func (r *round) remove(path string) {
	r.hidden = r.hidden.without(path)
	if r.held(path) == nil {
		return // nothing below it is held, either
	}
	r.flush()
	r.tree = r.tree.without(path)
}

func (r *round) removeBelow(path string) {
	r.flush()
	if n := r.tree.get(path); r.tree.children(path) > 0 {
		r.tree = r.tree.without(path).put(n)
	}
}

// zxid returns the transaction up to which the round shows every change, if
// first is the place of the first event that it has not settled, or 0.
//
// The last answer of the round before counts, so that zxid rises under steady
// changes as well. This round has asked for all that was marked when it began,
// and no event from before that answer came later. So whatever is not settled
// now came after it. A walk does not count it: it may be of another session,
// in which the order has begun anew. It does not need it: all of its reads come
// after its first answer, and after the events before that.
func (r *round) zxid(first uint64) (zxid int64) {
	for i, a := range r.answers {
		if first == 0 || a.order < first || r.whole && i == 0 {
			zxid = max(zxid, a.zxid)
		}
	}
	return zxid
}
