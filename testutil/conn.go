package testutil

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// conn is one client connection at one member. Two goroutines serve it. The
// reader takes requests and executes them under the ensemble's lock, or queues
// those that have to wait. The writer sends what is in the outbound queue. All
// replies and events go through that one queue, which is filled under the
// ensemble's lock, so they are sent in the order in which things happened.
type conn struct {
	m      *member
	nc     net.Conn
	remote string
	since  time.Time
	done   chan struct{} // closed when the connection has ended

	// Guarded by the ensemble's lock.
	session        int64
	claimed        int64 // the session that the client asked for, once it has asked
	timeout        int32 // milliseconds
	auth           []wire.ID
	saslNonce      string     // of the challenge that the client was sent
	saslDone       bool       // the client has answered it
	readOnly       bool       // the connect request has the read-only byte, so the reply must have it
	connectArrived bool       // the connect request has arrived
	open           bool       // the session is established
	inbox          []arrival  // read, but not yet arrived: held back by a fault or by latency
	queue          []*request // arrived and not yet executed, in order
	atLeader       bool       // a request is at the leader: the next one waits
	pumping        bool
	sessionless    *time.Timer // closes it unless a connect request arrives
	closed         bool        // nothing more is sent, but requests that have arrived are still executed
	dead           bool        // the member dropped its clients: nothing more is executed
	lastPacket     time.Time   // when the last packet arrived
	traffic        traffic
	last           lastAnswer

	outMu  sync.Mutex
	out    []outbound
	unsent int           // bytes of out, and of what is being written
	wake   chan struct{} // receives when out is not empty
}

// What may wait to be sent to a client that does not read. With more than
// mostUnsent its requests wait as well. Events do not: with more than
// tooMuchUnsent the connection ends.
const (
	mostUnsent    = 16 << 20
	tooMuchUnsent = 4 * mostUnsent
)

// arrival is a request that was read. A nil request is the end of the stream.
type arrival struct {
	due     time.Time
	request *request
	err     error
}

type outbound struct {
	data []byte
	due  time.Time
	gate <-chan struct{} // if not nil, wait until it is closed
	last bool            // close the connection after it
}

// read is the goroutine that reads requests.
func (c *conn) read() {
	defer c.m.e.wg.Done()
	err := c.shake()
	if err == nil {
		err = c.readAll(bufio.NewReaderSize(c.nc, 16<<10))
	}
	c.enqueueArrival(nil, err)
}

func (c *conn) readAll(r *bufio.Reader) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	if isWord(head) {
		c.enqueueArrival(&request{c: c, member: c.m, word: string(head[:])}, nil)
		<-c.done
		return nil
	}
	frame, err := wire.ReadPayload(r, head, wire.MaxFrame, nil)
	for first := true; err == nil; first = false {
		var req *request
		if first {
			req, err = c.decodeConnect(frame)
		} else {
			req, err = c.decode(frame)
		}
		if err != nil {
			return err
		}
		c.m.e.ask(req)
		c.enqueueArrival(req, nil)
		frame, err = wire.ReadFrame(r, wire.MaxFrame, nil)
	}
	return err
}

// enqueueArrival queues a request, or the end of the stream, on its way to the
// member.
func (c *conn) enqueueArrival(r *request, err error) {
	e := c.m.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if r != nil && r.connect != nil {
		c.claimed = r.connect.SessionID
	}
	var due time.Time
	if d := time.Duration(e.latency.Load()); d > 0 {
		due = time.Now().Add(d)
		time.AfterFunc(d, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			c.arrivalsLocked()
		})
	}
	c.inbox = append(c.inbox, arrival{due, r, err})
	c.arrivalsLocked()
}

