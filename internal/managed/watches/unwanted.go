package watches

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file removes watches that nobody wants any more, where the server has
// such a request (since 3.5). It waits for a session timeout, in which the next
// caller may come: then nothing was sent in vain.
//
// A removal is for a path and a kind of watch, whoever has armed it. So while
// one is under way nothing else is armed on its path: see beginOne. None is
// sent while a caller wants a watch of that kind on that path, nor at the root
// of a tree, nor where somebody who is told of all events relies on it. Before
// it is sent the watch fires: who has not left, reads again.
//
// Notes are kept where it is not certain that the watch is gone. The event of a
// change uses it up, but not what setWatches tells of a change before it. While
// a request is under way that may arm a watch, nobody knows which it is.

// unwanted is a watch that a server may have, and nobody wants.
type unwanted struct {
	on    *link.Link
	since time.Time
}

func (h *hub) unwatch(changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.shares[changed]
	if w == nil {
		return
	}
	delete(h.shares, changed)
	i := slices.IndexFunc(w.shares, func(c chan struct{}) bool { return c == changed })
	close(w.shares[i])
	w.shares = slices.Delete(w.shares, i, i+1)
	w.leaveLocked()
}

// leave says that a caller does not need w any longer.
func (w *Watch) leave() {
	h := &w.session.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	w.leaveLocked()
}

func (w *Watch) leaveLocked() {
	h := &w.session.hub
	w.wanted--
	if w.wanted <= 0 && h.armed[w.key] == w && w.on != nil { // otherwise see noteArmed
		h.noteUnwantedLocked(w.key, w.on)
	}
}

// noteArmed notes the answer, with its place, to a request that has armed w.
// The server has the watch also if the event of an earlier one has fired w, or
// if w was for the creation of what is there.
func (h *hub) noteArmed(w *Watch, order uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch now := h.armed[w.key]; {
	case now != w && w.firedAt < order, now == w && (w.wanted <= 0 || w.Node.Found):
		h.noteUnwantedLocked(w.key, w.on)
	}
}

// noteUnwantedLocked notes that nobody wants a watch.
func (h *hub) noteUnwantedLocked(key watchKey, on *link.Link) {
	if h.unwanted == nil {
		h.unwanted = make(map[watchKey]unwanted)
	}
	h.unwanted[key] = unwanted{on, time.Now()}
	h.sweepLaterLocked()
}

func (h *hub) sweepLaterLocked() {
	if len(h.unwanted) == 0 || h.sweeping {
		return
	}
	h.sweeping = true
	pause := h.session.Timeout()
	for _, u := range h.unwanted {
		pause = min(pause, h.session.Timeout()-time.Since(u.since))
	}
	time.AfterFunc(pause, h.session.sweep)
}

