package link

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file is what happens on a connection before the session is confirmed on
// it. The connect request names the session and what it has seen. The answer
// grants no longer timeout than before. It counts only if its server is known
// to be of the ensemble, after an exchange if the client has one, and if it has
// the same session.

// Dial makes conn, which leads to a server, the next connection of the session.
// It sends nothing. authenticate, if it is not nil, runs when the connect was
// answered, before anything else is sent. The connection is closed unless all
// of that ends within limit. Dial closes conn and returns ErrSevered once the
// chain is severed.
func (c *Chain) Dial(conn net.Conn, to servers.Server, authenticate Authenticate, limit time.Duration) (*Link, error) {
	l := newLink(conn, c, to, authenticate, limit)
	c.mu.Lock()
	c.dialed = l
	severed := c.IsSevered()
	c.mu.Unlock()
	if severed {
		_ = l.Close()
		return nil, ErrSevered
	}
	return l, nil
}

func newLink(conn net.Conn, c *Chain, to servers.Server, authenticate Authenticate, limit time.Duration) *Link {
	l := &Link{
		authenticate: authenticate, limit: limit,
		Conn: conn, chain: c, to: to, sending: make(chan struct{}, 1),
		asked:       asked{waiting: make(map[int32]chan Reply), ended: make(chan struct{})},
		presented:   make(chan struct{}),
		unpresented: slices.Clone(c.cfg.Auths),
		read:        bufio.NewReader(conn),
	}
	if len(l.unpresented) == 0 {
		close(l.presented)
	}
	l.connectTimer = time.AfterFunc(limit, func() {
		c.told.Ended(l, Reason{Silent, nil})
		_ = conn.Close()
	})
	return l
}

// nameSeen returns a connect request that names the latest transaction that the
// session has seen. The wire client knows only of those in answers to its own
// requests.
func (l *Link) nameSeen(connect []byte) []byte {
	if len(connect) < connectSeen+8 {
		return connect
	}
	connect = bytes.Clone(connect)
	binary.BigEndian.PutUint64(connect[connectSeen:], uint64(l.chain.Seen()))
	return connect
}

// nameRemembered puts the session that is remembered into a connect request
// that asks for a new one. It forgets one that has surely expired, since the
// attempt would only bring that news: after the timeout and a tick of the
// servers, which is half of it at most.
func (c *Chain) nameRemembered(connect []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if clock.Now().Sub(c.rememberedAt) > c.remembered.Timeout*3/2 {
		c.remembered = servers.Orphan{}
	}
	if c.id != 0 || c.remembered.ID == 0 || len(connect) < connectPassword+wire.PasswordSize {
		return connect
	}
	connect = bytes.Clone(connect)
	binary.BigEndian.PutUint64(connect[connectSessionID:], uint64(c.remembered.ID))
	copy(connect[connectPassword:], c.remembered.Password)
	return connect
}

// mayConnect reports whether a connection may ask for session id. The wire
// client forgets an expired session and asks for a new one, which it must not:
// each session has its own wire client.
func (c *Chain) mayConnect(id int64) bool {
	c.mu.Lock()
	mine, severed := cmp.Or(c.id, c.remembered.ID), c.IsSevered()
	c.mu.Unlock()
	if severed {
		return false
	}
	if id != mine {
		c.told.Expired()
		return false
	}
	return true
}

// peekConnectAnswer returns the frame of the answer to the connect, nil if none
// comes, or if it cannot be one: Read meets that again.
func (l *Link) peekConnectAnswer() []byte {
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

// peekSize returns the size of the next frame, its length field included.
func (l *Link) peekSize() (int, error) {
	head, err := l.read.Peek(4)
	if err != nil {
		return 0, err
	}
	return 4 + int(int32(binary.BigEndian.Uint32(head))), nil
}

// limitTimeout makes the answer to a connect grant at most what was granted in
// this session before: see package proof. The wire client asks for what was
// granted last, and derives its pings from it. So each connect asks for exactly
// that.
func (l *Link) limitTimeout() {
	answer := l.peekConnectAnswer()
	if answer == nil {
		return
	}
	field := answer[connectTimeout:]
	granted := time.Duration(int32(binary.BigEndian.Uint32(field))) * time.Millisecond
	if most := l.chain.mostTimeout(); most > 0 && granted > most {
		binary.BigEndian.PutUint32(field, uint32(most.Milliseconds()))
	}
}

// mostTimeout returns the session timeout that a connection must not exceed:
// the least that was granted so far. It is 0 for a session that is new.
func (c *Chain) mostTimeout() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id == 0 {
		return c.remembered.Timeout
	}
	return c.timeout
}

