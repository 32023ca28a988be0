package framework

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

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

// getAndWatch is GetAndWatch of package recipes/internal/privileged.
func (s *Session) getAndWatch(path string) (data []byte, stat *zk.Stat, changed <-chan struct{}, resume func() (<-chan struct{}, bool), err error) {
	in := s.scope()
	in.bundles = true
	w, err := in.watch(context.Background(), watchData, path, true)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	h := &s.session().hub
	h.mu.Lock()
	w.mayGoOn = true
	h.mu.Unlock()
	resume = func() (<-chan struct{}, bool) {
		next := w.resume()
		if next == nil {
			return nil, false
		}
		w = next
		return w.share(), true
	}
	return w.node.data, w.node.stat, w.share(), resume, nil
}

// resume returns the watch that goes on after w, which the latest reconnect has
// ended: nil if there is none, or if what w has read may not be true any more.
func (w *watch) resume() *watch {
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
func (w *watch) goOnLocked(on *link) bool {
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
	w.goesOnAs.on, w.goesOnAs.mayGoOn, w.goesOnAs.node, w.goesOnAs.zxid = on, true, w.node, w.zxid
	w.goesOnAs.lookout.checked = w.lookout.checked
	return true
}

// goOn arms watches whose znodes were read before. since is the transaction
// that setWatches names. Those that it cannot arm are read again.
func (s *session) goOn(on *link, all []*watch, since int64) {
	slices.SortFunc(all, func(a, b *watch) int { return strings.Compare(a.key.path, b.key.path) })
	keys := make([]watchKey, len(all))
	for i, w := range all {
		keys[i] = w.key
	}
	armed, unset, _ := s.setWatches(context.Background(), on, since, keys)
	if len(unset) < len(keys) && !s.sameHistory(on, armed.zxid, all) {
		unset = keys
	}
	isUnset := make(map[watchKey]bool)
	for _, key := range unset {
		isUnset[key] = true
	}
	var toRead []*watch
	for _, w := range all {
		if isUnset[w.key] {
			toRead = append(toRead, w)
			continue
		}
		h := &s.hub
		h.mu.Lock()
		w.resumed, w.zxid = true, armed.zxid
		h.mu.Unlock()
		close(w.ready)
		h.noteArmed(w, 1) // an event that has fired it is of a change that came before it was armed, or has used it up
	}
	s.armEach(on, toRead)
}

// sameHistory reports whether what was read before, by servers with other
// epochs than that of zxid, has happened in the history that on leads to.
func (s *session) sameHistory(on *link, zxid int64, all []*watch) bool {
	if !slices.ContainsFunc(all, func(w *watch) bool { return version.Epoch(w.zxid) != version.Epoch(zxid) }) {
		return true
	}
	last := slices.MaxFunc(all, func(a, b *watch) int { return cmp.Compare(a.node.stat.Mzxid, b.node.stat.Mzxid) })
	now, _, err := s.readUnder(watchKey{watchMissing, last.key.path}, on, false)
	return err == nil && now.found && version.Of(now.stat) == version.Of(last.node.stat)
}

// mostSet is about how many bytes of paths are named by one setWatches.
const mostSet = 64 << 10

// setWatches arms watches of the data and the children of znodes without a
// read, by as few requests as may be. armed is the answer to the last one,
// which comes after the events for all that has changed since a transaction:
// there no watch is armed. Nor is one for what is in unset: where a tree tells
// of the data, where a path is too long, and where a request has failed.
func (s *session) setWatches(ctx context.Context, on *link, since int64, keys []watchKey) (armed reply, unset []watchKey, err error) {
	type result struct {
		reply
		covered []watchKey
	}
	for len(keys) > 0 {
		n, size := 0, request.Int64Size+3*request.Int32Size
		for n < len(keys) && size <= mostSet {
			if size += request.TextSize(keys[n].path); s.core.cfg.fits(size) != nil {
				break
			}
			n++
		}
		some := keys[:max(n, 1)]
		if keys = keys[len(some):]; n == 0 {
			unset = append(unset, some...)
			continue
		}
		r, failed := call(ctx, s, Request{Op: request.NameWatch, Path: "/"}, func(*zk.Conn) (r result, err error) {
			r.reply, r.covered, err = s.setSome(ctx, on, since, some, size)
			return r, err
		}, nil)
		if failed != nil {
			unset, err = append(unset, some...), oneline.Join(err, failed)
		} else {
			armed, unset = r.reply, append(unset, r.covered...)
		}
	}
	return armed, unset, err
}

// setSome makes one request of setWatches, for all but what a tree covers.
func (s *session) setSome(ctx context.Context, on *link, since int64, keys []watchKey, size int) (armed reply, covered []watchKey, err error) {
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
		case key.kind == watchChildren:
			request.Child = append(request.Child, key.path)
		case trees[key.path]:
			covered = append(covered, key)
		default:
			request.Data = append(request.Data, key.path)
		}
	}
	armed, err = s.ask(ctx, on, wire.OpSetWatches, request, size)
	return armed, covered, err
}
