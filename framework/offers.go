package framework

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file finds out which operations a server has. One that does not know an
// operation refuses it and closes the connection, and that may cost leases. So
// the server is asked over a connection of its own: in each connection of the
// session, since another server may be at the same address next time, and only
// when somebody needs the operation.
//
// The question is its version (the word srvr), which needs no session. Where
// the answer has none, the operation is tried in a session that is closed at
// once. That costs two transactions.
//
// A silence, a refused connection and a lost one say nothing. Then the server
// is asked again, with growing pauses, until it has said it or the connection
// of the session ends.
//
// The answer can be that of another server, behind a proxy. So if an operation
// is refused all the same, the client does not send it for some time.

// newest are operations that not every server has: since which version, 3.x,
// and a request that does no harm, of that operation or of a later one.
var newest = map[wire.Op]struct {
	minor int
	try   wire.Op
	body  wire.Message
}{
	wire.OpRemoveWatches: {5, wire.OpMultiRead, readMany},
	wire.OpMultiRead:     {6, wire.OpMultiRead, readMany},
	wire.OpGetEphemerals: {6, wire.OpMultiRead, readMany},
	wire.OpAddWatch:      {6, wire.OpAddWatch, &wire.AddWatchRequest{Path: "/zookeeper", Mode: wire.WatchPersistentRecursive}},
}

var readMany = &wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpGetData, Request: &wire.WatchRequest{Path: "/zookeeper"}}}}

// errNotOffered is why an operation is not used: the server does not have it,
// or one has refused it.
var errNotOffered = errors.New("the server does not have this operation")

// errUnsaid is why an operation is not used for now.
var errUnsaid = errors.New("the server has not said yet whether it has this operation")

// errLongUnsaid is that error if it has been asked for three session timeouts.
var errLongUnsaid = fmt.Errorf("%w, for long", errUnsaid)

// errOlder is errNotOffered if the server's version says so.
var errOlder = fmt.Errorf("%w, by its version", errNotOffered)

// offered is what is known of an operation at a server.
type offered struct {
	began time.Time
	known chan struct{} // closed: yes and exact are set
	yes   bool
	exact bool // by the server's version
}

// isKnown reports whether the server has said it.
func (o *offered) isKnown() bool {
	select {
	case <-o.known:
		return true
	default:
		return false
	}
}

// offers are the answers of the server of one connection.
type offers struct {
	mu sync.Mutex
	of map[wire.Op]*offered
}

// offers returns the connection on which requests of an operation may be sent
// now. If there is none the error says why. It waits a while for the server to
// say it. Who wants a recursive watch waits longer: without one, a tree costs
// two requests and two watches for each znode.
func (s *session) offers(ctx context.Context, op wire.Op) (*link, error) {
	if s.core.hasRefused(op) {
		return nil, errNotOffered
	}
	l := s.usable()
	if l == nil {
		return nil, zk.ErrNoServer
	}
	o := s.beginOffer(l, op)
	patience := s.closeStepTimeout()
	if op == wire.OpAddWatch {
		patience = s.granted()
	}
	wait := time.NewTimer(patience - time.Since(o.began))
	defer wait.Stop()
	select {
	case <-o.known:
	case <-wait.C:
	case <-ctx.Done():
		return nil, ctxerr.Of(ctx)
	case <-s.over:
		return nil, s.Err()
	case <-l.asked.ended:
		return nil, zk.ErrConnectionClosed
	}
	switch {
	case !o.isKnown() && time.Since(o.began) < 3*s.granted():
		return nil, errUnsaid
	case !o.isKnown():
		return nil, errLongUnsaid
	case o.yes:
		return l, nil
	case o.exact:
		return nil, errOlder
	}
	return nil, errNotOffered
}

// hasOffer reports whether it is known by now that requests of an operation may
// be sent on l. If nothing is known the server is asked. It does not wait.
func (s *session) hasOffer(l *link, op wire.Op) bool {
	if s.core.hasRefused(op) {
		return false
	}
	o := s.beginOffer(l, op)
	return o.isKnown() && o.yes
}

// beginOffer begins to ask the server of l, unless that has been done.
func (s *session) beginOffer(l *link, op wire.Op) *offered {
	l.offers.mu.Lock()
	defer l.offers.mu.Unlock()
	o := l.offers.of[op]
	if o == nil {
		o = l.offers.newLocked(op)
		go s.askUntilSaid(l, op, o)
	}
	return o
}

func (f *offers) newLocked(op wire.Op) *offered {
	o := &offered{began: time.Now(), known: make(chan struct{})}
	if f.of == nil {
		f.of = make(map[wire.Op]*offered)
	}
	f.of[op] = o
	return o
}

// The bounds of the pauses before a server is asked again that has not said it.
const (
	firstAskPause = time.Second
	lastAskPause  = time.Minute
)

