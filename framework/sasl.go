package framework

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// SASL is a mechanism by which a client authenticates each of its connections.
// Package sasl/digestmd5 has one.
//
// If it also has a method Check() error, New calls it and returns its error. A
// method Changed() bool is called about once a second while the client pauses
// after a refusal, on a goroutine of its own. It reports whether the
// credentials are others than those of the last exchange; the next attempt is
// then made at once. See also SASLRenewer.
type SASL interface {
	// Begin begins an exchange with a server. It is called before the server is
	// dialed, on a goroutine of its own, so it may ask a directory or read a
	// file. Several calls may be under way, 16 at most. ctx ends when the
	// attempt to connect has no time left; what is returned after that is
	// dropped. An error means that the server is not dialed. It must wrap
	// ErrAuthFailed if it is a refusal, and not if something could not be
	// reached.
	Begin(ctx context.Context, to SASLServer) (SASLExchange, error)
}

// SASLServer is a server that is about to be dialed.
type SASLServer struct {
	Name    string // "host:port", as in the list of servers
	Address string // as it is dialed: the name, or an address of it
}

// SASLExchange is the client's side of one exchange. It is used once.
type SASLExchange interface {
	// Next returns the response to a challenge of the server. The first
	// challenge is nil: the client begins. A response that is not nil is sent,
	// an empty one as well. done says that no challenge is expected after it. An
	// error ends the connection, and counts as ErrAuthFailed. Next is called on
	// a goroutine of its own, and has the rest of the time to connect.
	Next(challenge []byte) (response []byte, done bool, err error)
}

// WithSASL authenticates each connection before the first request on it. The
// credentials of WithAuth are presented after that. The connect itself, with
// the session's id and password, comes first: use TLS against servers that are
// none. A session that is over is closed without authentication if need be.
// Unlike other options it may not be repeated. Default: none.
//
// A connection that is refused counts as none: the state stays Connecting or
// Suspended, and no lease is extended. If the session is lost for that, the
// refusal is in StateChange.Err. Once each server of the list was tried, and
// one of them has refused and none has accepted, calls that wait for a
// connection fail with ErrAuthFailed. From then on the pauses between attempts
// grow to between half a minute and a minute, because directories lock
// accounts; a mechanism whose credentials have changed is tried at once. The
// next connection that is accepted ends all that.
func WithSASL(m SASL) Option {
	return func(c *config) {
		c.saslSets++
		c.sasl = m
	}
}

// checkSASL returns what is wrong with the option, if anything is.
func (cfg *config) checkSASL() error {
	switch {
	case cfg.saslSets == 0:
		return nil
	case cfg.saslSets > 1:
		return fmt.Errorf("SASL: the option was given %d times", cfg.saslSets)
	case cfg.sasl == nil:
		return errors.New("SASL: nil")
	}
	if m, ok := cfg.sasl.(interface{ Check() error }); ok {
		if err := m.Check(); err != nil {
			return fmt.Errorf("SASL: %w", err)
		}
	}
	return nil
}

// Limits of an exchange. A server that exceeds them is not one.
const (
	mostChallenges = 16
	mostSASLAnswer = 64 << 10
)

// beginSASL begins an exchange with a server that is about to be dialed, unless
// stop is closed. It returns nil without a mechanism.
func (c *core) beginSASL(ctx context.Context, stop <-chan struct{}, to server, limit time.Duration) (SASLExchange, error) {
	if c.cfg.sasl == nil {
		return nil, nil
	}
	x, err := supplied.Get(ctx, c.supplying, stop, limit, func(ctx context.Context) (SASLExchange, error) {
		return c.cfg.sasl.Begin(ctx, SASLServer{Name: to.name, Address: to.address})
	})
	if err == nil && x == nil {
		err = errors.New("the mechanism has begun no exchange")
	}
	if err != nil {
		return nil, fmt.Errorf("%w with %s: %w", zkerr.SASL, to, err)
	}
	return x, nil
}

