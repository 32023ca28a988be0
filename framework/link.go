package framework

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// link is one connection of a session, seen from inside: it is the wire
// client's net.Conn, and the only place that sees all bytes. It
//
//   - enforces identity: a session's later connections must name it, and after
//     its death nothing is sent any more. The wire client would otherwise open
//     another session by itself and execute in it what was queued in this one;
//   - reads the negotiated time-out, id and password out of the connect answer,
//     which the wire client keeps to itself;
//   - notes what was sent and answered when, for the proof of contact;
//   - never reports a failed write: the wire client then answers the request
//     twice, and wedges for good. The connection is closed instead, which its
//     reading side notices.
//
// The wire client writes one frame per Write, from one goroutine at a time, and
// reads from one.
type link struct {
	net.Conn
	session *session
	read    *bufio.Reader
	mute    *time.Timer // closes the connection unless the connect is answered in time
	sentAt  time.Time   // when the connect request left; set before any answer can be read
	opened  bool        // the connect request has left
	last    bool        // so has the request that closes the session
	in      inbound
	asked   asked
	refused error // what came that makes no sense; nothing is read after it
}

// Byte offsets in frames, their length field included.
const (
	frameXid          = 4 // of a request or an answer
	frameOp           = 8 // of a request
	frameErr          = 16
	frameAnswerHead   = 20
	createPath        = 12 // of a create: the length of its path
	connectSessionID  = 20 // of a connect request
	connectAnswerHead = 40 // of a connect answer: length, version, timeout, id, password with its length
	passwordSize      = 16
)

func newLink(conn net.Conn, s *session, limit time.Duration) *link {
	l := &link{Conn: conn, session: s, read: bufio.NewReaderSize(conn, 4096)}
	l.mute = time.AfterFunc(limit, func() {
		s.core.abandoned(s, "no answer to the connect request")
		_ = conn.Close()
	})
	return l
}

func (l *link) Close() error {
	l.mute.Stop()
	return l.Conn.Close()
}

func (l *link) Write(p []byte) (int, error) {
	if l.last {
		// The server closes the connection behind the last answer; to run into that
		// here would be to close it before the answer was read.
		return len(p), nil
	}
	if !l.leaving(p) {
		_ = l.Close()
		return len(p), nil
	}
	if _, err := l.Conn.Write(p); err != nil {
		_ = l.Close()
	}
	return len(p), nil
}

// leaving looks at a frame before it leaves, and reports whether it may.
func (l *link) leaving(frame []byte) bool {
	now := time.Now()
	if !l.opened {
		l.opened, l.sentAt = true, now
		id := int64(0)
		if len(frame) >= connectSessionID+8 {
			id = int64(binary.BigEndian.Uint64(frame[connectSessionID:]))
		}
		return l.session.mayConnect(id)
	}
	if len(frame) < frameOp+4 {
		return !l.session.severed()
	}
	xid := int32(binary.BigEndian.Uint32(frame[frameXid:]))
	op := wire.Op(binary.BigEndian.Uint32(frame[frameOp:]))
	l.last = op == wire.OpCloseSession
	var path []byte
	if op == wire.OpCreate && len(frame) >= createPath+4 {
		n := int(binary.BigEndian.Uint32(frame[createPath:]))
		if rest := frame[createPath+4:]; n >= 0 && n <= len(rest) {
			path = rest[:n]
		}
	}
	if !l.session.sending(l, xid, op, path, now) {
		return false
	}
	if op == wire.OpSetWatches {
		l.session.hub.wire.asks(xid, watchesIn(frame))
	}
	l.asked.add(xid, op)
	return true
}

func (l *link) Read(p []byte) (int, error) {
	if l.refused != nil {
		return 0, l.refused
	}
	n, err := l.read.Read(p)
	whole, ok := l.in.feed(p[:n], l.arrived)
	if ok {
		return n, err
	}
	_ = l.Close()
	l.refused = errNonsense
	if size := l.in.size(); l.in.have >= 4 && size > l.in.limit() {
		l.refused = fmt.Errorf("an answer of %d bytes: more than %d cannot be", size, l.in.limit())
	}
	l.session.nonsense(l, l.refused)
	if whole > 0 {
		return whole, nil // the answers before it are what they are: a create's, perhaps
	}
	return 0, l.refused
}

