package bubble

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
)

// Tap listens to one connection of a client. Frames come without their length,
// and are valid until the call returns. In each direction the first one is a
// part of the handshake.
type Tap struct {
	Sent, Received func(frame []byte)  // before the servers and the client get it
	Ended          func(byClient bool) // once; may be nil
}

// Tapped returns dial with a tap on each connection.
func Tapped(dial framework.Dialer, tap func() Tap) framework.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		t := tap()
		return &tapped{Conn: conn, sent: frames{each: t.Sent}, received: frames{each: t.Received}, end: t.Ended}, nil
	}
}

type tapped struct {
	net.Conn
	sent, received frames
	once           sync.Once
	end            func(byClient bool)
}

func (c *tapped) Write(p []byte) (int, error) {
	c.sent.add(p)
	return c.Conn.Write(p)
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.add(p[:n])
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.ended(false)
	}
	return n, err
}

func (c *tapped) Close() error {
	c.ended(true)
	return c.Conn.Close()
}

func (c *tapped) ended(byClient bool) {
	c.once.Do(func() {
		if c.end != nil {
			c.end(byClient)
		}
	})
}

// frames cuts a stream into frames.
type frames struct {
	each  func(frame []byte)
	begun bytes.Buffer
}

func (f *frames) add(p []byte) {
	f.begun.Write(p)
	for f.begun.Len() >= 4 {
		size := int(binary.BigEndian.Uint32(f.begun.Bytes()))
		if f.begun.Len() < 4+size {
			return
		}
		f.each(f.begun.Next(4 + size)[4:])
	}
}
