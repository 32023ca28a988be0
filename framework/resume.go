package framework

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

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
		return w.fired, true
	}
	return w.node.data, w.node.stat, w.fired, resume, nil
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
	w.goesOnAs.on, w.goesOnAs.mayGoOn, w.goesOnAs.node = on, true, w.node
	return true
}

// goOn arms watches whose znodes were read before. since is the transaction
// that setWatches names.
func (s *session) goOn(on *link, all []*watch, since int64) {
	slices.SortFunc(all, func(a, b *watch) int { return strings.Compare(a.key.path, b.key.path) })
	for len(all) > 0 {
		n, size := 0, int64Size+3*int32Size
		for n < len(all) && size <= mostSetAgain {
			if size += textSize(all[n].key.path); s.core.cfg.fits(size) != nil {
				break
			}
			n++
		}
		if n == 0 { // a path that is too long for a setWatches, but not for a read
			s.armEach(on, all[:1])
			n = 1
		} else {
			s.setAgain(on, all[:n], since)
		}
		all = all[n:]
	}
}

// mostSetAgain is about how many bytes of paths are named by one setWatches.
const mostSetAgain = 64 << 10

// setAgain arms such watches by one request. Those that it cannot arm are read
// again.
func (s *session) setAgain(on *link, all []*watch, since int64) {
	request := &wire.SetWatchesRequest{RelativeZxid: since}
	covered := false
	for _, w := range all { // in the order in which all take several paths
		covered = s.beginOne(w.key.path) != nil || covered
		request.Data = append(request.Data, w.key.path)
	}
	err := errors.New("a tree tells of one of them")
	if !covered {
		_, err = s.ask(context.Background(), on, wire.OpSetWatches, request, 0)
	}
	for _, w := range all {
		s.trees.endOne(w.key.path)
	}
	if err != nil {
		s.armEach(on, all)
		return
	}
	for _, w := range all {
		h := &s.hub
		h.mu.Lock()
		w.resumed = true
		h.mu.Unlock()
		close(w.ready)
		h.noteArmed(w, 1) // an event that has fired it is of a change that came before it was armed, or has used it up
	}
}
