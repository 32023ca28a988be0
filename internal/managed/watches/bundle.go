package watches

import (
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
)

// bundle arms watches of many znodes that are asked for at the same time. It
// reads many znodes with one request, and arms many watches with another one,
// setWatches. That names a transaction: the latest that the server had applied
// when it answered the first of the reads. Before it arms the watches, the
// server sends an event for all that has changed since, also for a znode that
// was deleted and created again between its read and its watch.
//
// A few watches are armed by a read each. So are all where the server has no
// such reads, or refuses one of the two requests.
type bundle struct {
	session *Watches

	mu  sync.Mutex // guards due
	due []*Watch
}

// collecting is how long the first watch waits for others that are asked for at
// the same time, in goroutines of their own.
const collecting = time.Millisecond

// add arms w soon.
func (b *bundle) add(w *Watch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.due = append(b.due, w); len(b.due) == 1 {
		time.AfterFunc(collecting, b.arm) // ends with its requests, each of which is answered, or fails with its connection
	}
}

func (b *bundle) arm() {
	b.mu.Lock()
	due := b.due
	b.due = nil
	b.mu.Unlock()
	s := b.session
	paths := make([]string, len(due))
	for i, w := range due {
		paths[i] = w.key.path
	}
	on, found, err := s.ReadMany(paths)
	if err != nil {
		s.armEach(on, due)
		return
	}
	var there []*Watch
	since := found[0].Zxid
	for i, w := range due {
		s.hub.begin(w, on)
		since = min(since, found[i].Zxid)
		if err := found[i].Err; err != nil {
			s.hub.fail(w, err)
			continue
		}
		w.Node, w.zxid = ops.Node{Data: found[i].Data, Stat: found[i].Stat}, found[i].Zxid
		there = append(there, w)
	}
	s.goOn(on, there, since)
}

// armEach arms watches by a request each, unless those on the connection have
// failed because it has ended.
func (s *Watches) armEach(on *link.Link, all []*Watch) {
	for _, w := range all {
		if on != nil && s.HasEnded(on) {
			s.hub.fail(w, zk.ErrConnectionClosed)
		} else {
			go s.arm(w)
		}
	}
}

// fail says why w is not armed.
func (h *hub) fail(w *Watch, err error) {
	w.err = err
	h.drop(w)
	close(w.ready)
}
