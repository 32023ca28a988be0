package link

import (
	"context"
	"math"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file counts the requests of ours that are under way on a connection, and
// gives each its answer.

// firstOwnXid is the number of the first request of ours. The wire client has
// numbers from 0, and the protocol and other clients a few just below it. The
// numbers go down, and no two requests of a session have the same, over all its
// connections. After two thousand million requests they begin again. That would
// matter only for writes: a member knows the answer to a waiting write by the
// session and the number.
const firstOwnXid = -1000

// isOwnXid reports whether this is the number of a request of ours.
func isOwnXid(xid int32) bool { return xid <= firstOwnXid }

// ownXid returns the number of the n-th request of ours.
func ownXid(n uint64) int32 {
	const numbers = firstOwnXid - math.MinInt32 + 1
	return firstOwnXid - int32(n%numbers)
}

// Reply is an answer to a request of ours.
type Reply struct {
	Body  []byte
	Zxid  int64
	Order uint64 // its place among the answers to such requests, and the events, of the session
	Code  wire.Code
}

// asked are the requests of ours that wait for an answer on a connection.
type asked struct {
	mu      sync.Mutex           // guards what follows
	waiting map[int32]chan Reply // by number
	isOver  bool

	ended chan struct{} // closed: no answer comes any more
}

// add returns where the answer to a request arrives, nil if none can. It is
// closed if none comes any more.
func (a *asked) add(xid int32) <-chan Reply {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isOver {
		return nil
	}
	answer := make(chan Reply, 1)
	a.waiting[xid] = answer
	return answer
}

// deliver passes an answer on.
func (a *asked) deliver(xid int32, r Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if answer := a.waiting[xid]; answer != nil {
		answer <- r
		delete(a.waiting, xid)
	}
}

// end fails what waits. It runs after all answers were delivered.
func (a *asked) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.isOver {
		a.isOver = true
		close(a.ended)
		for _, answer := range a.waiting {
			close(answer)
		}
		clear(a.waiting)
	}
}

// ownRequest is a request of ours that leaves with a frame of the wire client.
type ownRequest struct {
	xid  int32
	op   wire.Op
	body wire.Appender
}

// window bounds what the session asks for at once by requests of its own:
// servers do not count such requests, and throttle no client for them. It
// counts the size of the answers, as far as that can be expected, because
// heartbeats share the connection: behind too much of other answers, their own
// would come too late.
type window struct {
	gate   chan struct{} // one enters at a time, in order
	places chan struct{}
}

const (
	// MostAsked is how many bytes may be expected at once.
	MostAsked = 256 << 10
	// OnePlace is how many bytes of an answer take a place. Every request takes
	// one at least, so this also bounds the number of requests.
	OnePlace = 4 << 10
)

func newWindow() window {
	return window{gate: make(chan struct{}, 1), places: make(chan struct{}, MostAsked/OnePlace)}
}

// enter waits until an answer of this size fits in, and returns a function that
// must be called when it has come. It reports false if ctx has ended, or over
// is closed.
func (w *window) enter(ctx context.Context, size int, over <-chan struct{}) (leave func(), ok bool) {
	if ctx.Err() != nil { // a select may choose the gate all the same
		return nil, false
	}
	select {
	case w.gate <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	case <-over:
		return nil, false
	}
	defer func() { <-w.gate }()
	taken := 0
	leave = func() {
		for range taken {
			<-w.places
		}
	}
	for want := min(max(1, size/OnePlace), cap(w.places)); taken < want; taken++ {
		select {
		case w.places <- struct{}{}:
		case <-ctx.Done():
			leave()
			return nil, false
		case <-over:
			leave()
			return nil, false
		}
	}
	return leave, true
}
