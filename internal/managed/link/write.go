package link

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Write sends a frame of the wire client, or closes the connection. It always
// reports success: see Link.
func (l *Link) Write(p []byte) (int, error) {
	l.sending <- struct{}{}
	defer func() { <-l.sending }()
	if l.closeSent {
		// The server closes the connection behind the last answer. A write that
		// fails for that would close it here, before the answer was read.
		return len(p), nil
	}
	frame, connects := p, !l.connectSent
	if connects {
		frame = l.chain.nameRemembered(l.nameSeen(p))
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

// beforeSend looks at a frame that is about to be sent, and reports whether it
// may be.
func (l *Link) beforeSend(frame []byte) bool {
	now := clock.Now()
	if !l.connectSent {
		l.connectSent, l.sentAt = true, now
		id := int64(0)
		if len(frame) >= connectSessionID+8 {
			id = int64(binary.BigEndian.Uint64(frame[connectSessionID:]))
			l.named, l.seen = id != 0, int64(binary.BigEndian.Uint64(frame[connectSeen:]))
		}
		return l.chain.mayConnect(id)
	}
	if len(frame) < frameOp+4 {
		return !l.chain.IsSevered()
	}
	xid := int32(binary.BigEndian.Uint32(frame[frameXid:]))
	op := opOf(frame)
	l.closeSent = op == wire.OpCloseSession
	if !l.chain.onSend(l, xid, op, pathOfWrite(frame, op), now) {
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
func (l *Link) onPresent(frame []byte) {
	var sent wire.AuthRequest
	if len(l.unpresented) == 0 || wire.Unmarshal(frame[frameOp+4:], &sent) != nil {
		return
	}
	l.unpresented = slices.DeleteFunc(l.unpresented, func(a wire.AuthRequest) bool {
		return a.Scheme == sent.Scheme && bytes.Equal(a.Auth, sent.Auth)
	})
	if len(l.unpresented) == 0 {
		close(l.presented)
	}
}
