package sim

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// truth is what the ensemble has committed, path by path. What caches and
// presence nodes say is compared with it.
type truth struct {
	mu     sync.Mutex // guards what follows; nothing is asked of the ensemble under it
	order  int64      // the place of the last commit: its zxid, unless the ensemble was rebuilt
	moved  int64      // the places of the present history are those of its zxids, and so much later
	began  int64      // the place at which it has replaced another one; 0: it has not
	states map[string][]znode
}

// znode is a state that a path of the ensemble had.
type znode struct {
	zxid   int64 // the place of the transaction that has made it
	mzxid  int64 // its id
	at     time.Time
	by     int64 // the session that asked for that
	exists bool
	czxid  int64
	owner  int64
	data   string
}

// commit is told of every change: see hidden.WithCommits.
func (t *truth) commit(zxid, session int64, op testutil.Op, path string, data []byte, owner int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.order = zxid + t.moved
	now := znode{zxid: t.order, mzxid: zxid, at: time.Now(), by: session, exists: true, czxid: zxid, owner: owner, data: string(data)}
	switch before := t.lastLocked(path); op {
	case testutil.OpDelete:
		now = znode{zxid: t.order, at: now.at, by: session}
	case testutil.OpSetData:
		now.czxid, now.owner = before.czxid, before.owner
	case testutil.OpCreateContainer:
		now.owner = 0 // as its stat says
	case testutil.OpCreate, testutil.OpCreate2:
	default:
		return
	}
	t.states[path] = append(t.states[path], now)
}

func (t *truth) lastLocked(path string) (z znode) {
	if all := t.states[path]; len(all) > 0 {
		z = all[len(all)-1]
	}
	return z
}

// last returns the present state of a path.
func (t *truth) last(path string) znode {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastLocked(path)
}

// now returns the place of the last transaction.
func (t *truth) now() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.order
}

// zxid returns the id of the transaction at a place of the present history, 0
// if that is one of before.
func (t *truth) zxid(place int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if place <= t.began {
		return 0
	}
	return place - t.moved
}

// below returns the states of a path and of all below it, as far as they are
// wanted.
func (t *truth) below(root string, wanted func(path string) bool) map[string][]znode {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string][]znode{}
	for path, states := range t.states {
		if (path == root || strings.HasPrefix(path, root+"/")) && wanted(path) {
			all[path] = slices.Clone(states)
		}
	}
	return all
}

// paths returns the paths of states, sorted.
func paths(states map[string][]znode) []string { return slices.Sorted(maps.Keys(states)) }