// arrivalsLocked delivers what was read, unless a fault keeps it from the
// member. After a connect request the server reads nothing, not even the end of
// the stream, until it has answered.
func (c *conn) arrivalsLocked() {
	for len(c.inbox) > 0 && !c.blockedLocked() && !c.closed && c.connectArrived == c.open {
		a := c.inbox[0]
		if !a.due.IsZero() && time.Now().Before(a.due) {
			return
		}
		c.inbox = c.inbox[1:]
		if a.request != nil {
			c.arrivedLocked(a.request)
			continue
		}
		c.endedLocked(a.err)
	}
}

// endedLocked closes the connection after the stream has ended.
func (c *conn) endedLocked(err error) {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
		c.m.e.cfg.logf("testutil: member %d closes the connection of session %#x from %s: %v", c.m.index, c.session, c.remote, err)
	}
	if errors.Is(err, wire.ErrMalformed) {
		c.closeAfterSendingLocked() // an answer that is already queued is still sent
	} else {
		c.closeLocked()
	}
	c.pumpLocked() // what has arrived and waited is still executed
}

// blockedLocked reports whether a fault stops all bytes of the connection, in
// both directions.
func (c *conn) blockedLocked() bool {
	cutOff := c.m.e.cutOff
	return c.m.paused || c.m.mute || len(cutOff) > 0 && (cutOff[c.session] || cutOff[c.claimed])
}

// arrivedLocked delivers a request to the member. The session is touched now,
// even if the request has to wait.
func (c *conn) arrivedLocked(r *request) {
	c.lastPacket = time.Now()
	r.arrived = c.lastPacket
	c.traffic.received++
	c.m.traffic.received++
	if r.word != "" {
		c.m.wordLocked(c, r.word)
		return
	}
	r.session, r.auth = c.session, c.auth
	if r.connect != nil {
		c.connectArrived = true
		c.sessionless.Stop()
		c.queue = append(c.queue, r)
		c.holdLocked(r)
		c.pumpLocked()
		return
	}
	if r.op != wire.OpAuth && r.op != wire.OpSASL && !c.mayAskLocked() {
		c.unauthenticatedLocked(r)
		return
	}
	if !c.touchLocked() {
		return // the session is being closed, and its connection with it
	}
	if c.m.wedged && r.op == wire.OpPing {
		c.executeLocked(r)
		return
	}
	if (r.op == wire.OpAuth || r.op == wire.OpSASL) && r.action.kind == pass {
		c.authLocked(r) // the server answers it before the requests in its queue
		return
	}
	c.queue = append(c.queue, r)
	c.holdLocked(r)
	c.pumpLocked()
}

func (c *conn) touchLocked() bool {
	m := c.m
	if m.lead != nil {
		return m.lead.touchLocked(c.session, c.timeout)
	}
	m.touched[c.session] = c.timeout
	return true
}

// pumpLocked executes the queued requests, up to the first one that has to
// wait.
func (c *conn) pumpLocked() {
	if c.pumping {
		return
	}
	c.pumping = true
	for len(c.queue) > 0 && !c.atLeader && !c.dead && !c.m.paused {
		r := c.queue[0]
		if !c.closed && c.unsentBytes() > mostUnsent {
			break
		}
		if r.held || r.connect == nil && c.m.wedged {
			break
		}
		c.queue = c.queue[1:]
		c.executeLocked(r)
	}
	c.pumping = false
}

// resumeLocked executes the requests that waited for one at the leader.
func (c *conn) resumeLocked() {
	c.atLeader = false
	c.pumpLocked()
}

// send queues bytes for the client. It is called with the ensemble's lock held.
func (c *conn) send(data []byte) { c.enqueue(outbound{data: data}) }

