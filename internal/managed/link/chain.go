package link

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Chain is the connections of one session, one after the other, and what
// continues from one to the next: who the session is, what it has seen, what is
// not sent yet, and the order of what arrives. It is severed when nothing may
// be sent any more.
type Chain struct {
	told    Told
	cfg     Config
	over    <-chan struct{} // closed: nobody waits for an answer any more
	severed chan struct{}   // closed: severed
	buffers wireBuffers
	window  window // of the requests of ours: see own_requests.go

	ownRequests atomic.Uint64 // how many of them were made
	order       atomic.Uint64 // how many answers to them, and events, have arrived

	mu             sync.Mutex // guards what follows
	id             int64      // 0 until a server has answered
	password       []byte
	timeout        time.Duration           // the least that was granted, and before that the requested one
	seen           int64                   // the latest transaction in an answer
	remembered     servers.Orphan          // while id is 0: see onUnauthenticated
	rememberedAt   time.Time               // when a server has answered with it last
	dialed         *Link                   // the latest connection
	latest         *Link                   // the latest on which a server confirmed the session
	answered       time.Time               // when a server has answered last
	unsent         map[string]*UnsentWrite // by path
	closeXid       int32                   // of the request that closes the session
	closeConfirmed bool                    // it was executed
	closeEnded     bool                    // the server has ended the connection on which it was sent
	malformed      error                   // the latest answer that was malformed
	malformedAt    time.Time
	heardOn        *Link // where the session was opened, or an event has arrived, and no answer with a transaction since; nil: none has
	catchUpXid     int32 // of the sync that then comes first on the next link
}

// Config is what a chain must know of its client. Nothing changes it.
type Config struct {
	Timeout    time.Duration      // the session timeout that is asked for
	MaxRequest int                // the size of the largest request, in bytes
	Auths      []wire.AuthRequest // what the wire client presents on each connection
	// Accepts returns an error if no server may grant this timeout.
	Accepts func(granted time.Duration) error
	// Confirmed is told of the session, at each answer to a connect, before the
	// wire client may send anything in it. It may take a moment; nil: nobody
	// needs to know.
	Confirmed func(session servers.Orphan, to servers.Server)
	// Vouch returns an error that wraps zkerr.NotVouched unless the server
	// is known to be of the session's ensemble. The session has seen the
	// transaction seen. Vouch may ask the server, until stop is closed, in
	// steps of limit each.
	Vouch func(stop <-chan struct{}, to servers.Server, seen int64, limit time.Duration) error
}

// NewChain returns a chain without connections. Whoever waits for an answer is
// told that none comes when over is closed.
func NewChain(told Told, cfg Config, over <-chan struct{}) *Chain {
	return &Chain{told: told, cfg: cfg, over: over, severed: make(chan struct{}), window: newWindow(), timeout: cfg.Timeout}
}

// Begin is an option for zk.Connect. It sets the sizes of the wire client's
// buffers.
func (c *Chain) Begin(conn *zk.Conn) { c.buffers.begin(conn, c.cfg.MaxRequest) }

// ErrSevered is why no connection is made any more.
var ErrSevered = errors.New("the session is over")

// Latest returns the connection on which a server has confirmed the session
// last, nil if none has.
func (c *Chain) Latest() *Link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}

// ID returns the id of the session, 0 until a server has confirmed it.
func (c *Chain) ID() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

// Seen returns the latest transaction that an answer has had, 0 without one.
func (c *Chain) Seen() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// LastAnswer returns when a server has answered last, a ping included.
func (c *Chain) LastAnswer() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered
}

// NextOrder returns the place of something that happens now, in the order of
// all events of the session and of all answers to requests of ours.
func (c *Chain) NextOrder() uint64 { return c.order.Add(1) }

// Order returns the latest place in that order.
func (c *Chain) Order() uint64 { return c.order.Load() }

func (c *Chain) nextOwnXid() int32 { return ownXid(c.ownRequests.Add(1) - 1) }

// Explain adds to the loss of a connection the malformed answer that caused it,
// if there was one after since.
func (c *Chain) Explain(err error, since time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.malformed == nil || c.malformedAt.Before(since) {
		return err
	}
	return zkerr.Because(err, c.malformed)
}

// onMalformed notes that something arrived on l that cannot be an answer.
func (c *Chain) onMalformed(l *Link, err error) {
	err = fmt.Errorf("from %s: %w", l.RemoteAddr(), err)
	c.mu.Lock()
	c.malformed, c.malformedAt = err, time.Now()
	c.mu.Unlock()
	c.told.Ended(l, Reason{Malformed, err})
}

// Sever lets nothing more be sent. It returns the connection that the caller
// must close, nil without one or if Sever was called before. To close it may
// take long: the connection is the user's.
func (c *Chain) Sever() *Link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.IsSevered() {
		return nil
	}
	close(c.severed)
	return c.dialed
}

// IsSevered reports whether nothing may be sent any more.
func (c *Chain) IsSevered() bool { return closed.Is(c.severed) }

// Severed returns a channel that is closed when nothing may be sent any more.
func (c *Chain) Severed() <-chan struct{} { return c.severed }

// Closing reports whether the request that closes the session was executed, and
// whether the server has ended the connection on which it was sent.
func (c *Chain) Closing() (confirmed, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closeConfirmed, c.closeEnded
}

// Orphan returns what the ensemble may still have when the session is over: the
// session, or one that a server has opened on a connection that was never
// authenticated.
func (c *Chain) Orphan() servers.Orphan {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id == 0 {
		return servers.Orphan{ID: c.remembered.ID, Password: c.remembered.Password, Timeout: c.timeout}
	}
	return servers.Orphan{ID: c.id, Password: c.password, Timeout: c.timeout}
}

// UnsentWrite is a write that the wire client has, and has not sent yet.
type UnsentWrite struct {
	path string
	then func(*Link)
}

// AwaitSent calls then when the next write of path is about to be sent, unless
// ForgetSent comes first or another AwaitSent with the same path. path is the
// first one of a multi. then runs on the goroutine that sends, and may call
// Link.SendBehind.
func (c *Chain) AwaitSent(path string, then func(*Link)) *UnsentWrite {
	u := &UnsentWrite{path, then}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsent == nil {
		c.unsent = make(map[string]*UnsentWrite)
	}
	c.unsent[path] = u
	return u
}

// ForgetSent ends AwaitSent. It may be called again, and when the write was
// sent.
func (c *Chain) ForgetSent(u *UnsentWrite) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsent[u.path] == u {
		delete(c.unsent, u.path)
	}
}

// onSend notes that a request is about to be sent on l, and reports whether it
// may.
func (c *Chain) onSend(l *Link, xid int32, op wire.Op, path []byte, now time.Time) bool {
	c.mu.Lock()
	if c.IsSevered() {
		c.mu.Unlock()
		return false
	}
	if op == wire.OpCloseSession {
		c.closeXid = xid
	}
	sent := c.unsent[string(path)]
	delete(c.unsent, string(path))
	c.mu.Unlock()
	c.told.Sent(l, xid, op, op == wire.OpMulti && string(path) == "/", now)
	if sent != nil {
		sent.then(l)
	}
	return true
}
