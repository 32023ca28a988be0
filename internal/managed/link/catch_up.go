package link

import (
	"errors"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// No read goes back behind what the session knows: a connect request names the
// latest transaction that an answer has had, and a member that lags behind that
// one refuses it. But an event names none before 3.9. After it a connection can
// end before the next answer, and the next member may not know of the change
// yet: a holder that was let in by an event would read what stood there before
// the last holder's writes.
//
// So the first request on the next connection has a sync right before it. It
// has a frame of its own, and nobody waits for its answer: the requests of a
// session are executed in order. A leader answers it by itself. One that has
// lost its quorum, and has not noticed yet, need not know of the change. One
// may not have applied yet what its followers have.

var errNotCaughtUp = errors.New("the sync before the first request is refused")

// catchUp sends a sync if op is the first request of a connection, and on an
// earlier one the session was opened, or heard an event, and had no answer
// after that. The caller holds sending.
func (l *Link) catchUp(op wire.Op) {
	if l.begun || op == wire.OpAuth || op == wire.OpCloseSession {
		return
	}
	l.begun = true
	xid := l.chain.catchesUp(l)
	if xid == 0 || !l.chain.onSend(l, xid, wire.OpSync, nil, clock.Now()) {
		return
	}
	l.unanswered.add(xid, wire.OpSync)
	if _, err := l.Conn.Write(wire.AppendFrame(nil, &wire.RequestHeader{Xid: xid, Op: wire.OpSync}, &wire.PathRequest{Path: "/"})); err != nil {
		_ = l.Close()
	}
}

// catchesUp returns the number of the sync that must be the first request on l,
// 0 if none must. The answer to it is then the next one on l.
func (c *Chain) catchesUp(l *Link) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heardOn == nil || c.heardOn == l {
		return 0
	}
	c.heardOn, c.catchUpXid = l, c.nextOwnXid()
	return c.catchUpXid
}

// onEventOn notes that an event arrives on l.
func (c *Chain) onEventOn(l *Link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heardOn = l
}

// isNotCaughtUp reports whether a refusal is that of the sync of catchUp. A
// server that does not know the request is not asked again.
func (c *Chain) isNotCaughtUp(xid int32, code wire.Code) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return isOwnXid(xid) && xid == c.catchUpXid && code != wire.Unimplemented
}
