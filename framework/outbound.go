package framework

import (
	"net"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// outbound sends the frames of a connection, several of them in one system call
// where that is possible: each call costs time, and wakes the server. It keeps
// a create back until the list behind it has come, and sends both at once. The
// lists behind a batch of many creates are also sent together.
//
// Nothing is kept back for long. A goroutine that announces a list passes it to
// the wire client at once, or withdraws it; it waits for no answer in between.
// Any other request is sent at once, together with what is kept back. If the
// connection ends first, it is unknown whether the frames were sent, as for
// every request without an answer.
type outbound struct {
	conn net.Conn

	mu        sync.Mutex // also held during a write: frames leave in order
	kept      []byte     // whole frames
	announced int        // lists that have neither come nor been withdrawn
	fresh     int        // part of announced: by the frame that is about to be sent
}

const (
	// mostAwaited is how many lists a frame may wait for. A batch with more
	// creates is sent at once: its lists come before the ensemble has executed
	// it.
	mostAwaited = 2
	// mostKept is how many bytes are kept back.
	mostKept = 16 << 10
)

// announce says that a list will follow the frame that is about to be sent. The
// caller must then send the list, or call withdraw.
func (o *outbound) announce() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.announced++
	o.fresh++
}

// withdraw says that an announced list may not come. If it has come after all,
// frames that wait for another list are sent early, which does no harm.
func (o *outbound) withdraw() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.announced = max(0, o.announced-1)
	if o.announced > 0 {
		return nil
	}
	return o.flushLocked()
}

// send sends a frame, at once or together with a later one.
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
