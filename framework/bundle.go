package framework

import (
	"context"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
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
	session *session

	mu  sync.Mutex // guards due
	due []*watch
}

// many is from how many reads on a client asks whether its server has requests
// for many.
const many = 16

// add arms w soon.
func (b *bundle) add(w *watch) {
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
	on, found, err := s.readMany(paths)
	if err != nil {
		s.armEach(on, due)
		return
	}
	var there []*watch
	since := found[0].Zxid
	for i, w := range due {
		s.hub.begin(w, on)
		since = min(since, found[i].Zxid)
		if err := found[i].Err; err != nil {
			s.hub.fail(w, err)
			continue
		}
		w.node, w.zxid = node{data: found[i].Data, stat: found[i].Stat}, found[i].Zxid
		there = append(there, w)
	}
	s.goOn(on, there, since)
}

// armEach arms watches by a request each, unless those on the connection have
// failed because it has ended.
func (s *session) armEach(on *link, all []*watch) {
	for _, w := range all {
		if on != nil && s.hasEnded(on) {
			s.hub.fail(w, zk.ErrConnectionClosed)
		} else {
			go s.arm(w)
		}
	}
}

// fail says why w is not armed.
func (h *hub) fail(w *watch, err error) {
	w.err = err
	h.drop(w)
	close(w.ready)
}

// readMany reads the data of znodes on one connection, which it returns. It
// fails if they are few, and where a request can read only one: the connection
// is nil then.
func (s *session) readMany(paths []string) (on *link, found []request.Result, err error) {
	if len(paths) < many {
		return nil, nil, errNotOffered
	}
	reads := make([]request.Read, len(paths))
	for i, path := range paths {
		reads[i].Path = path
	}
	b, err := scope{core: s.core}.newBulk(reads)
	if err != nil {
		return nil, nil, err
	}
	if on, err = s.offers(context.Background(), wire.OpMultiRead); err != nil {
		return nil, nil, err
	}
	b.ctx, b.session, b.on = context.Background(), s, on
	if b.run(true); zkerr.IsRefusal(b.err) {
		s.core.refuse(wire.OpMultiRead, b.err)
	}
	return on, b.results, b.err
}
