package watches

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file arms watches again after a reconnect without a read: setWatches
// names the znodes, and a transaction. Before the server answers it sends an
// event for all that has changed since, and arms no watch there.
//
// That transaction is the latest of those that have written what was read. All
// of these watches were armed on the connection that has ended, so events tell
// of what has changed up to it. What the session has seen since, also of later
// transactions, says nothing of them.
//
// An ensemble that was restored from a backup may have the session, and have
// lost that transaction. No event tells of what it has taken back. But its
// leader has another epoch. So after a connect with another epoch the znode
// that was written last is read: if it is as it was, so is what was read of the
// others, or there is an event. If not, all of them are read again.

// WatchAndResume is GetAndWatch, but what it returns was the znode's during
// the call, also if events are lost: a watch that is armed already is checked.
// After a reconnect has closed changed, resume takes the watch up again, and
// returns its channel, if the znode is as it was read: unless Session.Unwatch
// was called, one request arms all such watches of the session again. If not,
// ok is false: read it again. resume waits for the answer to that request, or
// the end of the connection. Calls that are made at the same time share
// requests: with servers since 3.6, 16 calls or more cost a few.
func (s *Watches) WatchAndResume(scope ops.Scope, path string) (data []byte, stat *zk.Stat, changed <-chan struct{}, resume func() (<-chan struct{}, bool), err error) {
	in := Scope{Scope: scope, Of: s, bundles: true}
	w, err := in.Watch(context.Background(), Data, path, true)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	h := &s.hub
	h.mu.Lock()
	w.mayGoOn = true
	h.mu.Unlock()
	resume = func() (<-chan struct{}, bool) {
		next := w.resume()
		if next == nil {
			return nil, false
		}
		w = next
		return w.Share(), true
	}
	return w.Node.Data, w.Node.Stat, w.Share(), resume, nil
}

// resume returns the watch that goes on after w, which the latest reconnect has
// ended: nil if there is none, or if what w has read may not be true any more.
func (w *Watch) resume() *Watch {
	h := &w.session.hub
	h.mu.Lock()
	next := w.goesOnAs
	if next != nil {
		next.wanted++
	}
	h.mu.Unlock()
	if next == nil {
		return nil
	}
	err := next.await(context.Background())
	h.mu.Lock()
	goesOn := err == nil && next.resumed && h.armed[next.key] == next
	h.mu.Unlock()
	if !goesOn {
		next.leave()
		return nil
	}
	return next
}

// goOnLocked makes the watch that goes on after w on another connection, and
// fires w. It reports false if nobody may want it, or nothing was read.
func (w *Watch) goOnLocked(on *link.Link) bool {
	select {
	case <-w.ready:
	default:
		return false
	}
	if !w.mayGoOn || w.wanted <= 0 || w.err != nil {
		return false
	}
	h := &w.session.hub
	h.fireLocked(w)
	w.goesOnAs = h.newLocked(w.key)
	w.goesOnAs.on, w.goesOnAs.mayGoOn, w.goesOnAs.Node, w.goesOnAs.zxid = on, true, w.Node, w.zxid
	w.goesOnAs.lookout.checked = w.lookout.checked
	return true
}

// goOn arms watches whose znodes were read before. since is the transaction
// that setWatches names. Those that it cannot arm are read again.
func (s *Watches) goOn(on *link.Link, all []*Watch, since int64) {
	slices.SortFunc(all, func(a, b *Watch) int { return strings.Compare(a.key.path, b.key.path) })
	keys := make([]watchKey, len(all))
	for i, w := range all {
		keys[i] = w.key
	}
	armed, unset, _ := s.setWatches(context.Background(), on, since, keys)
	if len(unset) < len(keys) && !s.sameHistory(on, armed.Zxid, all) {
		unset = keys
	}
	isUnset := make(map[watchKey]bool)
	for _, key := range unset {
		isUnset[key] = true
	}
	var toRead []*Watch
	for _, w := range all {
		if isUnset[w.key] {
			toRead = append(toRead, w)
			continue
		}
		h := &s.hub
		h.mu.Lock()
		w.resumed, w.zxid = true, armed.Zxid
		h.mu.Unlock()
		close(w.ready)
		h.noteArmed(w, 1) // an event that has fired it is of a change that came before it was armed, or has used it up
	}
	s.armEach(on, toRead)
}

// sameHistory reports whether what was read before, by servers with other
// epochs than that of zxid, has happened in the history that on leads to.
func (s *Watches) sameHistory(on *link.Link, zxid int64, all []*Watch) bool {
	if !slices.ContainsFunc(all, func(w *Watch) bool { return version.Epoch(w.zxid) != version.Epoch(zxid) }) {
		return true
	}
	last := slices.MaxFunc(all, func(a, b *Watch) int { return cmp.Compare(a.Node.Stat.Mzxid, b.Node.Stat.Mzxid) })
	now, _, err := s.readUnder(watchKey{Missing, last.key.path}, on, false)
	return err == nil && now.Found && version.Of(now.Stat) == version.Of(last.Node.Stat)
}

// mostSet is about how many bytes of paths are named by one setWatches.
const mostSet = 64 << 10

// setWatches arms watches of the data and the children of znodes without a
// read, by as few requests as may be. armed is the answer to the last one,
// which comes after the events for all that has changed since a transaction:
// there no watch is armed. Nor is one for what is in unset: where a tree tells
// of the data, where a path is too long, and where a request has failed.
func (s *Watches) setWatches(ctx context.Context, on *link.Link, since int64, keys []watchKey) (armed link.Reply, unset []watchKey, err error) {
	type result struct {
		link.Reply
		covered []watchKey
	}
	for len(keys) > 0 {
		n, size := 0, request.Int64Size+3*request.Int32Size
		for n < len(keys) && size <= mostSet {
			if size += request.TextSize(keys[n].path); s.Client.Fits(size) != nil {
				break
			}
			n++
		}
		some := keys[:max(n, 1)]
		if keys = keys[len(some):]; n == 0 {
			unset = append(unset, some...)
			continue
		}
		r, failed := ops.Call(ctx, s.Session, ops.Request{Op: request.NameWatch, Path: "/"}, func(*zk.Conn) (r result, err error) {
			r.Reply, r.covered, err = s.setSome(ctx, on, since, some, size)
			return r, err
		}, nil)
		if failed != nil {
			unset, err = append(unset, some...), oneline.Join(err, failed)
		} else {
			armed, unset = r.Reply, append(unset, r.covered...)
		}
	}
	return armed, unset, err
}

// setSome makes one request of setWatches, for all but what a tree covers.
func (s *Watches) setSome(ctx context.Context, on *link.Link, since int64, keys []watchKey, size int) (armed link.Reply, covered []watchKey, err error) {
	request := &wire.SetWatchesRequest{RelativeZxid: since}
	var paths []string
	for _, key := range keys {
		paths = append(paths, key.path)
	}
	slices.Sort(paths) // all who take several take them in one order, so none waits for another for good
	trees := make(map[string]bool)
	for _, path := range slices.Compact(paths) {
		trees[path] = s.beginOne(path) != nil
		defer s.trees.endOne(path)
	}
	for _, key := range keys {
		switch {
		case key.kind == Children:
			request.Child = append(request.Child, key.path)
		case trees[key.path]:
			covered = append(covered, key)
		default:
			request.Data = append(request.Data, key.path)
		}
	}
	armed, err = s.Chain().Ask(ctx, on, wire.OpSetWatches, request, size)
	return armed, covered, err
}
