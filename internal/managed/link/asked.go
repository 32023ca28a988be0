package link

import (
	"math"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

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
