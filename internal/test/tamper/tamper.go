// Package tamper replaces answers of a server with other bytes, for tests of
// malformed answers.
package tamper

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Dial opens a connection.
type Dial = func(network, address string, timeout time.Duration) (net.Conn, error)

// Answer is one frame of a server.
type Answer struct {
	Op    wire.Op // of the request that it answers: OpCreateSession for the connect, 0 for a notification
	Path  string  // of that request, if it begins with one
	Frame []byte  // all of it, with its length in front
}

// Instead says what the client gets in place of an answer: Frame, one byte in
// each Pace if that is not 0, and then the end of the connection if HangUp is
// set.
type Instead struct {
	Frame  []byte
	Pace   time.Duration
	HangUp bool
}

// Pass lets an answer through.
func Pass(a Answer) Instead { return Instead{Frame: a.Frame} }

// Wrap returns a Dial with connections on which f decides about each answer.
// The goroutine that reads the connection calls f.
func Wrap(dial Dial, f func(Answer) Instead) Dial {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		c, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: c, f: f, closed: make(chan struct{}), asked: make(map[int32]request)}, nil
	}
}

type request struct {
	op   wire.Op
	path string
}

type conn struct {
	net.Conn
	f      func(Answer) Instead
	opened bool          // used by the reader: the connect was answered
	out    []byte        // used by the reader: what the client has not read yet
	pace   time.Duration // used by the reader: of each byte of out
	end    bool          // used by the reader: the connection ends after out

	once   sync.Once
	closed chan struct{}

	mu       sync.Mutex // guards what follows
	deadline time.Time  // of reads
	in       []byte     // the client's frame that is not complete yet
	first    bool       // the connect was sent
	word     bool       // the connection is for a four-letter word, and has no frames
	asked    map[int32]request
}

const prefix = 4 // the length of a frame

func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.word = c.word || !c.first && len(c.in) == 0 && (string(p) == "srvr" || string(p) == "conf" || string(p) == "dump")
	if !c.word {
		c.in = append(c.in, p...)
	}
	for len(c.in) >= prefix {
		size := prefix + int(binary.BigEndian.Uint32(c.in))
		if len(c.in) < size {
			break
		}
		c.note(c.in[prefix:size])
		c.in = c.in[size:]
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *conn) note(payload []byte) {
	if !c.first {
		c.first = true
		return
	}
	d := wire.NewDecoder(payload)
	var head wire.RequestHeader
	head.Decode(d)
	if d.Err() == nil {
		r := request{op: head.Op}
		if d.Len() > 0 {
			r.path = d.String() // meaningless if the request does not begin with a path
		}
		c.asked[head.Xid] = r
	}
}

func (c *conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	word := c.word
	c.mu.Unlock()
	if word {
		return c.Conn.Read(p)
	}
	for len(c.out) == 0 {
		if c.end {
			_ = c.Close()
			return 0, io.EOF
		}
		frame, err := c.frame()
		if err != nil {
			return 0, err
		}
		instead := c.f(c.answer(frame))
		c.out, c.pace, c.end = instead.Frame, instead.Pace, instead.HangUp
	}
	if c.pace > 0 && len(p) > 1 {
		p = p[:1]
	}
	if err := c.rest(); err != nil {
		return 0, err
	}
	n := copy(p, c.out)
	c.out = c.out[n:]
	return n, nil
}

// rest waits for the pace, or until the connection is closed or its deadline
// has passed.
func (c *conn) rest() error {
	if c.pace == 0 {
		return nil
	}
	c.mu.Lock()
	deadline := c.deadline
	c.mu.Unlock()
	timer := time.NewTimer(c.pace)
	defer timer.Stop()
	select {
	case <-c.closed:
		return net.ErrClosed
	case now := <-timer.C:
		if !deadline.IsZero() && now.After(deadline) {
			return os.ErrDeadlineExceeded
		}
		return nil
	}
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *conn) frame() ([]byte, error) {
	frame := make([]byte, prefix)
	if _, err := io.ReadFull(c.Conn, frame); err != nil {
		return nil, err
	}
	frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
	_, err := io.ReadFull(c.Conn, frame[prefix:])
	return frame, err
}

func (c *conn) answer(frame []byte) Answer {
	a := Answer{Frame: frame}
	if !c.opened {
		c.opened = true
		a.Op = wire.OpCreateSession
		return a
	}
	var head wire.ReplyHeader
	head.Decode(wire.NewDecoder(frame[prefix:]))
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.asked[head.Xid]
	delete(c.asked, head.Xid)
	a.Op, a.Path = r.op, r.path
	return a
}
