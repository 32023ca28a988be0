package framework

import (
	"context"
	"math"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file sends requests that the wire client does not know, as frames of our
// own between its frames on the same connection. Their answers are checked like
// all answers, and taken out of the stream before the wire client sees them:
// see link. They count in the proof of contact as any read does.
//
// A frame of ours is for one connection. If that ends first, the request fails
// as the wire client's do, and its outcome is unknown.
//
// Such requests must be reads, or such that executing one twice does no harm.

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

func (s *session) nextOwnXid() int32 { return ownXid(s.ownRequests.Add(1) - 1) }

// reply is an answer to a request of ours.
type reply struct {
	body  []byte
	zxid  int64
	order uint64 // its place among the answers to such requests, and the events, of the session
	code  wire.Code
}

// asked are the requests of ours that wait for an answer on a connection.
type asked struct {
	mu      sync.Mutex           // guards what follows
	waiting map[int32]chan reply // by number
	isOver  bool

	ended chan struct{} // closed: no answer comes any more
}

// add returns where the answer to a request arrives, nil if none can. It is
// closed if none comes any more.
func (a *asked) add(xid int32) <-chan reply {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isOver {
		return nil
	}
	answer := make(chan reply, 1)
	a.waiting[xid] = answer
	return answer
}

// deliver passes an answer on.
func (a *asked) deliver(xid int32, r reply) {
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

// ask sends a request that the wire client does not know, and waits for the
// answer: until the connection ends, or the session is over. It sends none when
// ctx has ended, and only on the connection on, if that is not nil. size is how
// large the answer may be expected to be. It fails as a call of the wire client
// does.
func (s *session) ask(ctx context.Context, on *link, op wire.Op, body wire.Appender, size int) (reply, error) {
	leave, ok := s.window.enter(ctx, size, s.over)
	if !ok {
		return reply{}, zk.ErrNoServer
	}
	defer leave()
	l := s.usable()
	if l == nil || on != nil && on != l {
		return reply{}, zk.ErrNoServer
	}
	return l.ask(ctx, op, body)
}

// usable returns the connection for a request of ours, nil if there is none.
func (s *session) usable() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isReadyLocked() {
		return nil
	}
	return s.link
}

func (l *link) ask(ctx context.Context, op wire.Op, body wire.Appender) (reply, error) {
	if !l.awaitPresented(ctx) {
		return reply{}, zk.ErrNoServer
	}
	xid := l.session.nextOwnXid()
	answer := l.asked.add(xid)
	if answer == nil || !l.sendOwn(op, wire.AppendFrame(nil, &wire.RequestHeader{Xid: xid, Op: op}, body), xid) {
		return reply{}, zk.ErrNoServer
	}
	return l.await(answer)
}

// awaitPresented waits until all credentials were sent. It reports false if
// nothing can be sent.
func (l *link) awaitPresented(ctx context.Context) bool {
	select {
	case <-l.presented:
		return true
	case <-ctx.Done():
	case <-l.asked.ended:
	case <-l.session.over:
	}
	return false
}

// await returns the answer to a request that was sent.
func (l *link) await(answer <-chan reply) (reply, error) {
	select {
	case r, ok := <-answer:
		if ok {
			return r, zkerr.Of(r.code)
		}
	case <-l.session.over:
	}
	return reply{}, zk.ErrConnectionClosed
}

// isPresented reports whether all credentials were sent.
func (l *link) isPresented() bool {
	select {
	case <-l.presented:
		return true
	default:
		return false
	}
}

// ownRequest is a request of ours that leaves with a frame of the wire client.
type ownRequest struct {
	xid  int32
	op   wire.Op
	body wire.Appender
}

// sendBehind sends a request of ours behind the frame that is about to be sent,
// in the same write: each write costs time, and wakes the server. Only what
// onSend calls may call it. It returns where the answer arrives, nil if none
// can. It does not enter the window: the creates that it is sent behind bound
// how much is asked for.
func (l *link) sendBehind(op wire.Op, body wire.Appender) <-chan reply {
	xid := l.session.nextOwnXid()
	answer := l.asked.add(xid)
	if answer != nil {
		l.behind = append(l.behind, ownRequest{xid, op, body})
	}
	return answer
}

// withBehind returns a frame together with what is sent behind it.
func (l *link) withBehind(frame []byte) []byte {
	if len(l.behind) == 0 {
		return frame
	}
	l.whole = append(l.whole[:0], frame...)
	for _, r := range l.behind {
		if !l.session.onSend(l, r.xid, r.op, nil, clock.Now()) {
			break // severed: the connection is about to be closed
		}
		l.unanswered.add(r.xid, r.op)
		l.whole = wire.AppendFrame(l.whole, &wire.RequestHeader{Xid: r.xid, Op: r.op}, r.body)
	}
	clear(l.behind)
	l.behind = l.behind[:0]
	whole := l.whole
	if cap(whole) > mostKept {
		l.whole = nil
	}
	return whole
}

// mostKept is how large the memory for a write may be to be kept.
const mostKept = 64 << 10

// askTogether sends requests for one operation on the connection on, in one
// piece, and calls each with the answers, in order. If nothing can be sent it
// does so with zk.ErrNoServer.
func (s *session) askTogether(on *link, op wire.Op, bodies []wire.Appender, each func(i int, r reply, err error)) {
	answers := make([]<-chan reply, len(bodies))
	sent := false
	leave, ok := s.window.enter(context.Background(), len(bodies)*onePlace, s.over)
	if ok {
		defer leave()
		sent = on != nil && s.usable() == on && on.sendTogether(op, bodies, answers)
	}
	for i, answer := range answers {
		if !sent {
			each(i, reply{}, zk.ErrNoServer)
			continue
		}
		r, err := on.await(answer)
		each(i, r, err)
	}
}

func (l *link) sendTogether(op wire.Op, bodies []wire.Appender, answers []<-chan reply) bool {
	if !l.awaitPresented(context.Background()) {
		return false
	}
	var frames []byte
	xids := make([]int32, len(bodies))
	for i, body := range bodies {
		xids[i] = l.session.nextOwnXid()
		if answers[i] = l.asked.add(xids[i]); answers[i] == nil {
			return false
		}
		frames = wire.AppendFrame(frames, &wire.RequestHeader{Xid: xids[i], Op: op}, body)
	}
	return l.sendOwn(op, frames, xids...)
}

// sendOwn sends frames of ours, and reports false if they were not sent.
func (l *link) sendOwn(op wire.Op, frames []byte, xids ...int32) bool {
	select {
	case l.sending <- struct{}{}:
	case <-l.asked.ended:
		return false
	}
	defer func() { <-l.sending }()
	if l.closeSent {
		return false
	}
	l.catchUp(op)
	for _, xid := range xids {
		if !l.session.onSend(l, xid, op, nil, clock.Now()) {
			return false
		}
		l.unanswered.add(xid, op)
	}
	if _, err := l.Conn.Write(frames); err != nil {
		_ = l.Close()
	}
	return true
}
