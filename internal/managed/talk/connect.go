package talk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file connects to a session at a server, and reads the answers to what is
// sent in it.

// MaxStep bounds each step of closing a session, such as the wait for an
// answer.
const MaxStep = 2 * time.Second

// Shortest is the session timeout, in milliseconds, that a talk asks for: the
// server raises it to the shortest one that it allows.
const Shortest = 1

// ErrBadAnswer is wrapped by the error of an answer that was not expected.
var ErrBadAnswer = errors.New("unexpected answer")

// CloseRequest is a request, as a frame, that closes the session of a
// connection on which nothing else was asked. Nobody changes it.
var CloseRequest = wire.AppendFrame(nil, &wire.RequestHeader{Xid: FirstXid, Op: wire.OpCloseSession})

// FirstXid is the number of the first request of a conversation.
const FirstXid = 1

// Answers is what a server has answered: to the connect, and to the first
// request after it.
type Answers struct {
	Session  int64 // 0: it is gone, and nothing else was answered
	Password []byte
	Zxid     int64
}

// Converse connects to a session, authenticates unless that is not wanted, and
// sends one request. Without SASL that is one write. It fails unless each is
// answered with success.
func (t *Talker) Converse(ctx context.Context, to serverlist.Server, limit time.Duration, connect *wire.ConnectRequest, authenticated bool, request []byte) (Answers, error) {
	conn, session, err := t.Connect(ctx, to, limit, Ask(connect), authenticated, request)
	a := Answers{Session: session.SessionID, Password: session.Password}
	if conn == nil {
		return a, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	a.Zxid, err = ReadSuccess(conn, FirstXid)
	return a, err
}

// dialTime bounds the time of a dial, which the end of the client does not end.
// It is what a dial for a session has, and not less than a step of a close.
func (t *Talker) dialTime(limit time.Duration) time.Duration {
	return min(limit, max(t.cfg.Timeout/3, MaxStep))
}

// Ask returns what Connect calls for a request that does not depend on the time
// or the connection.
func Ask(connect *wire.ConnectRequest) func(net.Conn) (*wire.ConnectRequest, error) {
	return func(net.Conn) (*wire.ConnectRequest, error) { return connect, nil }
}

// Connect connects to a session at a server, or to a new one, within limit. It
// calls ask for the request when it has dialed, and fails if ask does. It
// authenticates unless that is not wanted, and sends frames, which may be
// nil; the caller reads their answers. It returns no connection if it fails, or
// if the session is gone. With an error it may return the session that was
// opened.
func (t *Talker) Connect(ctx context.Context, to serverlist.Server, limit time.Duration, ask func(net.Conn) (*wire.ConnectRequest, error), authenticated bool, frames []byte) (_ net.Conn, session wire.ConnectResponse, err error) {
	if err := ctx.Err(); err != nil {
		return nil, session, err
	}
	var x Exchange
	var auths []wire.AuthRequest
	if authenticated {
		if x, err = t.BeginSASL(ctx, nil, to, limit); err != nil {
			return nil, session, err
		}
		auths = t.cfg.Auths
	}
	conn, err := t.DialServer(ctx.Done(), "tcp", to, t.dialTime(limit))
	if err != nil {
		return nil, session, err
	}
	if err := ctx.Err(); err != nil {
		conn.Close()
		return nil, session, err
	}
	defer func() {
		if err != nil || session.SessionID == 0 {
			conn.Close()
		}
	}()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, session, err
	}
	connect, err := ask(conn)
	if err != nil {
		return nil, session, err
	}
	first, rest := wire.AppendFrame(nil, connect), []byte(nil)
	for _, a := range auths {
		rest = wire.AppendFrame(rest, &wire.RequestHeader{Xid: wire.XidAuth, Op: wire.OpAuth}, &a)
	}
	rest = append(rest, frames...)
	if x == nil {
		first, rest = append(first, rest...), nil
	}
	if _, err := conn.Write(first); err != nil {
		return nil, session, err
	}
	if err := readAnswer(conn, &session); err != nil || session.SessionID == 0 {
		return nil, wire.ConnectResponse{}, err
	}
	if x != nil {
		err := t.Authenticate(x, ctx.Done(), to, conn, conn, limit)
		if err == nil {
			_, err = conn.Write(rest)
		}
		if err != nil {
			return nil, session, err
		}
	}
	for _, a := range auths {
		if _, err := ReadSuccess(conn, wire.XidAuth); err != nil {
			return nil, session, fmt.Errorf("auth %s: %w", a.Scheme, err)
		}
	}
	return conn, session, nil
}

// ReadSuccess reads the answer to the request with this number, and returns an
// error unless the server has executed it.
func ReadSuccess(r io.Reader, xid int32) (zxid int64, err error) {
	var answer wire.ReplyHeader
	if err := readAnswer(r, &answer); err != nil {
		return 0, err
	}
	switch {
	case answer.Xid != xid:
		return 0, ErrBadAnswer
	case answer.Err == wire.AuthFailed:
		return 0, zk.ErrAuthFailed
	case answer.Err != wire.OK:
		return 0, fmt.Errorf("refused: %w", answer.Err)
	}
	return answer.Zxid, nil
}

// readAnswer reads one frame. Those that are expected are small.
func readAnswer(r io.Reader, answer wire.Message) error {
	frame, err := wire.ReadFrame(r, 4096, nil)
	if err != nil {
		return err
	}
	return wire.Unmarshal(frame, answer)
}