// sweep removes the watches that nobody has wanted for a session timeout.
func (s *Watches) sweep() {
	if s.Err() != nil {
		return
	}
	h := &s.hub
	h.mu.Lock()
	paths := make(map[string]bool)
	for key, u := range h.unwanted {
		if time.Since(u.since) >= s.Timeout() {
			h.unwanted[key] = unwanted{u.on, time.Now()} // if it is not removed now
			if w := h.armed[key]; w == nil || w.wanted <= 0 {
				paths[key.path] = true
			}
		}
	}
	h.mu.Unlock()
	if len(paths) > 0 {
		if on, err := s.Offers(context.Background(), wire.OpRemoveWatches); err == nil {
			s.removeAllUnwanted(on, slices.Sorted(maps.Keys(paths)))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweeping = false
	h.sweepLaterLocked()
}

// removeAllUnwanted does removeUnwanted for many paths. As many requests as for
// single reads are under way at a time.
func (s *Watches) removeAllUnwanted(on *link.Link, paths []string) {
	work := make(chan string)
	var workers sync.WaitGroup
	for range min(ops.WorkersOfOnes, len(paths)) {
		workers.Go(func() {
			for path := range work {
				s.removeUnwanted(on, path)
			}
		})
	}
	for _, path := range paths {
		work <- path
	}
	close(work)
	workers.Wait()
}

// removeUnwanted removes the watches on a path that nobody wants. If others may
// rely on them, it does nothing. If the server answers that it has not done so,
// they are noted again.
func (s *Watches) removeUnwanted(on *link.Link, path string) {
	if s.Client.HasRefused(wire.OpRemoveWatches) || !s.trees.beginRemoval(path) {
		return
	}
	defer s.trees.endRemoval(path)
	if slices.ContainsFunc(s.trees.hearing(path), func(f *follower) bool { return f.relies != nil && f.relies(f.root.Unfix(path)) }) {
		return
	}
	h := &s.hub
	h.mu.Lock()
	what := h.unwantedLocked(path, on)
	h.mu.Unlock()
	if what == 0 {
		return
	}
	_, err := ops.Call(context.Background(), s.Session, ops.Request{Op: request.NameWatch, Path: path}, func(*zk.Conn) (link.Reply, error) {
		return s.Chain().Ask(context.Background(), on, wire.OpRemoveWatches, &wire.WatchesRequest{Path: path, Type: what}, 0)
	}, nil)
	if err == nil || isNoWatcher(err) || s.HasEnded(on) {
		return
	}
	if zkerr.IsRefusal(err) {
		s.Client.Refuse(wire.OpRemoveWatches, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if what != wire.WatcherData {
		h.noteUnwantedLocked(watchKey{Children, path}, on)
	}
	if what != wire.WatcherChildren {
		h.noteUnwantedLocked(watchKey{Data, path}, on)
	}
}

// isNoWatcher reports whether err is the answer to a removal that the server
// has no such watch.
func isNoWatcher(err error) bool {
	code, _ := zkerr.Code(err)
	return code == wire.NoWatcher
}

// unwantedLocked returns which watches on a path nobody wants on a connection,
// 0 if there are none, and fires them. A server has one watch for a znode's
// data and for its absence. What somebody wants stays noted: its read may fail.
func (h *hub) unwantedLocked(path string, on *link.Link) (what wire.WatcherType) {
	unwanted := func(kinds ...Kind) (noted bool) {
		for _, kind := range kinds {
			key := watchKey{kind, path}
			u, ok := h.unwanted[key]
			if w := h.armed[key]; ok && u.on != on || w != nil && w.wanted > 0 {
				return false
			}
			noted = noted || ok
		}
		if noted {
			h.forsakeLocked(path, kinds...)
		}
		return noted
	}
	children, data := unwanted(Children), unwanted(Data, Missing)
	switch {
	case children && data:
		return wire.WatcherAny
	case children:
		return wire.WatcherChildren
	case data:
		return wire.WatcherData
	}
	return 0
}

// beginRemoval reports whether a removal of watches on a path may be sent now.
// If so, nothing else is sent that arms or removes one there until endRemoval.
func (ts *trees) beginRemoval(path string) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.at[path] != nil || ts.arming[path] > 0 {
		return false
	}
	if ts.removing == nil {
		ts.removing = make(map[string]chan struct{})
	}
	ts.removing[path] = make(chan struct{})
	ts.beginOneLocked(path)
	return true
}

func (ts *trees) endRemoval(path string) {
	ts.mu.Lock()
	close(ts.removing[path])
	delete(ts.removing, path)
	ts.mu.Unlock()
	ts.endOne(path)
}

// Unwatch is framework.Session.Unwatch.
func (s *Watches) Unwatch(changed <-chan struct{}) { s.hub.unwatch(changed) }

// UnwatchReads is Unwatch for what ReadAllAndWatch and SetWatches have armed in
// the present connection. It returns at once. A watch that somebody else relies
// on, as one who hears of it by Events may, stays as long as that is so.
func (s *Watches) UnwatchReads(in ops.Scope, reads ...request.Read) {
	on := s.Chain().Usable()
	if on == nil {
		return
	}
	h := &s.hub
	for _, r := range reads {
		h.mu.Lock() // each time anew: events wait for it
		h.noteUnwantedLocked(keyOf(in.Root, r), on)
		h.mu.Unlock()
	}
}
