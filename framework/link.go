package framework

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// link is one connection of a session. It is the wire client's net.Conn, and
// the only place that sees all bytes. It
//
//   - enforces the identity of the session: each later connection must name it,
//     and nothing is sent once it is severed. The wire client would otherwise
//     open another session by itself, and execute in it what was queued in this
//     one;
//   - reads the negotiated timeout, the id and the password out of the connect
//     answer: the wire client does not reveal them;
//   - notes when requests were sent and answered, for the proof of contact;
//   - sends requests of its own, which the wire client does not know, and takes
//     their answers out: see frames.go;
//   - names in the connect request the latest transaction that any answer of
//     the session has had, so that no read goes back: the wire client knows
//     only its own answers;
//   - closes the connection when it brings an answer that makes no sense;
//   - never reports a failed write. The wire client would then answer the
//     request twice, and hang for good. The connection is closed instead, which
//     the wire client's reading side notices.
//
// The wire client writes one frame per Write, from one goroutine at a time, and
// reads from one goroutine. Requests of ours may leave behind a frame in the
// same write: see sendBehind.
type link struct {
	net.Conn
	session      *session
	to           server
	sending      chan struct{} // holds a token while a frame is noted and sent: both have the same order
	behind       []ownRequest  // that leave with the frame that is being sent
	whole        []byte        // memory for that
	asked        asked
	offers       offers
	presented    chan struct{} // closed: all credentials were sent
	unpresented  []auth
	read         *bufio.Reader
	sasl         SASLExchange // nil: none is needed, or the server has accepted it
	limit        time.Duration
	connectTimer *time.Timer // closes the connection unless the connect is answered in time
	connectSent  bool
	sentAt       time.Time // when the connect request was sent; set before any answer can be read
	answeredAt   time.Time // when the answer to it was read; zero: it is read now
	named        bool      // the connect request named a session
	seen         int64     // the latest transaction that the session has seen, as the connect request says
	begun        bool      // the first request was sent; see catchUp
	closeSent    bool      // the request that closes the session was sent
	in           inbound
	zxid         int64         // of the answer that is arriving
	grows        bool          // the wire client's buffer for answers may grow: see wireBuffers
	receiving    bool          // an answer has arrived in part
	granted      time.Duration // the session timeout in the connect answer
	unanswered   unanswered
	fault        error // what arrived that makes no sense; nothing is read after it
}

// Byte offsets in frames, their length field included.
const (
	frameXid          = 4 // of a request or an answer
	frameOp           = 8 // of a request
	frameZxid         = 8 // of an answer
	frameErr          = 16
	frameAnswerHead   = 20
	pathAt            = 12 // of a request about one path: the length of it
	multiPath         = 21 // of a multi: the length of the path of its first operation
	connectSeen       = 8  // of a connect request: the latest transaction that the client has seen
	connectSessionID  = 20 // of a connect request
	connectPassword   = 32 // of a connect request
	connectTimeout    = 8  // of a connect answer
	connectAnswerHead = 40 // of a connect answer: length, version, timeout, id, password with its length
	passwordSize      = 16
)

func newLink(conn net.Conn, s *session, to server, x SASLExchange, limit time.Duration) *link {
	l := &link{
		sasl: x, limit: limit,
		Conn: conn, session: s, to: to, sending: make(chan struct{}, 1),
		asked:       asked{waiting: make(map[int32]chan reply), ended: make(chan struct{})},
		presented:   make(chan struct{}),
		unpresented: slices.Clone(s.core.cfg.auths),
		read:        bufio.NewReader(conn),
	}
	if len(l.unpresented) == 0 {
		close(l.presented)
	}
	l.connectTimer = time.AfterFunc(limit, func() {
		s.core.onAbandoned(s, l, AbandonedSilent)
		_ = conn.Close()
	})
	return l
}

// server returns the server that l leads to, the zero one if l is nil.
func (l *link) server() (to server) {
	if l != nil {
		to = l.to
	}
	return to
}

func (l *link) Close() error {
	l.connectTimer.Stop()
	return l.Conn.Close()
}

func (l *link) Write(p []byte) (int, error) {
	l.sending <- struct{}{}
	defer func() { <-l.sending }()
	if l.closeSent {
		// The server closes the connection behind the last answer. A write that
		// fails for that would close it here, before the answer was read.
		return len(p), nil
	}
	frame, connects := p, !l.connectSent
	if connects {
		frame = l.session.nameRemembered(l.nameSeen(p))
	} else {
		l.catchUp(opOf(p))
	}
	if !l.beforeSend(frame) {
		_ = l.Close()
		return len(p), nil
	}
	if _, err := l.Conn.Write(l.withBehind(frame)); err != nil && !(connects && zkerr.IsHangUp(err)) { // why is read next
		_ = l.Close()
	}
	return len(p), nil
}

