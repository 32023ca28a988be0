package cache

import (
	"cmp"
	"maps"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/version"
)

// armed is what has to be known of one-shot watches after a reconnect. Then
// setWatches names each, and the transaction as of which its znode was read. If
// that were earlier, something would be read in vain. If it were later, a watch
// that the server has used up without an event could be missed until the
// recheck. So what was read again after the others is named by requests of its
// own.
//
// An ensemble that was restored from a backup may have the session, and names
// nothing of what the restore has taken back. Its leader has another epoch. So
// after a connect with another epoch the witness is read: if it is as it was,
// all that was read has happened in this history.
//
// Servers before 3.6 may forget that a list has changed when a child has ended
// with its session. That does no harm: each child that is shown has a watch of
// its own, and is missing then.
type armed struct {
	in    int64 // the session in which all that is shown was watched; 0: none
	since int64 // the transaction
	later map[request.Read]int64
	// latest shows the latest transaction of which anything was seen.
	latest witness
}

// witness is a znode that shows that a transaction has happened: it was written
// then, or the list of its children has changed.
type witness struct {
	path string
	zxid int64
}

// or returns the later one of the witness and what a read of a znode shows.
func (w witness) or(path string, s *zk.Stat) witness {
	if z := written(s); z > w.zxid {
		return witness{path, z}
	}
	return w
}

// written returns the latest transaction that a stat shows. The servers' own
// znodes have one of each member.
func written(s *zk.Stat) int64 {
	switch {
	case s == nil:
		return 0
	case s.Czxid == 0:
		return s.Pzxid
	}
	return max(s.Mzxid, s.Pzxid)
}

// holds reports whether the transaction has happened in the history that a
// session sees now.
func (c *Cache) holds(w *watch, latest witness) (bool, error) {
	if latest.path == "" { // the servers' own znodes are of no transaction
		return false, nil
	}
	found, err := w.session.StatAll(c.life, request.Read{Path: latest.path})
	if err != nil {
		return false, err
	}
	return found[0].Err == nil && written(found[0].Stat) == latest.zxid, nil
}

// mostParts is about how many requests name what was read again. If it was read
// at more times than that, some are named by a later transaction.
const mostParts = 16

// after returns what is armed after a round.
func (a armed) after(r *round) armed {
	switch {
	case !r.w.oneShot:
		return armed{}
	case r.whole:
		return armed{in: r.w.id, since: r.answers[len(r.answers)-1].zxid, latest: r.latest}
	case a.later == nil, len(a.later) > mostMarks: // to name an earlier transaction does no harm
		a.later = make(map[request.Read]int64)
	}
	maps.Copy(a.later, r.done)
	a.latest = r.latest
	return a
}

// disarm has the one-shot watches removed at the server. Those of an unfinished
// round may be armed as well.
func (c *Cache) disarm() {
	r := c.round
	if r == nil || !r.w.oneShot {
		return
	}
	reads := append(r.next(), request.Read{Path: c.root})
	r.hidden.each(func(n *Node) bool { reads = append(reads, request.Read{Path: n.Path}); return true })
	r.flush()
	union(c.View().tree, r.tree).each(func(n *Node) bool {
		reads = append(reads, request.Read{Path: n.Path}, request.Read{Path: n.Path, Children: true})
		return true
	})
	r.w.session.UnwatchReads(reads...)
}

// rearm arms the one-shot watches of an earlier connection again. It reads what
// has changed since, what was marked, and what was being read.
func (c *Cache) rearm(w *watch) error {
	c.mu.Lock()
	marked := maps.Clone(c.marks.at)
	c.mu.Unlock()
	var first, later []request.Read
	name := func(read request.Read) {
		if _, ok := marked[read]; ok {
			return
		}
		if _, ok := c.armed.later[read]; ok {
			later = append(later, read)
		} else {
			first = append(first, read)
		}
	}
	for n := range c.View().All() {
		name(request.Read{Path: n.Path})
		if depth(c.root, n.Path) < c.cfg.depth {
			name(request.Read{Path: n.Path, Children: true})
		}
	}
	last := c.latest
	set := func(since int64, reads []request.Read) error {
		zxid, order, unset, err := w.session.SetWatches(c.life, since, reads...)
		if err != nil {
			return err
		}
		last = answer{order, zxid}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, read := range unset {
			c.marks.add(read, order, unsure)
		}
		if c.watch != w {
			return errNotWatching // events may be missing
		}
		return nil
	}
	if len(first) > 0 {
		if err := set(c.armed.since, first); err != nil {
			return err
		}
	}
	at := func(read request.Read) int64 { return c.armed.later[read] }
	slices.SortFunc(later, func(a, b request.Read) int { return cmp.Compare(at(a), at(b)) })
	for least := 1 + len(later)/mostParts; len(later) > 0; {
		n := min(least, len(later))
		for n < len(later) && at(later[n]) == at(later[n-1]) {
			n++
		}
		if err := set(at(later[n-1]), later[:n]); err != nil {
			return err
		}
		later = later[n:]
	}
	if version.Epoch(last.zxid) != version.Epoch(c.latest.zxid) {
		if same, err := c.holds(w, c.armed.latest); err != nil {
			return err
		} else if !same {
			return c.walk(w, ReadReconnect)
		}
	}
	c.armed, c.latest = armed{in: w.id, since: last.zxid, latest: c.armed.latest}, last
	return c.readMarks(w)
}
