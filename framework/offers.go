package framework

import (
	"bufio"
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
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file finds out which operations a server has. One that does not know an
// operation refuses it and closes the connection, and that may cost leases. So
// the server is asked over a connection of its own: once in each connection of
// the session, since another server may be at the same address next time, and
// only when somebody needs the operation.
//
// The question is its version (the word srvr), which needs no session. Where
// the answer has none, the operation is tried in a session that is closed at
// once. That costs two transactions.
//
// The answer can be that of another server, behind a proxy. So if an operation
// is refused all the same, the client never sends it again.

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
// or does not say, or one has refused it.
var errNotOffered = errors.New("the server does not have this operation")

// errOlder is that error if the server's version says so.
var errOlder = fmt.Errorf("%w, by its version", errNotOffered)

// offered is what is known of an operation at a server.
type offered struct {
	known chan struct{} // closed: yes and again are set
	yes   bool
	exact bool      // by the server's version
	again time.Time // when the server is asked again, if it has not answered
}

// offers are the answers of the server of one connection.
type offers struct {
	mu sync.Mutex
	of map[wire.Op]*offered
}

// offers returns the connection on which requests of an operation may be sent
// now. If there is none the error says why.
func (s *session) offers(ctx context.Context, op wire.Op) (*link, error) {
	if s.core.hasRefused(op) {
		return nil, errNotOffered
	}
	l := s.usable()
	if l == nil {
		return nil, zk.ErrNoServer
	}
	o := s.beginOffer(l, op)
	select {
	case <-o.known:
		switch {
		case o.yes:
			return l, nil
		case o.exact:
			return nil, errOlder
		}
		return nil, errNotOffered
	case <-ctx.Done():
		return nil, ctxerr.Of(ctx)
	case <-s.over:
		return nil, s.Err()
	case <-l.asked.ended:
		return nil, zk.ErrConnectionClosed
	}
}

// hasOffer reports whether it is known by now that requests of an operation may
// be sent on l. If nothing is known the server is asked. It does not wait.
func (s *session) hasOffer(l *link, op wire.Op) bool {
	if s.core.hasRefused(op) {
		return false
	}
	o := s.beginOffer(l, op)
	select {
	case <-o.known:
		return o.yes
	default:
		return false
	}
}

func (s *session) beginOffer(l *link, op wire.Op) *offered {
	return l.offers.begin(op, func() (minor int, every bool, err error) {
		during, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			select {
			case <-l.asked.ended: // nobody needs the answer
			case <-during.Done():
			}
			cancel()
		}()
		return s.core.askOffer(during, l.to, op, s.closeStepTimeout())
	})
}

// begin asks, unless that has been done. See askOffer for the answer.
func (f *offers) begin(op wire.Op, ask func() (minor int, every bool, err error)) *offered {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.of[op]; o != nil {
		select {
		case <-o.known:
			if o.again.IsZero() || time.Now().Before(o.again) {
				return o
			}
		default:
			return o
		}
	}
	o := &offered{known: make(chan struct{})}
	if f.of == nil {
		f.of = make(map[wire.Op]*offered)
	}
	f.of[op] = o
	go func() {
		minor, every, err := ask()
		f.mu.Lock()
		defer f.mu.Unlock()
		if err != nil {
			o.again = time.Now().Add(offerPause)
		}
		o.yes, o.exact = minor >= newest[op].minor, every
		close(o.known)
		for other, since := range newest {
			if every && f.of[other] == nil {
				f.of[other] = &offered{known: o.known, yes: minor >= since.minor, exact: true}
			}
		}
	}()
	return o
}

// offerPause is how long a server is not asked again that has not answered.
const offerPause = 10 * time.Second

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
	const shortest = 1 // ms: the server raises it to the shortest timeout that it allows
	request := wire.AppendFrame(nil, &wire.RequestHeader{Xid: firstXid, Op: newest[op].try}, newest[op].body)
	r, err := c.converse(ctx, to, limit, &wire.ConnectRequest{Timeout: shortest, Password: make([]byte, passwordSize)}, true, request)
	if r.session == 0 {
		if err == nil {
			err = errBadAnswer
		}
		return 0, false, err
	}
	if err := c.closeRemotely(context.Background(), to, r.session, r.password, true, limit); err != nil {
		c.cfg.log.Debug("cannot close a session", zap.Stringer("server", to), zap.String("session", wire.SessionText(r.session)), zap.Error(err))
	}
	if err == nil {
		minor = newest[op].minor
	}
	return minor, false, nil
}

// askVersion asks a server for its version.
func (c *core) askVersion(ctx context.Context, to server, limit time.Duration) (major, minor int, err error) {
	conn, err := c.dialServer(ctx.Done(), "tcp", to, limit)
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

// isRefusal reports whether a server does not have the operation that has
// failed with err.
func isRefusal(err error) bool {
	if err == nil {
		return false
	}
	code, _ := codeOf(err)
	return code == wire.Unimplemented || code == wire.MarshallingError
}

// refuse notes that a server has refused an operation on the session's
// connection, although it had seemed to have it.
func (c *core) refuse(op wire.Op, err error) {
	if c.giveUp(op) {
		go c.cfg.log.Warn("a server refuses an operation, which this client does not use again", zap.String("op", op.String()), zap.Error(err))
	}
}

// giveUp ends the use of an operation, and reports whether it was used until
// now.
func (c *core) giveUp(op wire.Op) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused[op] {
		return false
	}
	if c.refused == nil {
		c.refused = make(map[wire.Op]bool)
	}
	c.refused[op] = true
	return true
}

func (c *core) hasRefused(op wire.Op) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[op]
}
