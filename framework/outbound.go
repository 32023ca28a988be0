package framework

import (
	"net"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// outbound writes the frames of a connection. Each write costs a system call,
// and wakes the server. So it keeps a create back until the list behind it has
// come, and writes both at once. The lists behind a batch of many creates leave
// together, too.
//
// Nothing is kept back for long. Whoever announces a list hands it to the wire
// client at once, or withdraws it. No answer is needed for either. Every other
// request sends what is kept back along with it. If the connection ends first,
// nobody can know whether the frames left, as with all that was not answered.
type outbound struct {
	conn net.Conn

	mu        sync.Mutex // also held during a write: frames leave in order
	kept      []byte     // whole frames
	announced int        // lists that have neither come nor been withdrawn
	fresh     int        // part of announced: by the frame that is about to be sent
}

const (
	// mostAwaited is for how many lists a frame is kept back. The ensemble takes
	// longer to execute a larger batch than the lists behind it take to come.
	mostAwaited = 2
	// mostKept is how many bytes are kept back.
	mostKept = 16 << 10
)

// announce says that a list will follow the frame that is about to be sent.
// Then it is either sent or withdrawn.
func (o *outbound) announce() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.announced++
	o.fresh++
}

// withdraw says that a list may not come. If it has come, what is kept back for
// another one leaves early, which does no harm.
func (o *outbound) withdraw() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.announced = max(0, o.announced-1)
	if o.announced > 0 {
		return nil
	}
	return o.flushLocked()
}

// send writes a frame, now or with one of the next.
func (o *outbound) send(frame []byte, op wire.Op) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	isList := op == wire.OpGetChildren2
	if isList {
		o.announced = max(0, o.announced-1)
	}
	mayWait := isList || o.fresh > 0 && o.fresh <= mostAwaited
	o.fresh = 0
	if len(o.kept)+len(frame) > mostKept {
		if err := o.flushLocked(); err != nil {
			return err
		}
	}
	now := o.announced == 0 || !mayWait
	if now && len(o.kept) == 0 || len(frame) > mostKept {
		_, err := o.conn.Write(frame)
		return err
	}
	o.kept = append(o.kept, frame...)
	if now {
		return o.flushLocked()
	}
	return nil
}

// flushLocked writes what is kept back.
func (o *outbound) flushLocked() error {
	if len(o.kept) == 0 {
		return nil
	}
	_, err := o.conn.Write(o.kept)
	o.kept = o.kept[:0]
	return err
}
