package link

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file sends requests that the wire client does not know, as frames of our
// own between its frames on the same connection. Their answers are checked like
// all answers, and taken out of the stream before the wire client sees them:
// see Link. They count in the proof of contact as any read does.
//
// A frame of ours is for one connection. If that ends first, the request fails
// as the wire client's do, and its outcome is unknown.
//
// Such requests must be reads, or such that executing one twice does no harm.

// Ask sends a request that the wire client does not know, and waits for the
// answer: until the connection ends, or the session is over. It sends none when
// ctx has ended, and only on the connection on, if that is not nil. size is how
// large the answer may be expected to be, in bytes. It fails as a call of the
// wire client does, with zk.ErrNoServer if nothing was sent.
func (c *Chain) Ask(ctx context.Context, on *Link, op wire.Op, body wire.Appender, size int) (Reply, error) {
	leave, ok := c.window.enter(ctx, size, c.over)
	if !ok {
		return Reply{}, zk.ErrNoServer
	}
	defer leave()
	l := c.Usable()
	if l == nil || on != nil && on != l {
		return Reply{}, zk.ErrNoServer
	}
	return l.ask(ctx, op, body)
}

// Usable returns the connection on which requests of ours may be sent, nil
// without one.
func (c *Chain) Usable() *Link {
	l := c.Latest()
	if l == nil || !c.told.IsUp(l) {
		return nil
	}
	return l
}

func (l *Link) ask(ctx context.Context, op wire.Op, body wire.Appender) (Reply, error) {
	if !l.awaitPresented(ctx) {
		return Reply{}, zk.ErrNoServer
	}
	xid := l.chain.nextOwnXid()
	answer := l.asked.add(xid)
	if answer == nil || !l.sendOwn(op, wire.AppendFrame(nil, &wire.RequestHeader{Xid: xid, Op: op}, body), xid) {
		return Reply{}, zk.ErrNoServer
	}
	return l.Await(answer)
}

// awaitPresented waits until all credentials were sent. It reports false if
// nothing can be sent.
func (l *Link) awaitPresented(ctx context.Context) bool {
	select {
	case <-l.presented:
		return true
	case <-ctx.Done():
	case <-l.asked.ended:
	case <-l.chain.over:
	}
	return false
}

// Await waits for an answer that SendBehind has promised, until the connection
// ends or the session is over. It fails as a call of the wire client does.
func (l *Link) Await(answer <-chan Reply) (Reply, error) {
	select {
	case r, ok := <-answer:
		if ok {
			return r, zkerr.Of(r.Code)
		}
	case <-l.chain.over:
	}
	return Reply{}, zk.ErrConnectionClosed
}

// HasEnded reports whether Ended is closed.
func (l *Link) HasEnded() bool { return closed.Is(l.asked.ended) }

// IsPresented reports whether all credentials were sent. Before that the server
// may refuse what is asked.
func (l *Link) IsPresented() bool { return closed.Is(l.presented) }

// SendBehind sends a request of ours behind the frame that is about to be sent,
// in the same write: each write costs time, and wakes the server. Only a
// function that AwaitSent calls may call it. It returns what Await needs, nil
// if no answer can come. It does not enter the window: the creates that it is
// sent behind bound how much is asked for.
func (l *Link) SendBehind(op wire.Op, body wire.Appender) <-chan Reply {
	xid := l.chain.nextOwnXid()
	answer := l.asked.add(xid)
	if answer != nil {
		l.behind = append(l.behind, ownRequest{xid, op, body})
	}
	return answer
}

// withBehind returns a frame together with what is sent behind it.
func (l *Link) withBehind(frame []byte) []byte {
	if len(l.behind) == 0 {
		return frame
	}
	l.whole = append(l.whole[:0], frame...)
	for _, r := range l.behind {
		if !l.chain.onSend(l, r.xid, r.op, nil, clock.Now()) {
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

// AskTogether sends requests for one operation on the connection on, in one
// write, and calls each with the answers, in order. If nothing can be sent each
// gets zk.ErrNoServer.
func (c *Chain) AskTogether(on *Link, op wire.Op, bodies []wire.Appender, each func(i int, r Reply, err error)) {
	answers := make([]<-chan Reply, len(bodies))
	sent := false
	leave, ok := c.window.enter(context.Background(), len(bodies)*OnePlace, c.over)
	if ok {
		defer leave()
		sent = on != nil && c.Usable() == on && on.sendTogether(op, bodies, answers)
	}
	for i, answer := range answers {
		if !sent {
			each(i, Reply{}, zk.ErrNoServer)
			continue
		}
		r, err := on.Await(answer)
		each(i, r, err)
	}
}

func (l *Link) sendTogether(op wire.Op, bodies []wire.Appender, answers []<-chan Reply) bool {
	if !l.awaitPresented(context.Background()) {
		return false
	}
	var frames []byte
	xids := make([]int32, len(bodies))
	for i, body := range bodies {
		xids[i] = l.chain.nextOwnXid()
		if answers[i] = l.asked.add(xids[i]); answers[i] == nil {
			return false
		}
		frames = wire.AppendFrame(frames, &wire.RequestHeader{Xid: xids[i], Op: op}, body)
	}
	return l.sendOwn(op, frames, xids...)
}

// sendOwn sends frames of ours, and reports false if they were not sent.
func (l *Link) sendOwn(op wire.Op, frames []byte, xids ...int32) bool {
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
		if !l.chain.onSend(l, xid, op, nil, clock.Now()) {
			return false
		}
		l.unanswered.add(xid, op)
	}
	if _, err := l.Conn.Write(frames); err != nil {
		_ = l.Close()
	}
	return true
}
