package framework

import (
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// wireWatches knows the watches that the wire client has. After a reconnect a
// znode can then be read under the watch that is there, and no second one is
// armed: the wire client keeps a channel for each watch that was ever armed,
// until it fires, and nothing removes one.
//
// After a reconnect the wire client asks the server to arm its watches again
// (setWatches, in several requests if there are many). The goroutine that does
// so gives up silently when one request fails. So a watch is used again only
// once the link has seen the answer, without an error, to a request that names
// it, on the current connection. Arming waits for that. If the request fails,
// or is not answered in time, one more watch is armed, as if there were none.
//
// A server may also use a watch up without an event. The wire client does not
// know that, and has the watch nevertheless. Then it is armed by a plain read
// of the wire client, which link turns into one that asks the server for a
// watch.
//
// No change is missed. Before the server answers such a request it sends the
// events of all that has changed since. Those end the watch here, and the next
// read arms another. What is read after the answer is no older than the watch.
type wireWatches struct {
	mu        sync.Mutex                 // guards what follows
	held      map[watchKey]*link         // by watch of the wire client: where the server has it
	orphans   map[watchKey]bool          // watches of the wire client that a server may have used up
	arming    map[watchKey][]*armRequest // requests under way
	setting   map[int32][]watchKey       // by number of a setWatches under way
	refusedOn *link                      // where a setWatches has failed
	ended     *link                      // the latest connection that has ended
	changed   chan struct{}              // closed and replaced when one of the last three changes
}

// armRequest is a request under way that arms a watch.
type armRequest struct {
	spent bool // an event came in the meantime: it may have ended this watch
	again bool // the wire client has the watch: link asks for it
}

// beginArming notes a request that is about to arm a watch.
func (r *wireWatches) beginArming(key watchKey) *armRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &armRequest{again: r.orphans[key]}
	if r.arming == nil {
		r.arming = make(map[watchKey][]*armRequest)
	}
	r.arming[key] = append(r.arming[key], a)
	return a
}

// endArming notes the end of that request. If it has armed a watch on the
// connection on, the wire client has that as held.
func (r *wireWatches) endArming(key watchKey, a *armRequest, armed bool, held watchKey, on *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := slices.DeleteFunc(r.arming[key], func(b *armRequest) bool { return a == b })
	if r.arming[key] = rest; len(rest) == 0 {
		delete(r.arming, key)
	}
	if !armed || a.spent {
		return
	}
	delete(r.orphans, held)
	if r.held == nil {
		r.held = make(map[watchKey]*link)
	}
	r.held[held] = on
}

// onEvent notes that watches have fired, before the wire client drops them.
func (r *wireWatches) onEvent(keys []watchKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		delete(r.held, key)
		delete(r.orphans, key)
		for _, a := range r.arming[key] {
			a.spent = true
		}
	}
}

// forget notes that the server may have used up a watch without an event.
func (r *wireWatches) forget(key watchKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.held[key]; !ok {
		return
	}
	delete(r.held, key)
	if r.orphans == nil {
		r.orphans = make(map[watchKey]bool)
	}
	r.orphans[key] = true
}

// arms reports whether a read of the wire client is to arm the watch that it
// has already. Another read of the znode may be taken for it. That does no
// harm: the server has one watch for each path and connection.
func (r *wireWatches) arms(op wire.Op, frame []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.orphans) == 0 {
		return false
	}
	var kind watchKind
	switch op {
	case wire.OpGetData:
		kind = watchData
	case wire.OpExists:
		kind = watchMissing
	case wire.OpGetChildren2:
		kind = watchChildren
	default:
		return false
	}
	requests := r.arming[watchKey{kind, string(pathIn(frame, pathAt))}]
	return slices.ContainsFunc(requests, func(a *armRequest) bool { return a.again })
}

// onSetWatches notes that a setWatches is about to be sent.
func (r *wireWatches) onSetWatches(xid int32, keys []watchKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.setting == nil {
		r.setting = make(map[int32][]watchKey)
	}
	r.setting[xid] = keys
}

// onSetWatchesAnswer notes the answer to a setWatches. All events before it
// have been handled, because the wire client reads one frame at a time.
func (r *wireWatches) onSetWatchesAnswer(on *link, xid int32, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if failed {
		r.refusedOn = on
	} else {
		for _, key := range r.setting[xid] {
			if _, ok := r.held[key]; ok {
				r.held[key] = on
			}
		}
	}
	delete(r.setting, xid)
	r.signalLocked()
}

// onLinkEnd notes that a connection has ended.
func (r *wireWatches) onLinkEnd(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.setting = l, nil
	r.signalLocked()
}

func (r *wireWatches) signalLocked() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// status reports whether the server of the connection on has the watch. While
// that is not known, undecided is a channel that is closed when more is known.
func (r *wireWatches) status(key watchKey, on *link) (has bool, undecided <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	where, held := r.held[key]
	switch {
	case !held:
		return false, nil, nil
	case r.ended == on:
		return false, nil, zk.ErrConnectionClosed
	case where == on:
		return true, nil, nil
	case r.refusedOn == on:
		return false, nil, nil
	}
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return false, r.changed, nil
}

// serverHas waits until it is known whether the server of the connection on has
// the watch, and reports whether it has. It fails if that connection has ended.
func (s *session) serverHas(key watchKey, on *link) (bool, error) {
	s.mu.Lock()
	patience := time.After(s.timeout / 3)
	s.mu.Unlock()
	for {
		has, undecided, err := s.hub.wireWatches.status(key, on)
		if undecided == nil {
			return has, err
		}
		select {
		case <-undecided:
		case <-s.over:
			return false, s.Err()
		case <-patience:
			return false, nil
		}
	}
}

// watchesIn returns the watches that a setWatches names, as it stands on the
// wire.
func watchesIn(frame []byte) []watchKey {
	var request wire.SetWatchesRequest
	if len(frame) < frameOp+4 || wire.Unmarshal(frame[frameOp+4:], &request) != nil {
		return nil
	}
	var keys []watchKey
	add := func(kind watchKind, paths []string) {
		for _, path := range paths {
			keys = append(keys, watchKey{kind, path})
		}
	}
	add(watchData, request.Data)
	add(watchMissing, request.Exist)
	add(watchChildren, request.Child)
	return keys
}
