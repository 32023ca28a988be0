package transcripts_test

import (
	"cmp"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// connection records what is sent and heard on one connection of a client.
type connection struct {
	*tape
	client   string
	dialed   time.Time
	session  int64 // that it asks for, 0 for a new one
	connect  *line // nil: it is for a four-letter word
	opened   bool
	requests map[int32]request // by xid
}

type request struct {
	op wire.Op
	*line
}

// dialer returns a dialer whose connections are recorded.
func (t *tape) dialer(client string, dial framework.Dialer) framework.Dialer {
	return bubble.Tapped(dial, func() bubble.Tap {
		c := &connection{tape: t, client: client, dialed: time.Now(), requests: map[int32]request{}}
		return bubble.Tap{Sent: c.onSent, Received: c.onReceived, Ended: c.onEnd}
	})
}

// compare orders connections of one client without regard to which of two
// goroutines has dialed first in one instant.
func (c *connection) compare(o *connection) int {
	if c == o || c == nil || o == nil {
		return 0
	}
	return cmp.Or(c.dialed.Compare(o.dialed), cmp.Compare(c.session, o.session))
}

func (c *connection) recordLocked(k kind, pending bool, what ...string) *line {
	l := &line{client: c.client, kind: k, on: c, pending: pending}
	for _, each := range what {
		l.rows = append(l.rows, row{what: each})
	}
	c.addLocked(l)
	return l
}

func (l *line) answer(with ...string) {
	l.pending = false
	for i := range min(len(with), len(l.rows)) {
		l.rows[i].answer = with[i]
	}
}

func (c *connection) onSent(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connect == nil {
		var ask wire.ConnectRequest
		what := "connect"
		if wire.Unmarshal(frame, &ask) == nil && ask.SessionID != 0 {
			c.session = ask.SessionID
			what = fmt.Sprint("connect, session ", uint64(ask.SessionID))
		}
		c.connect = c.recordLocked(sent, true, what)
		return
	}
	d := wire.NewDecoder(frame)
	var head wire.RequestHeader
	if head.Decode(d); head.Op != wire.OpPing {
		what, plain := asks(head.Op, d)
		l := c.recordLocked(sent, true, what...)
		l.plain = plain
		c.requests[head.Xid] = request{head.Op, l}
	}
}

func (c *connection) onReceived(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := wire.NewDecoder(frame)
	if !c.opened {
		c.opened = true
		var is wire.ConnectResponse
		if is.Decode(d); is.SessionID == 0 {
			c.connect.answer("the session has expired")
		} else {
			c.connect.answer(fmt.Sprint("session ", uint64(is.SessionID)))
		}
		return
	}
	var head wire.ReplyHeader
	head.Decode(d)
	to, asked := c.requests[head.Xid]
	switch {
	case head.Xid == wire.XidNotification:
		var e wire.WatcherEvent
		e.Decode(d)
		c.recordLocked(heard, false, events[e.Type]+" "+e.Path)
	case !asked: // a ping
	case head.Err != wire.OK:
		to.answer(head.Err.String())
	default:
		to.answer(says(to.op, d)...)
	}
}

func (c *connection) onEnd(byClient bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.connect == nil:
	case byClient:
		c.recordLocked(sent, false, "close the connection")
	default:
		c.recordLocked(heard, false, "the connection ends")
	}
}
