package framework

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file talks to a server over a small connection of its own, in addition
// to that of the wire client: to close a lost session, and to ask for the
// latest transaction.

var (
	errBadAnswer = errors.New("unexpected answer")

	closeSession = wire.AppendFrame(nil, &wire.RequestHeader{Xid: firstXid, Op: wire.OpCloseSession})
	syncRoot     = wire.AppendFrame(nil, &wire.RequestHeader{Xid: firstXid, Op: wire.OpSync}, &wire.PathRequest{Path: "/"})
)

// firstXid is the number of the first request of a conversation.
const firstXid = 1

// answers is what a server has answered: to the connect, and to the first
// request after it.
type answers struct {
	session  int64 // 0: it is gone, and nothing else was answered
	password []byte
	zxid     int64
}

// converse connects to a session, authenticates unless that is not wanted, and
// sends one request. Without SASL that is one write. It fails unless each is
// answered with success.
func (c *core) converse(ctx context.Context, to server, limit time.Duration, connect *wire.ConnectRequest, authenticated bool, request []byte) (answers, error) {
	conn, session, err := c.openSide(ctx, to, limit, connect, authenticated, request)
	a := answers{session: session.SessionID, password: session.Password}
	if conn == nil {
		return a, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	a.zxid, err = readSuccess(conn, firstXid)
	return a, err
}

// dialTime bounds the time of a dial, which the end of the client does not end.
// It is what a dial for a session has, and not less than a step of a close.
func (c *core) dialTime(limit time.Duration) time.Duration {
	return min(limit, max(c.cfg.sessionTimeout/3, maxCloseStep))
}

// openSide is converse up to the answer to the request, which may be nil. It
// returns no connection if it fails, or if the session is gone.
func (c *core) openSide(ctx context.Context, to server, limit time.Duration, connect *wire.ConnectRequest, authenticated bool, request []byte) (_ net.Conn, session wire.ConnectResponse, err error) {
	if err := ctx.Err(); err != nil {
		return nil, session, err
	}
	var x SASLExchange
	var auths []auth
	if authenticated {
		if x, err = c.beginSASL(ctx, nil, to, limit); err != nil {
			return nil, session, err
		}
		auths = c.cfg.auths
	}
	conn, err := c.dialServer(ctx.Done(), "tcp", to, c.dialTime(limit))
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
	first, rest := wire.AppendFrame(nil, connect), []byte(nil)
	for _, a := range auths {
		rest = wire.AppendFrame(rest, &wire.RequestHeader{Xid: wire.XidAuth, Op: wire.OpAuth}, &wire.AuthRequest{Scheme: a.scheme, Auth: a.data})
	}
	rest = append(rest, request...)
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
		err := c.authenticateSASL(x, ctx.Done(), to, conn, conn, limit)
		if err == nil {
			_, err = conn.Write(rest)
		}
		if err != nil {
			return nil, session, err
		}
	}
	for _, a := range auths {
		if _, err := readSuccess(conn, wire.XidAuth); err != nil {
			return nil, session, fmt.Errorf("auth %s: %w", a.scheme, err)
		}
	}
	return conn, session, nil
}

// readSuccess reads the answer to the request with this number, and returns an
// error unless the server has executed it.
func readSuccess(r io.Reader, xid int32) (zxid int64, err error) {
	var answer wire.ReplyHeader
	if err := readAnswer(r, &answer); err != nil {
		return 0, err
	}
	switch {
	case answer.Xid != xid:
		return 0, errBadAnswer
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
