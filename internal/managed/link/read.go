package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Read returns what the wire client may have of the next frame. Before that it
// takes out all answers to requests of ours.
func (l *Link) Read(p []byte) (int, error) {
	if l.fault != nil {
		return 0, l.fault
	}
	if !l.in.later {
		l.chain.buffers.beforeAnswers()
	} else if !l.grows {
		l.grows = true
		l.chain.buffers.whileAnswers()
	}
	for l.in.later && l.in.have == 0 {
		if own, err := l.readOwn(); err != nil {
			l.chain.onEnd(l, err)
			return 0, err
		} else if !own {
			break
		}
	}
	if !l.in.later && l.in.have == 0 {
		l.limitTimeout()
		if err := l.authenticateFirst(); err != nil {
			return 0, err
		}
	}
	answered := l.in.later || l.in.have > 0
	n, err := l.read.Read(p[:min(len(p), l.in.rest())]) // the next frame may be ours
	if !l.take(p[:n]) {
		return 0, l.fault
	}
	if n == 0 && !answered && err != nil {
		l.chain.told.Ended(l, Reason{NoAnswer, err})
	}
	return n, err
}

// readOwn reads the next frame if that is the answer to a request of ours. It
// reports false if it is not, or cannot be an answer, which take finds out.
func (l *Link) readOwn() (own bool, err error) {
	size, err := l.peekSize()
	if err != nil || size < frameAnswerHead || size > MaxAnswer {
		return false, err
	}
	head, err := l.read.Peek(frameXid + 4)
	if err != nil {
		return false, err
	}
	xid := int32(binary.BigEndian.Uint32(head[frameXid:]))
	if !isOwnXid(xid) {
		return false, nil
	}
	frame := make([]byte, 0, min(size, answerBuffer)) // more only when it has come
	for len(frame) < size {
		if len(frame) == cap(frame) {
			frame = slices.Grow(frame, min(len(frame), size-len(frame)))
		}
		n, err := l.read.Read(frame[len(frame):min(cap(frame), size)])
		if !l.take(frame[len(frame) : len(frame)+n]) {
			return true, l.fault
		}
		if frame = frame[:len(frame)+n]; err != nil {
			return true, err
		}
	}
	l.asked.deliver(xid, Reply{
		Body:  frame[frameAnswerHead:],
		Zxid:  int64(binary.BigEndian.Uint64(frame[frameZxid:])),
		Order: l.chain.NextOrder(),
		Code:  wire.Code(binary.BigEndian.Uint32(frame[frameErr:])),
	})
	return true, nil
}

// take checks bytes that have arrived, none of them beyond the present frame.
// It closes the connection and reports false if they cannot be an answer.
func (l *Link) take(p []byte) bool {
	ok := l.in.feed(p, l.onHead)
	if l.in.later {
		l.connectTimer.Stop() // not before: the wire client waits for the end without a limit
	}
	if ok {
		if l.in.seen || l.receiving {
			l.receiving = l.in.seen
			l.chain.told.Received(l, len(p), l.receiving, clock.Now())
		}
		if l.in.have == 0 && l.zxid > 0 { // not before the whole answer was checked
			l.chain.onSeen(l, l.zxid)
			l.zxid = 0
		}
		return true
	}
	_ = l.Close()
	if errors.Is(l.fault, zkerr.AnotherSession) || errors.Is(l.fault, errNotCaughtUp) || errors.Is(l.fault, zkerr.NotVouched) {
		return false
	}
	if l.fault == nil {
		l.fault = zkerr.Malformed
	}
	if !l.in.later && bytes.HasPrefix(l.in.head[:l.in.have], tlsAlert) {
		l.fault = errors.New("it answers with TLS, which this client was made without")
	} else if size := l.in.size(); l.in.have >= 4 && size > l.in.limit() {
		l.fault = fmt.Errorf("malformed answer: %d bytes, more than the limit of %d", size, l.in.limit())
	}
	l.chain.onMalformed(l, l.fault)
	return false
}

// tlsAlert begins what a server that expects TLS answers to anything else.
var tlsAlert = []byte{21, 3}

// onHead looks at the head of a frame, and reports whether the wire client may
// have the frame, and which fields its body must have for that.
func (l *Link) onHead(head []byte, first bool) (body []field, ok bool) {
	now := clock.Now()
	if first {
		answer, ok := parseConnectAnswer(head)
		if ok {
			if l.fault = l.vouch(answer.SessionID); l.fault != nil {
				return nil, false
			}
		}
		if ok && l.chain.isAnother(answer.SessionID) {
			l.fault = l.closeAnother()
			return nil, false
		}
		if ok && answer.SessionID != 0 {
			l.fault = l.chain.cfg.Accepts(time.Duration(answer.Timeout) * time.Millisecond)
			ok = l.fault == nil && l.authenticate == nil // never go on unauthenticated
		}
		return nil, ok && l.chain.onConnectAnswer(l, answer, l.sentAt)
	}
	if len(head) < frameAnswerHead {
		return nil, false
	}
	xid := int32(binary.BigEndian.Uint32(head[frameXid:]))
	code := wire.Code(binary.BigEndian.Uint32(head[frameErr:]))
	failed := code != wire.OK
	switch {
	case xid == wire.XidNotification:
		l.chain.onEventOn(l)
		body = notification
	case failed && l.chain.isNotCaughtUp(xid, code):
		l.fault = errNotCaughtUp
		l.chain.told.Ended(l, Reason{Fault, fmt.Errorf("%s: %w", l.to, l.fault)})
		return nil, false
	case xid >= 0, isOwnXid(xid):
		l.zxid = int64(binary.BigEndian.Uint64(head[frameZxid:]))
		op, ok := l.unanswered.take(xid, isOwnXid(xid) && code == wire.Unimplemented)
		if !ok {
			return nil, false
		}
		if !failed {
			body = bodies[op]
		} else if op == wire.OpMultiRead && zkerr.IsRefusal(zkerr.Of(code)) { // here: nobody may wait for the answer any more
			l.chain.told.Refused(op, zkerr.Of(code))
		}
	}
	l.chain.onAnswer(l, xid, failed, now)
	return body, true
}

// onAnswer notes an answer that arrived on l.
func (c *Chain) onAnswer(l *Link, xid int32, failed bool, now time.Time) {
	c.mu.Lock()
	if c.latest != l {
		c.mu.Unlock()
		return
	}
	c.answered = now
	if xid == c.closeXid && xid != 0 && !failed {
		c.closeConfirmed = true
	}
	c.mu.Unlock()
	c.told.Answered(l, xid, failed, now)
}

// onSeen notes the latest transaction that the server of l had applied when it
// answered.
func (c *Chain) onSeen(l *Link, zxid int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.latest == l {
		c.seen = max(c.seen, zxid)
	}
	if c.heardOn == l {
		c.heardOn = nil
	}
}

// onEnd notes that l has ended with err, between two answers.
func (c *Chain) onEnd(l *Link, err error) {
	if !zkerr.IsHangUp(err) {
		return
	}
	c.told.Ended(l, Reason{HungUp, err})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.latest == l && c.closeXid != 0 && errors.Is(err, io.EOF) {
		c.closeEnded = true
	}
}
