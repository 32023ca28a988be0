package talk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/retry"
)

// This file runs a SASL exchange on a connection that was just made.

// Limits of an exchange. A server that exceeds them does not speak SASL.
const (
	mostChallenges = 16
	mostSASLAnswer = 64 << 10
)

// BeginSASL begins an exchange with a server that is about to be dialed, unless
// stop is closed. It returns nil without a mechanism.
func (t *Talker) BeginSASL(ctx context.Context, stop <-chan struct{}, to serverlist.Server, limit time.Duration) (Exchange, error) {
	if t.cfg.SASL.Begin == nil {
		return nil, nil
	}
	x, err := supplied.Get(ctx, t.cfg.Supplying, stop, limit, func(ctx context.Context) (Exchange, error) {
		return t.cfg.SASL.Begin(ctx, to)
	})
	if err == nil && x == nil {
		err = errors.New("the mechanism has begun no exchange")
	}
	if err != nil {
		return nil, fmt.Errorf("%w with %s: %w", zkerr.SASL, to, err)
	}
	return x, nil
}

// Authenticate runs an exchange with a server on a connection whose connect
// request was answered. r reads from the connection. The caller closes the
// connection when the time is up, or stop is closed. The error wraps
// zkerr.AuthFailed if the server or the mechanism refuses, zkerr.Malformed if
// what the server has sent is no answer, and supplied.ErrStopped after stop.
func (t *Talker) Authenticate(x Exchange, stop <-chan struct{}, to serverlist.Server, conn net.Conn, r io.Reader, limit time.Duration) error {
	refused := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %w", zkerr.AuthFailed, to, fmt.Errorf(format, args...))
	}
	type answer struct {
		token []byte
		done  bool
	}
	began := time.Now()
	var challenge []byte
	for xid := int32(1); xid <= mostChallenges+1; xid++ {
		response, err := supplied.Get(context.Background(), t.cfg.Supplying, stop, limit-time.Since(began), func(context.Context) (a answer, err error) {
			a.token, a.done, err = x.Next(challenge)
			return a, err
		})
		switch {
		case errors.Is(err, supplied.ErrStopped):
			return err
		case errors.Is(err, supplied.ErrNoResult):
			return fmt.Errorf("%w with %s: the mechanism: %w", zkerr.SASL, to, err)
		case err != nil:
			return refused("%w", err)
		case response.token == nil && !response.done:
			return refused("the mechanism has no response to the server's challenge")
		case response.token == nil:
			return nil
		}
		if _, err := conn.Write(wire.AppendFrame(nil, &wire.RequestHeader{Xid: xid, Op: wire.OpSASL}, &wire.Token{Token: response.token})); err != nil {
			return fmt.Errorf("%w with %s: %w", zkerr.SASL, to, err)
		}
		token, err := readToken(r, xid)
		var code wire.Code
		switch {
		case errors.Is(err, io.EOF) && (response.done || len(response.token) > 0): // an empty one asks for a challenge only
			return refused("the server has closed the connection in answer to the client's token")
		case errors.Is(err, zk.ErrAuthFailed):
			return refused("the server does not accept the client: wrong user, password or mechanism")
		case errors.As(err, &code):
			return refused("the server answers %w", code)
		case err != nil:
			return fmt.Errorf("%w with %s: %w", zkerr.SASL, to, err)
		case response.done:
			return nil
		case token == nil:
			return refused("the server has no SASL: it answers without a challenge")
		}
		challenge = token
	}
	return fmt.Errorf("%w with %s: %w: more than %d challenges", zkerr.SASL, to, zkerr.Malformed, mostChallenges)
}

// readToken reads the answer to a token. A server that refuses it says so with
// one of two codes.
func readToken(r io.Reader, xid int32) (token []byte, err error) {
	frame, err := wire.ReadFrame(r, mostSASLAnswer, nil)
	switch {
	case errors.Is(err, wire.ErrMalformed):
		return nil, fmt.Errorf("%w: %w", zkerr.Malformed, err)
	case err != nil:
		return nil, err
	}
	d := wire.NewDecoder(frame)
	var head wire.ReplyHeader
	head.Decode(d)
	if d.Err() == nil && head.Err == wire.OK {
		var body wire.Token
		body.Decode(d)
		token = body.Token
	}
	switch {
	case d.Err() != nil:
		return nil, fmt.Errorf("%w: %w", zkerr.Malformed, d.Err())
	case head.Xid != xid:
		return nil, fmt.Errorf("%w: number %d in answer to %d", zkerr.Malformed, head.Xid, xid)
	case head.Err == wire.AuthFailed, head.Err == wire.SessionClosedRequire:
		return nil, zk.ErrAuthFailed
	case head.Err != wire.OK:
		return nil, head.Err
	}
	return token, nil
}

// Renew calls the mechanism's Renew, with the servers of the list, until
// closing is closed.
func (t *Talker) Renew(closing <-chan struct{}, present func() []serverlist.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	policy := retry.Exponential(time.Second, time.Minute, math.MaxInt)
	failures := policy()
	for {
		var next time.Time
		renewed := supplied.Go(t.cfg.Log, func() (err error) {
			next, err = t.cfg.SASL.Renew(ctx, present())
			return err
		})
		var pause time.Duration
		select {
		case <-closing:
			return
		case err := <-renewed:
			if err != nil {
				pause = failures.NextBackOff()
				t.cfg.Log.Warn("SASL: cannot renew", zap.Error(err))
			} else {
				pause, failures = time.Until(next), policy()
			}
		}
		if closed.Within(max(pause, time.Second), closing) {
			return
		}
	}
}