func (c *conn) enqueue(o outbound) {
	if c.closed {
		return
	}
	if d := time.Duration(c.m.e.latency.Load()); d > 0 {
		if late := time.Now().Add(d); o.due.Before(late) {
			o.due = late
		}
	}
	if len(o.data) > 0 {
		c.traffic.sent++
		c.m.traffic.sent++
	}
	c.outMu.Lock()
	c.out = append(c.out, o)
	c.unsent += len(o.data)
	unsent := c.unsent
	c.outMu.Unlock()
	if unsent > tooMuchUnsent+len(o.data) {
		c.m.e.cfg.logf("testutil: member %d closes the connection of session %#x from %s: it does not read, and %d bytes wait for it",
			c.m.index, c.session, c.remote, unsent)
		c.closeLocked()
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *conn) unsentBytes() int {
	c.outMu.Lock()
	defer c.outMu.Unlock()
	return c.unsent
}

// sent notes that bytes were sent, and goes on with the requests that have
// waited for that.
func (c *conn) sent(n int) {
	c.outMu.Lock()
	before := c.unsent
	c.unsent -= n
	resume := before > mostUnsent && c.unsent <= mostUnsent
	c.outMu.Unlock()
	if resume {
		e := c.m.e
		e.mu.Lock()
		defer e.mu.Unlock()
		c.pumpLocked()
	}
}

// closeAfterSendingLocked closes the connection after everything queued has
// been sent.
func (c *conn) closeAfterSendingLocked() {
	if c.closed {
		return
	}
	c.enqueue(outbound{last: true})
	c.detachLocked()
}

// closeLocked closes the connection at once.
func (c *conn) closeLocked() {
	if !c.closed {
		c.detachLocked()
	}
	select {
	case <-c.done:
	default:
		close(c.done)
		_ = c.nc.SetWriteDeadline(time.Unix(1, 0)) // ends a write to a client that does not read
	}
}

func (c *conn) detachLocked() {
	c.closed = true
	c.sessionless.Stop()
	c.m.dataWatches.drop(c)
	c.m.childWatches.drop(c)
	if c.m.bySession[c.session] == c {
		delete(c.m.bySession, c.session)
	}
}

// write is the goroutine that sends what is queued, and finally closes the
// connection.
func (c *conn) write() {
	defer c.m.e.wg.Done()
	defer c.cleanUp()
	var batch []byte
	for {
		c.outMu.Lock()
		out := c.out
		c.out = nil
		c.outMu.Unlock()
		if len(out) == 0 {
			select {
			case <-c.wake:
				continue
			case <-c.done:
				return
			}
		}
		for _, o := range out {
			if o.waits() && len(batch) > 0 {
				if !c.flush(batch) {
					return
				}
				batch = batch[:0]
			}
			if !o.await(c.done) {
				return
			}
			batch = append(batch, o.data...)
			if o.last {
				c.flush(batch)
				return
			}
		}
		if !c.flush(batch) {
			return
		}
		batch = batch[:0]
		if cap(batch) > 1<<20 {
			batch = nil
		}
	}
}

func (o *outbound) waits() bool { return o.gate != nil || !o.due.IsZero() }

// flush writes b, after the last fault that stops the connection has ended. It
// returns false if the connection has ended.
func (c *conn) flush(b []byte) bool {
	e := c.m.e
	for {
		e.mu.Lock()
		deaf, changed := c.blockedLocked(), e.changed
		e.mu.Unlock()
		if !deaf {
			break
		}
		select {
		case <-changed:
		case <-c.done:
			return false
		}
	}
	select {
	case <-c.done:
		return false
	default:
	}
	if len(b) == 0 {
		return true
	}
	_, err := c.nc.Write(b)
	c.sent(len(b))
	return err == nil
}

// cleanUp cleans up when the writer has ended. It drops what was not sent:
// Go keeps a stopped timer for a while, and what it refers to with it.
func (c *conn) cleanUp() {
	c.nc.Close()
	e := c.m.e
	e.mu.Lock()
	defer e.mu.Unlock()
	c.closeLocked()
	c.outMu.Lock()
	c.out = nil
	c.outMu.Unlock()
	c.pumpLocked()
	delete(c.m.conns, c)
}

func (c *conn) String() string { return fmt.Sprintf("%s, session %#x", c.remote, c.session) }