// nameSeen returns a connect request that names the latest transaction that the
// session has seen. The wire client knows only of those in answers to its own
// requests.
func (l *link) nameSeen(connect []byte) []byte {
	if len(connect) < connectSeen+8 {
		return connect
	}
	connect = bytes.Clone(connect)
	binary.BigEndian.PutUint64(connect[connectSeen:], uint64(l.session.latestSeen()))
	return connect
}

// beforeSend looks at a frame that is about to be sent, and reports whether it
// may be.
func (l *link) beforeSend(frame []byte) bool {
	now := clock.Now()
	if !l.connectSent {
		l.connectSent, l.sentAt = true, now
		id := int64(0)
		if len(frame) >= connectSessionID+8 {
			id = int64(binary.BigEndian.Uint64(frame[connectSessionID:]))
			l.named, l.seen = id != 0, int64(binary.BigEndian.Uint64(frame[connectSeen:]))
		}
		return l.session.mayConnect(id)
	}
	if len(frame) < frameOp+4 {
		return !l.session.isSevered()
	}
	xid := int32(binary.BigEndian.Uint32(frame[frameXid:]))
	op := opOf(frame)
	l.closeSent = op == wire.OpCloseSession
	if !l.session.onSend(l, xid, op, pathOfWrite(frame, op), now) {
		return false
	}
	if op == wire.OpAuth {
		l.onPresent(frame)
	}
	l.unanswered.add(xid, op)
	return true
}

// onPresent notes credentials that are about to be sent. Requests of ours wait
// for all of them: after a reconnect the wire client presents them one by one,
// when the session counts as connected already.
func (l *link) onPresent(frame []byte) {
	var sent wire.AuthRequest
	if len(l.unpresented) == 0 || wire.Unmarshal(frame[frameOp+4:], &sent) != nil {
		return
	}
	l.unpresented = slices.DeleteFunc(l.unpresented, func(a auth) bool {
		return a.scheme == sent.Scheme && bytes.Equal(a.data, sent.Auth)
	})
	if len(l.unpresented) == 0 {
		close(l.presented)
	}
}

// opOf returns what a frame asks for, 0 if that is not known.
func opOf(frame []byte) wire.Op {
	if len(frame) < frameOp+4 {
		return 0
	}
	return wire.Op(binary.BigEndian.Uint32(frame[frameOp:]))
}

// pathOfWrite returns the path of a create or a delete, and the first one of a
// multi.
func pathOfWrite(frame []byte, op wire.Op) []byte {
	switch op {
	case wire.OpMulti:
		return pathIn(frame, multiPath)
	case wire.OpCreate, wire.OpDelete:
		return pathIn(frame, pathAt)
	}
	return nil
}

// pathIn returns the path that begins, with its length, at an offset of a
// frame.
func pathIn(frame []byte, at int) []byte {
	if len(frame) < at+4 {
		return nil
	}
	n, rest := int(binary.BigEndian.Uint32(frame[at:])), frame[at+4:]
	if n < 0 || n > len(rest) {
		return nil
	}
	return rest[:n]
}

