package testutil

import (
	"bytes"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

func (c *conn) decodeConnect(frame []byte) (*request, error) {
	m := new(wire.ConnectRequest)
	if err := wire.Unmarshal(frame, m); err != nil {
		return nil, err
	}
	return &request{c: c, member: c.m, connect: m, op: wire.OpCreateSession, session: m.SessionID}, nil
}

// connectLocked opens a connection: for a new session at once, for an existing
// session after the leader has confirmed it.
func (c *conn) connectLocked(r *request) {
	m, ask := c.m, r.connect
	if !m.serving() {
		c.closeLocked()
		return
	}
	if ask.LastZxidSeen > m.tree.zxid {
		m.e.cfg.logf("testutil: member %d closes a connection: the client has seen transaction %#x, the member only %#x",
			m.index, ask.LastZxidSeen, m.tree.zxid)
		c.closeLocked()
		return
	}
	m.e.countLocked(wire.OpCreateSession)
	asked := time.Duration(ask.Timeout) * time.Millisecond
	c.timeout = int32(min(max(asked, m.least), m.most) / time.Millisecond)
	r.timeout, c.readOnly = c.timeout, ask.HasReadOnly
	if ask.SessionID == 0 {
		r.session = m.newSessionLocked()
		c.forwardLocked(r)
		return
	}
	r.session, r.attach = ask.SessionID, true
	if old := m.bySession[r.session]; old != nil {
		old.closeLocked()
	}
	if !bytes.Equal(ask.Password, password(r.session)) {
		m.e.cfg.logf("testutil: member %d refuses session %#x: wrong password", m.index, r.session)
		c.refuseLocked(r)
		return
	}
	c.forwardLocked(r)
}

// attachedLocked takes the leader's answer about an existing session.
func (c *conn) attachedLocked(r *request, valid bool) {
	if !valid {
		c.refuseLocked(r)
		return
	}
	c.establishedLocked(r)
	c.resumeLocked()
}

func (c *conn) establishedLocked(r *request) {
	if c.closed {
		return
	}
	c.session, c.open = r.session, true
	c.m.bySession[r.session] = c
	c.answeredLocked(r)
	c.answerLocked(r, wire.AppendFrame(nil, &wire.ConnectResponse{
		Timeout: c.timeout, SessionID: c.session, Password: password(c.session), HasReadOnly: c.readOnly,
	}))
	c.arrivalsLocked()
}

// refuseLocked tells the client that its session has expired and closes the
// connection.
func (c *conn) refuseLocked(r *request) {
	c.answerLocked(r, wire.AppendFrame(nil, &wire.ConnectResponse{
		Password: make([]byte, 16), HasReadOnly: r.connect.HasReadOnly,
	}))
	c.closeAfterSendingLocked()
}

// password derives a session's password from its id, as the server does: the
// first 16 bytes of a java.util.Random. So anyone who knows the id can take
// over or close the session.
func password(session int64) []byte {
	const secret, multiplier, mask = 0xB3415C00, 0x5DEECE66D, 1<<48 - 1
	seed := (uint64(session^secret) ^ multiplier) & mask
	b := make([]byte, 0, 16)
	for range 4 {
		seed = (seed*multiplier + 0xB) & mask
		v := uint32(seed >> 16)
		b = append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
	}
	return b
}