// The wire client makes room for whatever length a frame claims. No answer to a
// connect is longer than a few dozen bytes, and no other should be beyond this.
const (
	maxConnectAnswer = 1 << 10
	maxAnswer        = 64 << 20
)

var errNonsense = errors.New("an answer that makes no sense")

// arrived looks at the head of a frame, and reports whether the wire client may
// get it, and what its body must be like for that.
func (l *link) arrived(head []byte, first bool) (body []piece, ok bool) {
	now := time.Now()
	if first {
		l.mute.Stop()
		answer, ok := parseConnectAnswer(head)
		return nil, ok && l.session.answered(l, answer, l.sentAt)
	}
	if len(head) < frameAnswerHead {
		return nil, false
	}
	xid := int32(binary.BigEndian.Uint32(head[frameXid:]))
	failed := binary.BigEndian.Uint32(head[frameErr:]) != 0
	switch {
	case xid == wire.XidNotification:
		body = notification
	case xid >= 0:
		op, ok := l.asked.take(xid)
		if !ok {
			return nil, false
		}
		if !failed {
			body = bodies[op]
		}
		if op == wire.OpSetWatches {
			l.session.hub.wire.answered(l, xid, failed)
		}
	}
	l.session.heard(l, xid, failed, now)
	return body, true
}

// parseConnectAnswer takes the answer to a connect request apart. A session id of 0
// says that the session is gone.
func parseConnectAnswer(head []byte) (answer wire.ConnectResponse, ok bool) {
	if len(head) < connectAnswerHead || wire.Unmarshal(head[4:], &answer) != nil || len(answer.Password) != passwordSize {
		return wire.ConnectResponse{}, false
	}
	answer.Password = bytes.Clone(answer.Password) // head is used again
	return answer, true
}

// inbound cuts the stream of answers into frames, and keeps their heads.
type inbound struct {
	head  [connectAnswerHead]byte
	have  int  // bytes of head
	body  int  // bytes of the frame after what head has, still to come
	later bool // the first frame, the connect answer, has been seen
	seen  bool // this frame's head was given away
	rest  anatomy
}

// feed takes the next bytes and calls arrived for each head that is complete. It
// reports false for a frame that must not reach the wire client, before the last
// byte of it does, and how many of the bytes are before that frame.
func (in *inbound) feed(p []byte, arrived func(head []byte, first bool) (body []piece, ok bool)) (whole int, ok bool) {
	all := len(p)
	for len(p) > 0 {
		if want := in.want(); in.have < want {
			n := copy(in.head[in.have:want], p)
			in.have += n
			p = p[n:]
			if in.have < 4 {
				continue
			}
			if size := in.size(); size < 0 || size > in.limit() {
				return whole, false
			}
			if in.have < in.want() {
				continue
			}
		}
		if !in.seen {
			in.seen = true
			in.body = 4 + in.size() - in.have
			body, ok := arrived(in.head[:in.have], !in.later)
			if !ok || !in.rest.begin(body, in.body) {
				return whole, false
			}
		}
		n := min(len(p), in.body)
		if !in.rest.feed(p[:n]) {
			return whole, false
		}
		p, in.body = p[n:], in.body-n
		if in.body <= 0 {
			in.have, in.seen, in.later = 0, false, true
			whole = all - len(p)
		}
	}
	return whole, true
}

func (in *inbound) size() int { return int(int32(binary.BigEndian.Uint32(in.head[:]))) }

func (in *inbound) limit() int {
	if in.later {
		return maxAnswer
	}
	return maxConnectAnswer
}

// want is how many bytes make the head of the present frame, as far as known.
func (in *inbound) want() int {
	if in.have < 4 {
		return 4
	}
	whole := frameAnswerHead
	if !in.later {
		whole = connectAnswerHead
	}
	return min(whole, 4+in.size())
}