func (l *link) Read(p []byte) (int, error) {
	if l.fault != nil {
		return 0, l.fault
	}
	if !l.in.later {
		l.session.buffers.beforeAnswers()
	} else if !l.grows {
		l.grows = true
		l.session.buffers.whileAnswers()
	}
	for l.in.later && l.in.have == 0 {
		if own, err := l.readOwn(); err != nil {
			l.session.onEnd(l, err)
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
		l.onNoAnswer(err)
	}
	return n, err
}

// readOwn reads the next frame if that is the answer to a request of ours. It
// reports false if it is not, or cannot be an answer, which take finds out.
func (l *link) readOwn() (own bool, err error) {
	size, err := l.peekSize()
	if err != nil || size < frameAnswerHead || size > maxAnswer {
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
	l.asked.deliver(xid, reply{
		body:  frame[frameAnswerHead:],
		zxid:  int64(binary.BigEndian.Uint64(frame[frameZxid:])),
		order: l.session.order.Add(1),
		code:  wire.Code(binary.BigEndian.Uint32(frame[frameErr:])),
	})
	return true, nil
}

// peekSize returns the size of the next frame, its length field included.
func (l *link) peekSize() (int, error) {
	head, err := l.read.Peek(4)
	if err != nil {
		return 0, err
	}
	return 4 + int(int32(binary.BigEndian.Uint32(head))), nil
}

// peekConnectAnswer returns the frame of the answer to the connect, nil if none
// comes, or if it cannot be one: Read meets that again.
func (l *link) peekConnectAnswer() []byte {
	size, err := l.peekSize()
	if err != nil || size < connectAnswerHead || size > 4+maxConnectAnswer {
		return nil
	}
	frame, err := l.read.Peek(size)
	if err != nil {
		return nil
	}
	return frame
}

// take checks bytes that have arrived, none of them beyond the present frame.
// It closes the connection and reports false if they cannot be an answer.
func (l *link) take(p []byte) bool {
	ok := l.in.feed(p, l.onHead)
	if l.in.later {
		l.connectTimer.Stop() // not before: the wire client waits for the end without a limit
	}
	if ok {
		if l.in.seen || l.receiving {
			l.receiving = l.in.seen
			l.session.onBytes(l, len(p), l.receiving)
		}
		if l.in.have == 0 && l.zxid > 0 { // not before the whole answer was checked
			l.session.onSeen(l, l.zxid)
			l.zxid = 0
		}
		return true
	}
	_ = l.Close()
	if errors.Is(l.fault, zkerr.AnotherSession) || errors.Is(l.fault, errNotCaughtUp) || errors.Is(l.fault, errNotVouched) {
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
	l.session.onMalformed(l, l.fault)
	return false
}

// limitTimeout makes the answer to a connect grant at most what was granted in
// this session before: see package proof. The wire client asks for what was
// granted last, and derives its pings from it. So each connect asks for exactly
// that.
func (l *link) limitTimeout() {
	answer := l.peekConnectAnswer()
	if answer == nil {
		return
	}
	field := answer[connectTimeout:]
	l.granted = time.Duration(int32(binary.BigEndian.Uint32(field))) * time.Millisecond
	if most := l.session.mostTimeout(); most > 0 && l.granted > most {
		binary.BigEndian.PutUint32(field, uint32(most.Milliseconds()))
	}
}

// SetReadDeadline does nothing. The wire client would allow two thirds of the
// session timeout for an answer, a large one included. checkClock decides when
// a connection is silent for too long.
func (l *link) SetReadDeadline(time.Time) error { return nil }

// The wire client allocates whatever length a frame claims. These are more than
// any answer to a connect needs, and more than any other answer should need.
const (
	maxConnectAnswer = 1 << 10
	maxAnswer        = 64 << 20
)

// tlsAlert begins what a server that expects TLS answers to anything else.
var tlsAlert = []byte{21, 3}

// onHead looks at the head of a frame, and reports whether the wire client may
// have the frame, and which fields its body must have for that.
func (l *link) onHead(head []byte, first bool) (body []field, ok bool) {
	now := clock.Now()
	if first {
		answer, ok := parseConnectAnswer(head)
		if ok {
			if l.fault = l.vouch(answer.SessionID); l.fault != nil {
				return nil, false
			}
		}
		if ok && l.session.isAnother(answer.SessionID) {
			l.fault = l.closeAnother()
			return nil, false
		}
		if ok && answer.SessionID != 0 {
			l.fault = l.session.core.cfg.accepts(time.Duration(answer.Timeout) * time.Millisecond)
			ok = l.fault == nil && l.sasl == nil // never go on unauthenticated
		}
		return nil, ok && l.session.onConnectAnswer(l, answer, l.sentAt)
	}
	if len(head) < frameAnswerHead {
		return nil, false
	}
	xid := int32(binary.BigEndian.Uint32(head[frameXid:]))
	code := wire.Code(binary.BigEndian.Uint32(head[frameErr:]))
	failed := code != wire.OK
	switch {
	case xid == wire.XidNotification:
		l.session.onEventOn(l)
		body = notification
	case failed && l.session.isNotCaughtUp(xid, code):
		l.fault = errNotCaughtUp
		l.session.core.servers.noteFault(l.to, fmt.Errorf("%s: %w", l.to, l.fault))
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
			l.session.core.refuse(op, zkerr.Of(code))
		}
	}
	l.session.onAnswer(l, xid, failed, now)
	return body, true
}

// parseConnectAnswer decodes the answer to a connect request. Its session id is
// 0 if the session is gone.
func parseConnectAnswer(head []byte) (answer wire.ConnectResponse, ok bool) {
	if len(head) < connectAnswerHead || wire.Unmarshal(head[4:], &answer) != nil || len(answer.Password) != passwordSize {
		return wire.ConnectResponse{}, false
	}
	answer.Password = bytes.Clone(answer.Password) // head is used again
	return answer, true
}