// authenticateSASL runs an exchange on a connection whose connect request was
// answered. r reads from the connection. Whoever calls it sees to it that the
// connection is closed when the time is up, or stop is closed.
func (c *core) authenticateSASL(x SASLExchange, stop <-chan struct{}, to server, conn net.Conn, r io.Reader, limit time.Duration) error {
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
		response, err := supplied.Get(context.Background(), c.supplying, stop, limit-time.Since(began), func(context.Context) (a answer, err error) {
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

// authenticateFirst runs the exchange before the wire client gets the answer to
// its connect: after it, it sends requests. So the answer is read here, and put
// in front of what follows. Without an error, Read goes on: if there was no
// exchange, since there is no answer, or it is malformed, or it says that the
// session is gone, it meets that again. onHead accepts no session then.
func (l *link) authenticateFirst() error {
	if l.sasl == nil {
		return nil
	}
	peeked := l.peekConnectAnswer()
	answer, ok := parseConnectAnswer(peeked)
	if !ok || answer.SessionID != 0 && l.session.core.cfg.accepts(time.Duration(answer.Timeout)*time.Millisecond) != nil {
		return nil
	}
	if goOn, err := l.session.onUnauthenticated(answer); err != nil || !goOn {
		return err
	}
	frame := bytes.Clone(peeked)
	if _, err := l.read.Discard(len(frame)); err != nil {
		return err
	}
	l.answeredAt = clock.Now()
	limit := l.limit - l.answeredAt.Sub(l.sentAt)
	if err := l.session.core.authenticateSASL(l.sasl, l.session.severed, l.to, l.Conn, l.read, limit); err != nil {
		inTime := l.connectTimer.Stop() // otherwise we have closed the connection, and the error says no more than that
		_ = l.Close()
		switch {
		case errors.Is(err, zkerr.Malformed):
			l.session.onMalformed(l, err)
		case inTime || errors.Is(err, supplied.ErrNoResult):
			l.session.core.onAttemptFailed(l.to, err)
		}
		return err
	}
	l.sasl, l.read = nil, bufio.NewReaderSize(io.MultiReader(bytes.NewReader(frame), l.read), 4096)
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
func (s *session) onUnauthenticated(a wire.ConnectResponse) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.id != 0:
		if a.SessionID == 0 {
			s.core.pace.skipPause()
		}
		return a.SessionID == s.id, nil
	case a.SessionID != 0:
		granted := time.Duration(a.Timeout) * time.Millisecond
		if s.remembered.id == a.SessionID {
			granted = min(granted, s.remembered.timeout) // the least
		}
		s.remembered, s.rememberedAt = orphan{a.SessionID, slices.Clone(a.Password), granted}, clock.Now()
		return true, nil
	case s.remembered.id == 0:
		return false, nil
	}
	s.core.pace.skipPause()
	s.remembered = orphan{}
	return false, errors.New("the session of a connection that was not authenticated is gone")
}

// nameRemembered puts the session that is remembered into a connect request
// that asks for a new one. It forgets one that has surely expired, since the
// attempt would only bring that news: after the timeout and a tick of the
// servers, which is half of it at most.
func (s *session) nameRemembered(connect []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if clock.Now().Sub(s.rememberedAt) > s.remembered.timeout*3/2 {
		s.remembered = orphan{}
	}
	if s.id != 0 || s.remembered.id == 0 || len(connect) < connectPassword+passwordSize {
		return connect
	}
	connect = bytes.Clone(connect)
	binary.BigEndian.PutUint64(connect[connectSessionID:], uint64(s.remembered.id))
	copy(connect[connectPassword:], s.remembered.password)
	return connect
}

// refusals are the attempts at which a server has refused the client, as far as
// no round of the servers without a refusal has come after them.
type refusals struct{ first, last int } // attempts, counted from 1; 0: none

// add adds a refusal. It reports whether each server was tried since the first.
func (r *refusals) add(attempt, round int) bool {
	if r.first == 0 || attempt-r.last > round {
		r.first = attempt
	}
	r.last = attempt
	return attempt-r.first+1 >= round
}

// onAttemptFailed takes the failure of an attempt to connect. Once each server
// was tried, and one of them has refused, calls that wait for a connection
// fail, and the attempts become rarer.
func (c *core) onAttemptFailed(to server, err error) {
	c.servers.noteFault(to, err)
	if errors.Is(err, zkerr.AuthFailed) && c.pace.noteRefusal() && c.reject(err) {
		c.cfg.log.Error("the ensemble rejects the client", zap.Error(err))
	}
}
