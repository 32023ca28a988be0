package testutil

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// relay is one connection of a ClientNet. It forwards between the far end of
// the client's pipe and the connection to a member, which may be a goroutine or
// a JVM. It reads whole frames in both directions and does to each what the
// control functions have decided: forward it, hold it, answer it, or close the
// connection. Cuts need no frames: the pipe does them.
//
// Four goroutines serve it, two in each direction: one reads and decides, the
// other writes what is due.
type relay struct {
	n        *ClientNet
	imitates Imitation
	member   int
	client   *pipeEnd // where the client's requests arrive
	server   net.Conn
	toServer *delayQueue
	toClient *delayQueue
	broken   chan struct{} // closed when nothing more is forwarded
	breaking sync.Once
	unframed atomic.Bool // a four-letter word or TLS: there are no frames

	mu      sync.Mutex // guards what follows, and the order of answers in toClient
	session int64
	zxid    int64            // of the last answer
	pending []pendingRequest // requests without an answer yet, in order
}

// pendingRequest is a request that still needs an answer.
type pendingRequest struct {
	xid      int32
	connect  bool // it opens the connection, and has no xid
	readOnly bool // the connect request has the read-only byte, so the reply must have it
	action   Action

	op         Op
	path       string
	operations int // of a multi
}

// maxAnswer is the size of the largest answer that is relayed. Servers limit
// the size of requests, not of answers.
const maxAnswer = 64 << 20

func newRelay(n *ClientNet, member int, client *pipeEnd, server net.Conn) *relay {
	return &relay{
		n: n, imitates: n.imitates, member: member, client: client, server: server, broken: make(chan struct{}),
		toServer: newDelayQueue(&n.toServerDelay), toClient: newDelayQueue(&n.toClientDelay),
	}
}

func (r *relay) run() {
	defer r.n.wg.Done()
	var wg sync.WaitGroup
	wg.Go(r.requests)
	wg.Go(r.answers)
	wg.Go(func() {
		r.toServer.run(r.broken, r.server)
		if half, ok := r.server.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // the server may be gone already
		} else {
			r.breakOff()
		}
	})
	wg.Go(func() {
		r.toClient.run(r.broken, r.client)
		r.client.Close()
	})
	ended := make(chan struct{})
	r.n.wg.Go(func() { // a frozen member never closes its side
		select {
		case <-r.n.done:
			r.breakOff()
		case <-ended:
		}
	})
	wg.Wait()
	close(ended)
	r.server.Close()
}

// breakOff breaks the connection at both ends, at once.
func (r *relay) breakOff() {
	r.breaking.Do(func() {
		close(r.broken)
		r.client.breakOff()
		r.server.Close()
	})
}

// requests reads what the client sends.
func (r *relay) requests() {
	err := r.readRequests(bufio.NewReaderSize(r.client, 16<<10))
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, wire.ErrMalformed) {
		r.breakOff()
	}
	r.toServer.put(outbound{last: true})
}

func (r *relay) readRequests(in *bufio.Reader) error {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return err
	}
	if isWord(head) || beginsTLS(head) {
		r.unframed.Store(true)
		r.toServer.put(outbound{data: head[:]})
		_, err := io.Copy(r.toServer, in)
		return err
	}
	frame, err := wire.ReadPayload(in, head, wire.MaxFrame, nil)
	for first := true; err == nil; first = false {
		if hangUp := r.request(frame, first); hangUp {
			return nil
		}
		frame, err = wire.ReadFrame(in, wire.MaxFrame, nil)
	}
	return err
}

// request forwards a request, or does what the control functions decide. It
// reports whether to close the client's connection.
func (r *relay) request(frame []byte, first bool) (hangUp bool) {
	seen := Request{Member: r.member}
	x := pendingRequest{connect: first}
	if first {
		var ask wire.ConnectRequest
		if wire.Unmarshal(frame, &ask) == nil {
			seen.Session, x.readOnly = ask.SessionID, ask.HasReadOnly
			if r.imitates == ClickHouseKeeper && ask.SessionID != 0 {
				frame = anew(ask)
			}
		}
		seen.Op = OpCreateSession
	} else {
		inspectRequest(frame, &seen)
		r.mu.Lock()
		seen.Session = r.session
		r.mu.Unlock()
		x.xid, x.op, x.path, x.operations = seen.Xid, seen.Op, seen.Path, len(seen.Operations)
	}
	a := r.imitate(seen, r.n.ask(seen))
	x.action = a
	if a.kind == dropBefore || a.kind == fail && a.code == CodeSessionMoved {
		r.toClient.put(outbound{last: true})
		return true
	}
	r.mu.Lock()
	r.pending = append(r.pending, x)
	r.answerFailedLocked()
	r.mu.Unlock()
	out := outbound{data: reframe(frame)}
	switch a.kind {
	case fail:
		return first
	case delayRequest:
		out.due = time.Now().Add(a.delay)
	case holdRequest:
		out.gate = a.release
	}
	r.toServer.put(out)
	return false
}

// inspectRequest decodes what a control function needs to know about a request.
func inspectRequest(frame []byte, seen *Request) {
	d := wire.NewDecoder(frame)
	var head wire.RequestHeader
	head.Decode(d)
	seen.Op, seen.Xid = Op(head.Op), head.Xid
	if body := newBody(head.Op); body != nil && d.Err() == nil {
		if body.Decode(d); d.Err() == nil {
			seen.Path, seen.Operations = pathOf(body), operationsOf(body)
		}
	}
}

