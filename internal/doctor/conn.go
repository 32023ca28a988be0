package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// errGone says that a server knows no such session.
var errGone = errors.New("the session is gone")

// conn is a connection with a session. It is used by one goroutine.
type conn struct {
	net.Conn
	probe   *probe
	session wire.ConnectResponse
	limit   time.Duration // of each request
	xid     int32
	events  []wire.WatcherEvent // that came before the latest answer, in order
}

// open opens a session, with the credentials.
func (p *probe) open(ctx context.Context, timeout time.Duration) (*conn, error) {
	return p.connect(ctx, &wire.ConnectRequest{Timeout: milliseconds(timeout), Password: make([]byte, 16)}, true)
}

// connect opens a session, or resumes one.
func (p *probe) connect(ctx context.Context, ask *wire.ConnectRequest, authenticated bool) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	exchange, stop := outlasting(ctx, answerTime)
	defer stop()
	nc, session, err := p.ensemble.Connect(exchange, p.at, p.within(ctx), ask, authenticated)
	if session.SessionID != 0 {
		p.opened(p.at, session)
	}
	switch {
	case err != nil:
		return nil, err
	case nc == nil:
		return nil, errGone
	}
	context.AfterFunc(ctx, func() { nc.Close() })
	return &conn{Conn: nc, probe: p, session: session, limit: p.limit}, nil
}

// answerTime is for how long the answer to a connect request is awaited after
// the examination was ended: it has the session, which somebody must close.
const answerTime = time.Second

// outlasting returns a context that ends d after ctx.
func outlasting(ctx context.Context, d time.Duration) (later context.Context, stop func()) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		select {
		case <-later.Done():
		case <-time.After(d):
			cancel()
		}
	})
	return later, func() { unhook(); cancel() }
}

// resume connects to a session, with this password.
func (p *probe) resume(ctx context.Context, session wire.ConnectResponse, password []byte) (*conn, error) {
	return p.connect(ctx, &wire.ConnectRequest{Timeout: session.Timeout, SessionID: session.SessionID, Password: password}, true)
}

// milliseconds returns a timeout as the protocol has it.
func milliseconds(d time.Duration) int32 { return int32(d.Milliseconds()) }

// granted is the session's timeout.
func (c *conn) granted() time.Duration { return time.Duration(c.session.Timeout) * time.Millisecond }

// close closes the session, and returns an error unless the server has
// answered.
func (c *conn) close() error {
	defer c.Conn.Close()
	if _, err := c.do(wire.OpCloseSession, nil, nil); err != nil {
		return err
	}
	c.probe.closed(c.session.SessionID)
	return nil
}

// request is one that can be sent with others in one write.
type request struct {
	op   wire.Op
	body wire.Appender
}

// send sends requests in one write.
func (c *conn) send(requests ...request) error {
	var frames []byte
	for _, r := range requests {
		c.xid++
		frames = wire.AppendFrame(frames, &wire.RequestHeader{Xid: c.xid, Op: r.op}, r.body)
	}
	if err := c.SetDeadline(time.Now().Add(c.limit)); err != nil {
		return err
	}
	_, err := c.Write(frames)
	return err
}

// longestAnswer is far more than any answer to a question.
const longestAnswer = 1 << 20

// read returns the next answer, and notes the events before it.
func (c *conn) read() (head wire.ReplyHeader, body []byte, err error) {
	for {
		if err := c.SetDeadline(time.Now().Add(c.limit)); err != nil {
			return head, nil, err
		}
		frame, err := wire.ReadFrame(c, longestAnswer, nil)
		if err != nil {
			return head, nil, err
		}
		d := wire.NewDecoder(frame)
		head.Decode(d)
		if d.Err() != nil {
			return head, nil, d.Err()
		}
		body = frame[len(frame)-d.Len():]
		if head.Xid != wire.XidNotification {
			return head, body, nil
		}
		const most = 1000 // no question makes more than a few
		var e wire.WatcherEvent
		if err := wire.Unmarshal(body, &e); err != nil || len(c.events) == most {
			return head, nil, errors.Join(err, errors.New("events that nobody has asked for"))
		}
		c.events = append(c.events, e)
	}
}

// do sends a request and reads its answer into body, if that is not nil. A
// refusal is a wire.Code.
func (c *conn) do(op wire.Op, ask wire.Appender, body wire.Message) (wire.ReplyHeader, error) {
	if err := c.send(request{op, ask}); err != nil {
		return wire.ReplyHeader{}, err
	}
	head, raw, err := c.read()
	switch {
	case err != nil:
		return head, err
	case head.Xid != c.xid:
		return head, fmt.Errorf("the answer to request %d has the number %d", c.xid, head.Xid)
	case head.Err != wire.OK:
		return head, head.Err
	case body != nil:
		err = wire.Unmarshal(raw, body)
	}
	return head, err
}

// anybody is the ACL of what the doctor creates.
var anybody = []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}

func create(path string, mode int32) *wire.CreateRequest {
	return &wire.CreateRequest{Path: path, Data: []byte{}, ACL: anybody, Mode: mode}
}

// create creates a znode, and returns its path.
func (c *conn) create(path string, mode int32) (string, wire.ReplyHeader, error) {
	var made wire.PathResponse
	head, err := c.do(wire.OpCreate, create(path, mode), &made)
	return made.Path, head, err
}

func (c *conn) delete(path string) error {
	_, err := c.do(wire.OpDelete, &wire.VersionRequest{Path: path, Version: -1}, nil)
	return err
}

// exists returns the stat of a znode after a sync of its path.
func (c *conn) exists(path string) (stat wire.Stat, err error) {
	if _, err := c.do(wire.OpSync, &wire.PathRequest{Path: path}, nil); err != nil && !errors.Is(err, wire.NoNode) {
		return stat, err
	}
	_, err = c.do(wire.OpExists, &wire.WatchRequest{Path: path}, &stat)
	return stat, err
}

// ping is a request that the server answers by itself.
func (c *conn) ping() error {
	if err := c.SetDeadline(time.Now().Add(c.limit)); err != nil {
		return err
	}
	if _, err := c.Write(wire.AppendFrame(nil, &wire.RequestHeader{Xid: wire.XidPing, Op: wire.OpPing})); err != nil {
		return err
	}
	head, _, err := c.read()
	if err == nil && head.Xid != wire.XidPing {
		err = fmt.Errorf("the answer to a ping has the number %d", head.Xid)
	}
	return err
}