// authenticateFirst runs the exchange before the wire client gets the answer to
// its connect: after it, it sends requests. So the answer is read here, and put
// in front of what follows. Without an error Read continues. There may have
// been no exchange, because there is no answer, or it is malformed, or it says
// that the session is gone: Read meets that again, and onHead accepts no
// session.
func (l *Link) authenticateFirst() error {
	if l.authenticate == nil {
		return nil
	}
	peeked := l.peekConnectAnswer()
	answer, ok := parseConnectAnswer(peeked)
	if !ok || answer.SessionID != 0 && l.chain.cfg.Accepts(time.Duration(answer.Timeout)*time.Millisecond) != nil {
		return nil
	}
	if may, err := l.chain.onUnauthenticated(l, answer); err != nil || !may {
		return err
	}
	frame := bytes.Clone(peeked)
	if _, err := l.read.Discard(len(frame)); err != nil {
		return err
	}
	l.answeredAt = clock.Now()
	limit := l.limit - l.answeredAt.Sub(l.sentAt)
	if err := l.authenticate(l.Conn, l.read, limit); err != nil {
		inTime := l.connectTimer.Stop() // otherwise we have closed the connection, and the error says no more than that
		_ = l.Close()
		switch {
		case errors.Is(err, zkerr.Malformed):
			l.chain.onMalformed(l, err)
		case inTime || errors.Is(err, supplied.ErrNoResult):
			l.chain.told.Ended(l, Reason{Unauthenticated, err})
		}
		return err
	}
	l.authenticate, l.read = nil, bufio.NewReaderSize(io.MultiReader(bytes.NewReader(frame), l.read), 4096)
	return nil
}

// onUnauthenticated takes the answer to a connect request before the connection
// is authenticated, and reports whether it can be.
//
// A session that a server has opened is remembered. If the connection is not
// authenticated the wire client is not told of it, and asks for another one
// each time. The next connect request names it instead, so that refusals do not
// fill the ensemble with sessions. onUnauthenticated returns an error if that
// session is gone.
func (c *Chain) onUnauthenticated(l *Link, a wire.ConnectResponse) (may bool, err error) {
	c.mu.Lock()
	gone := a.SessionID == 0 && cmp.Or(c.id, c.remembered.ID) != 0
	switch {
	case c.id != 0:
		may = a.SessionID == c.id
	case gone:
		c.remembered = servers.Orphan{}
		err = errors.New("the session of a connection that was not authenticated is gone")
	case a.SessionID != 0:
		granted := time.Duration(a.Timeout) * time.Millisecond
		if c.remembered.ID == a.SessionID {
			granted = min(granted, c.remembered.Timeout) // the least
		} else {
			c.heardOn = l
		}
		c.remembered, c.rememberedAt = servers.Orphan{ID: a.SessionID, Password: slices.Clone(a.Password), Timeout: granted}, clock.Now()
		may = true
	}
	c.mu.Unlock()
	if gone {
		c.told.Ended(l, Reason{Forgotten, nil})
	}
	return may, err
}

// vouch returns nil if an answer to the connect request counts that names a
// session, or none. Otherwise it closes the session that the server has opened.
func (l *Link) vouch(session int64) error {
	c := l.chain
	if !l.to.IsDoubtful() || session != 0 && session == c.ID() {
		return nil
	}
	l.connectTimer.Stop()
	if l.answeredAt.IsZero() {
		l.answeredAt = clock.Now()
	}
	err := c.cfg.Vouch(c.severed, l.to, c.Seen(), l.limit)
	if err == nil {
		return nil
	}
	c.told.Ended(l, Reason{Fault, err})
	if session != 0 {
		late := time.AfterFunc(talk.MaxStep, func() { _ = l.Conn.Close() })
		defer late.Stop()
		_, _ = l.Conn.Write(talk.CloseRequest)
		c.mu.Lock()
		c.remembered = servers.Orphan{}
		c.mu.Unlock()
	}
	return err
}

// isAnother reports whether id in the answer to a connect is that of another
// session than was asked for.
func (c *Chain) isAnother(id int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id != 0 && id != 0 && c.id != id
}

// closeAnother ends the session, since its connect was answered with another
// one. It closes that one, on the same connection, and waits for the answer or
// the end. It returns why the session is over.
func (l *Link) closeAnother() error {
	c := l.chain
	c.mu.Lock()
	c.dialed = nil // the end of ours leaves this connection to us
	c.mu.Unlock()
	why := c.told.NotResumed(l)
	late := time.AfterFunc(min(l.limit, talk.MaxStep), func() { _ = l.Conn.Close() })
	defer late.Stop()
	if _, err := l.Conn.Write(talk.CloseRequest); err == nil {
		_, _ = io.Copy(io.Discard, l.read)
	}
	c.Sever() // before the wire client can ask for it again, and be given a third one
	return why
}

// onConnectAnswer takes a server's answer to a connect request that was sent at
// sentAt, and reports whether the connection may be used.
func (c *Chain) onConnectAnswer(l *Link, a wire.ConnectResponse, sentAt time.Time) bool {
	if a.SessionID == 0 {
		c.told.Expired()
		return true // the wire client reads that, and closes
	}
	c.mu.Lock()
	if c.IsSevered() {
		c.mu.Unlock()
		return false
	}
	// The link has seen to it that the timeout does not grow.
	timeout := time.Duration(a.Timeout) * time.Millisecond
	c.id, c.password, c.timeout, c.latest = a.SessionID, a.Password, timeout, l
	if !l.named { // it is new
		c.heardOn = l
	}
	now := clock.Now()
	c.answered = now
	if !l.answeredAt.IsZero() {
		now = l.answeredAt
	}
	c.mu.Unlock()
	if c.cfg.Confirmed != nil { // before the wire client has the answer, so before it sends anything
		l.connectTimer.Stop() // the server has answered: see peekConnectAnswer
		c.cfg.Confirmed(servers.Orphan{ID: a.SessionID, Password: a.Password, Timeout: timeout}, l.to)
	}
	c.told.Connected(l, timeout, !l.named, sentAt, now)
	return true
}