func reframe(payload []byte) []byte {
	return append(wire.AppendInt32(make([]byte, 0, 4+len(payload)), int32(len(payload))), payload...)
}

// answerFailedLocked answers the requests that do not reach the server, once
// everything before them has been answered.
func (r *relay) answerFailedLocked() {
	for len(r.pending) > 0 && r.pending[0].action.kind == fail {
		x := r.pending[0]
		r.pending = r.pending[1:]
		if x.connect {
			r.toClient.put(outbound{data: wire.AppendFrame(nil, &wire.ConnectResponse{Password: make([]byte, 16), HasReadOnly: x.readOnly})})
			r.toClient.put(outbound{last: true})
			return
		}
		code, body := x.action.failure(x.operations)
		answer := []wire.Appender{&wire.ReplyHeader{Xid: x.xid, Zxid: r.zxid, Err: code}}
		if body != nil {
			answer = append(answer, body)
		}
		r.toClient.put(outbound{data: wire.AppendFrame(nil, answer...)})
	}
}

// answers reads what the server sends.
func (r *relay) answers() {
	err := r.readAnswers(bufio.NewReaderSize(r.server, 16<<10))
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		r.breakOff()
	}
	r.toClient.put(outbound{last: true})
}

func (r *relay) readAnswers(in *bufio.Reader) error {
	for {
		var head [4]byte
		n, err := io.ReadFull(in, head[:])
		if r.unframed.Load() {
			r.toClient.put(outbound{data: head[:n]})
			if err == nil {
				_, err = io.Copy(r.toClient, in)
			}
			return err
		}
		if err != nil {
			return err
		}
		frame, err := wire.ReadPayload(in, head, maxAnswer, nil)
		if err != nil {
			return err
		}
		r.answer(frame)
	}
}

// answer forwards an answer, or does what was decided for its request.
func (r *relay) answer(frame []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.matchLocked(frame)
	a := x.action
	if r.imitates == ClickHouseKeeper {
		r.n.keeper.restate(x.op, x.path, frame)
	}
	out := outbound{data: reframe(frame)}
	switch a.kind {
	case dropAfter:
		out = outbound{last: true}
	case delayReply:
		out.due = time.Now().Add(a.delay)
	case holdReply:
		out.gate = a.release
	case lose:
		return
	}
	r.toClient.put(out)
	r.answerFailedLocked()
}

// matchLocked returns the request that frame answers. Answers have the order of
// their requests, except for those to auth, which overtake. A notification
// answers no request.
func (r *relay) matchLocked(frame []byte) pendingRequest {
	if len(r.pending) > 0 && r.pending[0].connect {
		var opened wire.ConnectResponse
		if wire.Unmarshal(frame, &opened) == nil {
			r.session = opened.SessionID
		}
		x := r.pending[0]
		r.pending = r.pending[1:]
		return x
	}
	var head wire.ReplyHeader
	if wire.Unmarshal(frame, &head) != nil {
		return pendingRequest{}
	}
	if head.Xid == wire.XidNotification {
		if r.n.loseEvents.Load() {
			return pendingRequest{action: Action{kind: lose}}
		}
		return pendingRequest{}
	}
	if head.Zxid > 0 {
		r.zxid = head.Zxid
	}
	for i, x := range r.pending {
		if x.xid == head.Xid && x.action.kind != fail {
			r.pending = append(r.pending[:i:i], r.pending[i+1:]...)
			return x
		}
	}
	return pendingRequest{}
}

// delayQueue holds what is on its way in one direction.
type delayQueue struct {
	latency *atomic.Int64
	wake    chan struct{} // receives when queue is not empty

	mu    sync.Mutex // guards queue
	queue []outbound
}

func newDelayQueue(latency *atomic.Int64) *delayQueue {
	return &delayQueue{latency: latency, wake: make(chan struct{}, 1)}
}

// Write queues bytes.
func (l *delayQueue) Write(b []byte) (int, error) {
	l.put(outbound{data: append([]byte(nil), b...)})
	return len(b), nil
}

func (l *delayQueue) put(o outbound) {
	if d := time.Duration(l.latency.Load()); d > 0 {
		if late := time.Now().Add(d); o.due.Before(late) {
			o.due = late
		}
	}
	l.mu.Lock()
	l.queue = append(l.queue, o)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run writes what is due, in order, until the last item or until broken is
// closed. What can no longer be written is dropped.
func (l *delayQueue) run(broken <-chan struct{}, w io.Writer) {
	for {
		l.mu.Lock()
		queue := l.queue
		l.queue = nil
		l.mu.Unlock()
		if len(queue) == 0 {
			select {
			case <-l.wake:
				continue
			case <-broken:
				return
			}
		}
		for _, o := range queue {
			if !o.await(broken) || o.last {
				return
			}
			_, _ = w.Write(o.data) // the reader has gone: the other direction notices that itself
		}
	}
}

// await waits until it is time to send, and returns false if over was closed
// before that.
func (o *outbound) await(over <-chan struct{}) bool {
	if o.gate != nil {
		select {
		case <-o.gate:
		case <-over:
			return false
		}
	}
	if d := time.Until(o.due); !o.due.IsZero() && d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-over:
			return false
		}
	}
	return true
}
