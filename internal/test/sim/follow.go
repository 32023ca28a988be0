package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Follow has the options of a cache.
type Follow struct {
	On      bool
	Depth   int // levels below the root; below 0: all
	OneShot bool
	NoData  bool
	Recheck time.Duration // or ByBudget
	Kept    bool          // it is closed once, and another one starts with its snapshot
}

// Change is one change of a tree that caches follow.
type Change struct {
	Pause time.Duration // before it
	What  What
	Path  string // below the root; "" for the root
}

// What can change: a znode is created, for as long as the session lives or
// longer, its data are set, it is deleted, or it is deleted and created again
// in one transaction.
const (
	Put   What = "put"
	Mark  What = "mark"
	Write What = "write"
	Erase What = "erase"
	Anew  What = "anew"
)

// changes changes the tree.
func (k *worker) changes(s Step) bool {
	for i, c := range s.Changes {
		if i == len(s.Changes)/2 {
			k.copies()
		}
		time.Sleep(c.Pause)
		path, data := k.plan.view(k.who.client).Path(k.paths[0]+c.Path), fmt.Appendf(nil, "%v %d", k.who, i)
		ctx, cancel := context.WithTimeout(context.Background(), patienceOfAWriter)
		ctx, over := k.callable(ctx, k.who)
		k.says("changes")
		err := error(nil)
		switch c.What {
		case Put:
			_, err = k.client.Create(ctx, path, data, zk.FlagPersistent)
		case Mark:
			_, err = k.client.Create(ctx, path, data, zk.FlagEphemeral)
		case Write:
			_, err = k.client.Set(ctx, path, data, -1)
		case Erase:
			err = k.client.Delete(ctx, path, -1)
		case Anew:
			_, err = k.client.Multi(ctx, &zk.DeleteRequest{Path: path, Version: -1}, &zk.CreateRequest{Path: path, Data: data, Acl: zk.WorldACL(zk.PermAll)})
		}
		struck := over()
		cancel()
		k.ledger.log("%v: %s %s: %v", k.who, c.What, path, err)
		switch {
		case errors.Is(err, framework.ErrClosed):
			k.clientClosed(err)
			return false
		case err == nil, errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNotEmpty), errors.Is(err, zk.ErrNoChildrenForEphemerals):
		case struck, !k.plan.Scenario.quiet(), k.plan.outlasted(k.who.client, err):
		default:
			k.ledger.fault("%v: %s %s: %v", k.who, c.What, path, err)
		}
	}
	return true
}

// follower is a cache and what it has shown.
type follower struct {
	*worker
	Follow
	root  string // the ensemble's path
	cache *cache.Cache
	stop  func() // the listener

	mu   sync.Mutex            // guards what follows
	sum  map[string]cache.Node // of all batches
	zxid int64                 // of the last one
	at   map[string]int        // which of its states a path was last shown in
}

// opens starts a cache.
func (k *worker) opens(s Step) *follower {
	root := k.paths[0]
	var opts []cache.Option
	if s.Follow.Kept {
		opts = append(opts, cache.WithSnapshot(filepath.Join(k.dir, k.who.String())))
	}
	if s.Follow.Recheck != ByBudget {
		opts = append(opts, cache.WithRecheck(s.Follow.Recheck))
	}
	if s.Follow.Depth >= 0 {
		opts = append(opts, cache.WithDepth(s.Follow.Depth))
	}
	if s.Follow.OneShot {
		opts = append(opts, cache.WithOneShotWatches())
	}
	if s.Follow.NoData {
		opts = append(opts, cache.WithoutData())
	}
	c := must(cache.New(k.client, k.plan.view(k.who.client).Path(root), opts...))
	f := &follower{worker: k, Follow: s.Follow, root: root, cache: c, sum: map[string]cache.Node{}, at: map[string]int{}}
	f.stop = c.Listen(f.take)
	k.says("follows")
	c.Start()
	k.mu.Lock()
	k.followers = append(k.followers, f)
	k.mu.Unlock()
	return f
}

// follows keeps a cache for a while, and asks it for what must be true.
func (k *worker) follows(s Step) bool {
	f := k.opens(s)
	pieces, at := s.Writes+1, map[string]int{}
	for i := range pieces {
		time.Sleep(s.Work / time.Duration(pieces))
		if s.Follow.Kept && i == pieces/2 {
			f.close()
			last := f.cache.View()
			f, at = k.opens(s), map[string]int{}
			f.starts(last)
		}
		if !f.asks(s, at, i%3 == 2) {
			return false
		}
	}
	if s.Stay {
		k.stays(f)
		return true
	}
	k.says("stops")
	f.close()
	return true
}

