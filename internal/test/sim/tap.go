package sim

import (
	"bufio"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// tap is a client's end of a connection. It sees each message before it leaves
// and before the client gets it.
type tap struct {
	net.Conn
	world  *world
	client int
	in     *bufio.Reader
	answer []byte // what the client has not read yet
	sent   bool   // the request that opens the connection
	opened bool   // it was answered
	word   bool   // the connection is for a four-letter word, and has no messages

	mu    sync.Mutex // guards asked
	asked map[int32]string
}

// tapped returns a dialer whose connections have a tap.
func (w *world) tapped(client int, to *testutil.ClientNet) func(network, address string, timeout time.Duration) (net.Conn, error) {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := to.Dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return w.tap(client, conn), nil
	}
}

func (w *world) tap(client int, conn net.Conn) *tap {
	return &tap{Conn: conn, world: w, client: client, in: bufio.NewReader(conn), asked: map[int32]string{}}
}

// Write passes whole frames on, which is how the wire client writes.
func (t *tap) Write(b []byte) (int, error) {
	if !t.sent && string(b) == "srvr" {
		t.word = true
		return t.Conn.Write(b)
	}
	for rest := b; len(rest) > 0; {
		n := len(rest)
		if d := wire.NewDecoder(rest); len(rest) >= 4 {
			n = min(n, 4+int(d.Int32()))
		}
		t.sends(rest[:n])
		if _, err := t.Conn.Write(rest[:n]); err != nil {
			return len(b) - len(rest), err
		}
		rest = rest[n:]
	}
	return len(b), nil
}

func (t *tap) sends(frame []byte) {
	if !t.sent {
		t.sent = true
		var ask wire.ConnectRequest
		again := wire.Unmarshal(frame[4:], &ask) == nil && ask.SessionID != 0
		t.world.happens(t.client, Sent, connecting, message{frame: frame, again: again})
		return
	}
	var head wire.RequestHeader
	head.Decode(wire.NewDecoder(frame[4:]))
	op := testutil.Op(head.Op).String()
	t.mu.Lock()
	t.asked[head.Xid] = op
	t.mu.Unlock()
	t.world.happens(t.client, Sent, op, message{frame: frame, xid: head.Xid, batch: batchIn(frame)})
}

// batchIn returns the operations of a multi that has only creates and deletes,
// nil if the frame is none.
func batchIn(frame []byte) (ops []string) {
	d := wire.NewDecoder(frame[4:])
	var head wire.RequestHeader
	head.Decode(d)
	if head.Op != wire.OpMulti {
		return nil
	}
	var multi wire.MultiRequest
	multi.Decode(d)
	for _, op := range multi.Ops {
		if op.Op != wire.OpCreate && op.Op != wire.OpDelete || d.Err() != nil {
			return nil
		}
		ops = append(ops, testutil.Op(op.Op).String())
	}
	return ops
}

// connecting is the operation that opens a connection.
var connecting = testutil.OpCreateSession.String()

// Read gives the client one frame at a time.
func (t *tap) Read(b []byte) (int, error) {
	if t.word {
		return t.Conn.Read(b)
	}
	if len(t.answer) == 0 {
		var head [4]byte
		if _, err := io.ReadFull(t.in, head[:1]); err != nil {
			return 0, err // a deadline, or the end
		}
		if _, err := io.ReadFull(t.in, head[1:]); err != nil {
			return 0, err
		}
		body, err := wire.ReadPayload(t.in, head, wire.MaxFrame, nil)
		if err != nil {
			return 0, err
		}
		t.answer = append(head[:], body...)
		if !t.receives(body) {
			t.answer = nil
			return 0, syscall.ECONNRESET
		}
	}
	n := copy(b, t.answer)
	t.answer = t.answer[n:]
	return n, nil
}

// receives reports whether the client gets the frame: not if the connection is
// broken at this moment.
func (t *tap) receives(body []byte) bool {
	if !t.opened {
		t.opened = true
		var answer wire.ConnectResponse
		if wire.Unmarshal(body, &answer) == nil && answer.SessionID != 0 {
			t.world.belongs(answer.SessionID, t.client)
		}
		return !t.world.happens(t.client, Answered, connecting, message{})
	}
	var head wire.ReplyHeader
	if wire.Unmarshal(body, &head) == nil && head.Xid == wire.XidNotification {
		return !t.world.happens(t.client, Notified, "watch", message{})
	}
	t.mu.Lock()
	op := t.asked[head.Xid]
	t.mu.Unlock()
	return !t.world.happens(t.client, Answered, op, message{})
}
