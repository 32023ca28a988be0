package framework

import (
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// rearmed follows the watches that the wire client holds, so that after a
// reconnect a znode is read again under the watch that is there, instead of one
// more being armed: the wire client keeps a channel for each that was ever armed,
// until the watch fires, and nothing takes one back.
//
// After a reconnect the wire client asks the server to arm again what it holds
// (setWatches, in several requests if they are many), from a goroutine of its own
// that gives up in silence when one of them fails. So a watch is used again only
// once the link has seen a request that names it answered without error, on the
// present connection. Until then arming waits; if the request fails, or does not
// come in time, one more watch is armed, as if there were none.
//
// No change is missed by it. The server sends the events of what has changed since
// before it answers the request, and they end the watch here, so that the next
// read arms another. What is read after the answer is no older than the watch.
type rearmed struct {
	mu      sync.Mutex               // guards what follows
	held    map[watchKey]*link       // by watch of the wire client: where the server has it
	arming  map[watchKey][]*armament // requests under way
	asked   map[int32][]watchKey     // by number of a setWatches under way
	refused *link                    // where one of them failed
	ended   *link                    // the latest connection that ended
	news    chan struct{}            // closed and replaced when one of the last three changes
}

// armament is a request that arms a watch.
type armament struct {
	spent bool // an event came meanwhile: nobody knows whether it ended this watch
}

// begin notes a request that is about to arm a watch.
func (r *rearmed) begin(key watchKey) *armament {
	a := &armament{}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.arming == nil {
		r.arming = make(map[watchKey][]*armament)
	}
	r.arming[key] = append(r.arming[key], a)
	return a
}

// end notes the end of that request. If it has armed a watch on the connection on,
// the wire client holds that as held.
func (r *rearmed) end(key watchKey, a *armament, armed bool, held watchKey, on *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := slices.DeleteFunc(r.arming[key], func(b *armament) bool { return a == b })
	if r.arming[key] = rest; len(rest) == 0 {
		delete(r.arming, key)
	}
	if !armed || a.spent {
		return
	}
	if r.held == nil {
		r.held = make(map[watchKey]*link)
	}
	r.held[held] = on
}

// event notes that watches have fired, before the wire client forgets them.
func (r *rearmed) event(keys []watchKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		delete(r.held, key)
		for _, a := range r.arming[key] {
			a.spent = true
		}
	}
}

// forget gives up a watch that is not what it was taken for.
func (r *rearmed) forget(key watchKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, key)
}

// asks notes that a setWatches leaves.
func (r *rearmed) asks(xid int32, keys []watchKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked == nil {
		r.asked = make(map[int32][]watchKey)
	}
	r.asked[xid] = keys
}

// answered notes the answer to a setWatches. All events that came before it have
// been told: the wire client reads one frame at a time.
func (r *rearmed) answered(on *link, xid int32, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if failed {
		r.refused = on
	} else {
		for _, key := range r.asked[xid] {
			if _, ok := r.held[key]; ok {
				r.held[key] = on
			}
		}
	}
	delete(r.asked, xid)
	r.tellLocked()
}

// left notes that a connection has ended.
func (r *rearmed) left(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.asked = l, nil
	r.tellLocked()
}

func (r *rearmed) tellLocked() {
	if r.news != nil {
		close(r.news)
		r.news = nil
	}
}

// look reports whether the wire client holds the watch, and whether the server of
// the connection on has it. It may yet, if undecided is not nil: that is closed
// when there is more to know.
func (r *rearmed) look(key watchKey, on *link) (has bool, undecided <-chan struct{}, err error) {
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
	case r.refused == on:
		return false, nil, nil
	}
	if r.news == nil {
		r.news = make(chan struct{})
	}
	return false, r.news, nil
}

// has waits until it is known whether the server of the connection on has a watch
// that the wire client holds. An error says that this connection has ended.
func (s *session) has(key watchKey, on *link) (bool, error) {
	s.mu.Lock()
	patience := time.NewTimer(s.timeout / 3)
	s.mu.Unlock()
	defer patience.Stop()
	for {
		has, undecided, err := s.hub.wire.look(key, on)
		if undecided == nil {
			return has, err
		}
		select {
		case <-undecided:
		case <-s.over:
			return false, s.Err()
		case <-patience.C:
			return false, nil
		}
	}
}

// watchesIn returns the watches that a setWatches names, as it stands on the wire.
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