// starts checks what a cache shows that has just started, after one that has
// shown the view last.
func (f *follower) starts(last cache.View) {
	s := f.cache.Status()
	v := f.cache.View()
	switch {
	case !last.Known(), v.Zxid() > 0, s.State == cache.Closed: // it had nothing to keep, has read since, or reads no more
	case !v.Known() && f.replaced():
	case s.State != cache.Stale || !errors.Is(s.Err, cache.ErrSnapshot) || s.Zxid > 0 || !maps.EqualFunc(nodes(v), nodes(last), func(a, b cache.Node) bool { return a.Stat == b.Stat && bytes.Equal(a.Data, b.Data) }):
		f.ledger.fault("%v: starts with %+v and %v, after %v", f.who, s, nodes(v), nodes(last))
	}
}

func nodes(v cache.View) map[string]cache.Node {
	all := map[string]cache.Node{}
	for n := range v.All() {
		all[n.Path] = n
	}
	return all
}

// asks asks for a view that shows what is committed now: by Fresh, or by Reach.
func (f *follower) asks(s Step, at map[string]int, reach bool) bool {
	patience := patience
	if reach {
		patience /= 2 // there may be no such transaction any more: see below
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if s.Cancel > 0 {
		defer time.AfterFunc(s.Cancel, cancel).Stop()
	}
	asking, over := f.callable(ctx, f.who)
	now, view, err := f.truth.now(), cache.View{}, error(nil)
	zxid, inThisHistory := f.truth.zxid(now), f.inThisHistory(f.who.client)
	c := f.ledger.call(f.who, "asks for %x", now)
	f.says("asks")
	if reach {
		view, err = f.cache.Reach(asking, zxid)
	} else {
		view, err = f.cache.Fresh(asking)
	}
	struck := over()
	f.says("gets")
	f.ledger.log("%v: after %v has %x, %d znodes: %v", f.who, time.Since(c.at), view.Zxid(), view.Len(), err)
	switch {
	case errors.Is(err, framework.ErrClosed):
		f.clientClosed(err)
		return false
	case errors.Is(err, context.Canceled) && (struck || s.Cancel > 0):
	case err != nil && f.expected(err):
	case reach && f.replaced() && errors.Is(err, context.DeadlineExceeded): // there is no such transaction any more
	case err != nil:
		f.ledger.fault("%v: asks for %x: %v", f.who, now, err)
	default:
		if view.Zxid() == 0 || reach && view.Zxid() < zxid {
			f.ledger.fault("%v: it was asked for %x, and has returned %x", f.who, zxid, view.Zxid())
		}
		if f.mayLag() || reach && (zxid == 0 || !inThisHistory) {
			now = 0
		}
		f.judge(view, at, now)
	}
	return true
}

// mayLag reports whether a sync may be answered by a leader that has lost its
// quorum and does not know it.
func (w *world) mayLag() bool {
	return w.hasStruck(Isolate, Pause) && w.plan.Proof == framework.ProofWrite
}

// mayNotRead reports whether a session may have read less than there is.
func (w *world) mayNotRead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.hit, func(f Fault) bool {
		return f.What == DenyRead || f.What == Refuse && f.Code == testutil.CodeNoAuth
	})
}

func (w *world) hasStruck(any ...What) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.hit {
		for _, what := range any {
			if f.What == what {
				return true
			}
		}
	}
	return false
}

// wants reports whether the cache shows a path of the ensemble.
func (f *follower) wants(path string) bool {
	return f.Depth < 0 || strings.Count(path[len(f.root):], "/") <= f.Depth
}

// is reports whether the cache shows a path in a state.
func (f *follower) is(n cache.Node, shown bool, z znode) bool {
	if !shown || !z.exists {
		return shown == z.exists
	}
	return n.Stat.Mzxid == z.mzxid && n.Stat.Czxid == z.czxid && n.Stat.EphemeralOwner == z.owner && (f.NoData && n.Data == nil || string(n.Data) == z.data)
}

// judge checks that a view shows each path in a state that it had at the view's
// Zxid, at least, or later, and not before the state in which it was shown
// before. That holds while the session can read everything, and no event is
// lost.
func (f *follower) judge(v cache.View, at map[string]int, least int64) {
	if v.Zxid() == 0 || f.mayNotRead() {
		return
	}
	if !f.rebuilt() { // otherwise it may be of either history
		least = max(least, v.Zxid())
	}
	if f.hasStruck(LoseEvents) {
		least = 0
	}
	view, left := f.plan.view(f.who.client), v.Len()
	all := f.truth.below(f.root, f.wants)
	for _, path := range paths(all) {
		states := append([]znode{{}}, all[path]...)
		n, shown := v.Get(view.Path(path))
		if shown {
			left--
		}
		i := at[path]
		for i < len(states) && (i+1 < len(states) && states[i+1].zxid <= least || !f.is(n, shown, states[i])) {
			i++
		}
		if i == len(states) {
			f.ledger.fault("%v: the view at %x, of what was committed at %x, shows %s as %v %q %+v, after its state %d of %+v",
				f.who, v.Zxid(), least, path, shown, n.Data, n.Stat, at[path], states)
			continue
		}
		at[path] = i
	}
	if left > 0 {
		f.ledger.fault("%v: the view at %x shows %d znodes that never were", f.who, v.Zxid(), left)
	}
}