// askUntilSaid asks the server of l until it has said whether it has an
// operation, or the connection ends.
func (s *session) askUntilSaid(l *link, op wire.Op, o *offered) {
	ctx, cancel := contextUntil(l.asked.ended)
	defer cancel()
	for pause := firstAskPause; ; pause = min(2*pause, lastAskPause) {
		minor, every, err := s.core.askOffer(ctx, l.to, op, s.granted())
		if err == nil {
			l.offers.say(op, minor, every)
			return
		}
		if pause == firstAskPause && ctx.Err() == nil {
			s.core.cfg.log.Warn("a server does not say what it has", zap.Stringer("server", l.to), zap.String("op", op.String()), zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-o.known: // by the answer to another question
			return
		case <-time.After(pause/2 + random.N(pause/2)):
		}
	}
}

// say notes what a server has said. See askOffer.
func (f *offers) say(op wire.Op, minor int, every bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for other, since := range newest {
		o := f.of[other]
		if other != op && !every || o != nil && o.isKnown() {
			continue
		}
		if o == nil {
			o = f.newLocked(other)
		}
		o.yes, o.exact = minor >= since.minor, every
		close(o.known)
	}
}

// askOffer asks a server for the minor number of its version, which says
// whether it has an operation, and reports whether that is exact, and so for
// every operation in newest. It fails if it cannot be known.
func (c *core) askOffer(ctx context.Context, to server, op wire.Op, limit time.Duration) (minor int, every bool, err error) {
	if major, minor, err := c.askVersion(ctx, to, limit); err == nil {
		switch {
		case major > 3:
			minor = math.MaxInt
		case major < 3:
			minor = 0
		}
		return minor, true, nil
	}
	if ctx.Err() != nil {
		return 0, false, ctx.Err()
	}
	has, err := c.tryOperation(ctx, to, limit, newest[op].try, newest[op].body)
	if has {
		minor = newest[op].minor
	}
	if errors.Is(err, errHangsUp) {
		err = nil
	}
	return minor, false, err
}

// errHangsUp is how a server answers an operation that it does not know, if it
// only ends the connection.
var errHangsUp = errors.New("the server ends the connection on this operation")

// tryOperation tries an operation at a server, in a session that is closed
// again, and reports whether the server has it. It returns errHangsUp if the
// connection has ended on it, although a read before it was answered and the
// session had not expired, and another error if the server has not said it.
func (c *core) tryOperation(ctx context.Context, to server, limit time.Duration, op wire.Op, body wire.Appender) (has bool, err error) {
	began := time.Now()
	conn, session, err := c.openSide(ctx, to, limit, &wire.ConnectRequest{Timeout: int32(limit.Milliseconds()), Password: make([]byte, passwordSize)}, true, readRoot)
	if session.SessionID != 0 {
		defer func() {
			if err := c.closeRemotely(context.Background(), to, session.SessionID, session.Password, true, min(limit, maxCloseStep)); err != nil {
				c.cfg.log.Debug("cannot close a session", zap.Stringer("server", to), zap.String("session", wire.SessionText(session.SessionID)), zap.Error(err))
			}
		}()
	}
	if conn == nil {
		return false, cmp.Or(err, errBadAnswer)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := readSuccess(conn, firstXid); err != nil {
		return false, err
	}
	const xid = firstXid + 1
	if _, err := conn.Write(wire.AppendFrame(nil, &wire.RequestHeader{Xid: xid, Op: op}, body)); err != nil {
		return false, err
	}
	_, err = readSuccess(conn, xid)
	var code wire.Code
	switch {
	case err == nil:
		return true, nil
	case zkerr.IsHangUp(err) && time.Since(began) < time.Duration(session.Timeout)*time.Millisecond:
		return false, errHangsUp
	case errors.As(err, &code):
		switch code {
		case wire.NodeExists, wire.NoAuth, wire.InvalidACL:
			return true, nil
		case wire.Unimplemented, wire.MarshallingError, wire.BadArguments:
			return false, nil
		}
	}
	return false, err
}

// readRoot is a read that every server answers.
var readRoot = wire.AppendFrame(nil, &wire.RequestHeader{Xid: firstXid, Op: wire.OpExists}, &wire.WatchRequest{Path: "/"})

// askVersion asks a server for its version.
func (c *core) askVersion(ctx context.Context, to server, limit time.Duration) (major, minor int, err error) {
	conn, err := c.dialServer(ctx.Done(), "tcp", to, c.dialTime(limit))
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return 0, 0, err
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return 0, 0, err
	}
	line, err := bufio.NewReader(conn).ReadSlice('\n') // of what fits into its buffer
	if err == nil {
		_, err = fmt.Sscanf(string(line), "Zookeeper version: %d.%d.", &major, &minor)
	}
	return major, minor, err
}

// disuse is the time for which an operation is not sent, since a server has
// refused it on a connection of a session.
type disuse struct {
	until time.Time // the client does not send it
	pause time.Duration
}

// The bounds of the time for which an operation is not sent that was refused.
const (
	firstDisuse = 10 * time.Minute
	lastDisuse  = 24 * time.Hour
)

// refuse notes that a server has refused an operation on the session's
// connection, although it had seemed to have it.
func (c *core) refuse(op wire.Op, err error) {
	if pause := c.giveUp(op); pause > 0 {
		go c.cfg.log.Warn("a server refuses an operation", zap.String("op", op.String()), zap.Duration("pause", pause), zap.Error(err))
	}
}

// giveUp ends the use of an operation for a while, and returns for how long: 0
// if that has been done.
func (c *core) giveUp(op wire.Op) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	r := c.refused[op]
	if now.Before(r.until) {
		return 0
	}
	if c.refused == nil {
		c.refused = make(map[wire.Op]disuse)
	}
	r.pause = min(max(2*r.pause, firstDisuse), lastDisuse)
	r.until = now.Add(r.pause)
	c.refused[op] = r
	return r.pause
}

func (c *core) hasRefused(op wire.Op) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.refused[op].until)
}