// take checks a batch: its changes make its view of the one before.
func (f *follower) take(b cache.Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ledger.log("%v: %v at %x, %d changes, %d znodes: %v", f.who, b.Status.State, b.View.Zxid(), len(b.Changes), b.View.Len(), b.Status.Err)
	for _, c := range b.Changes {
		held, ok := f.sum[c.Path()]
		if ok != (c.Old != nil) || ok && held.Stat != c.Old.Stat || c.Kind == cache.Changed && (c.New.Stat.Czxid != held.Stat.Czxid || c.New.Stat.Mzxid <= held.Stat.Mzxid && !f.replaced()) {
			f.ledger.fault("%v: %v %s of %+v, where %v, %+v was shown", f.who, c.Kind, c.Path(), c.Old, ok, held)
		}
		if c.New == nil {
			delete(f.sum, c.Path())
		} else {
			f.sum[c.Path()] = *c.New
		}
	}
	n := 0
	for node := range b.View.All() {
		if n++; f.sum[node.Path].Stat != node.Stat {
			f.ledger.fault("%v: the batches say that %s is %+v, and the view %+v", f.who, node.Path, f.sum[node.Path].Stat, node.Stat)
		}
	}
	if n != len(f.sum) || b.View.Zxid() < f.zxid && !f.rebuilt() {
		f.ledger.fault("%v: the view has %d znodes at %x, and the batches %d at %x", f.who, n, b.View.Zxid(), len(f.sum), f.zxid)
	}
	f.zxid = b.View.Zxid()
	f.judge(b.View, f.at, 0)
	f.count(1)
}

func (w *world) count(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shown += n
}

// untrue returns what the cache does not show as it is now, although all is
// quiet; empty if nothing.
func (f *follower) untrue() string {
	view, v, status := f.plan.view(f.who.client), f.cache.View(), f.cache.Status()
	if status.State != cache.Synced {
		return fmt.Sprintf("%v: the cache is %v: %v", f.who, status.State, status.Err)
	}
	f.mu.Lock()
	sum := len(f.sum)
	f.mu.Unlock()
	all, exist := f.truth.below(f.root, f.wants), 0
	for _, path := range paths(all) {
		last := all[path][len(all[path])-1]
		if last.exists {
			exist++
		}
		if n, shown := v.Get(view.Path(path)); !f.is(n, shown, last) {
			return fmt.Sprintf("%v: at %x the cache shows %s as %v %q %+v, and it is %+v", f.who, v.Zxid(), path, shown, n.Data, n.Stat, last)
		}
	}
	if v.Len() != exist || sum != exist {
		return fmt.Sprintf("%v: there are %d znodes, the cache shows %d, and the sum of its batches is %d", f.who, exist, v.Len(), sum)
	}
	return ""
}

// stale checks that no cache says that it is synced while its client has no
// connection.
func (w *world) stale(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(w.plan.Timeout/8 + 1):
		}
		w.mu.Lock()
		all := w.followers
		w.mu.Unlock()
		var doubtful []*follower
		for _, f := range all {
			if f.claims() {
				doubtful = append(doubtful, f)
			}
		}
		time.Sleep(time.Nanosecond + w.plan.drains()) // what happens at this instant has happened
		for _, f := range doubtful {
			if f.claims() {
				f.ledger.fault("%v: the cache is synced, and its client %v", f.who, f.client.State())
			}
		}
	}
}

func (f *follower) claims() bool {
	return f.cache.Status().State == cache.Synced && f.client.State() != framework.Connected
}

func (f *follower) close() {
	f.mu.Lock()
	before := f.zxid
	f.mu.Unlock()
	f.cache.Close()
	if s := f.cache.Status().State; s != cache.Closed {
		f.ledger.fault("%v: closed, and the cache is %v", f.who, s)
	}
	view := f.cache.View()
	time.Sleep(time.Second)
	if after := f.cache.View(); after.Zxid() != view.Zxid() || view.Zxid() < before && !f.rebuilt() {
		f.ledger.fault("%v: closed at %x, the cache shows %x", f.who, view.Zxid(), after.Zxid())
	}
	f.stop()
	f.ledger.log("%v: the cache is closed", f.who)
}
