package costs_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// traffic is what a client has sent and received.
type traffic struct{ requests, transactions, events atomic.Int64 }

// dial returns a dialer whose connections count in t.
func (t *traffic) dial(dial framework.Dialer) framework.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &counted{Conn: conn, sent: frames{each: t.sent}, received: frames{each: t.received}}, nil
	}
}

// These requests change the tree, or would if they were not refused.
var changing = map[testutil.Op]bool{
	testutil.OpCreate: true, testutil.OpCreate2: true, testutil.OpCreateContainer: true, testutil.OpCreateTTL: true,
	testutil.OpDelete: true, testutil.OpSetData: true, testutil.OpSetACL: true, testutil.OpMulti: true,
}

const (
	eventXid = -1
	pingXid  = -2
)

func (t *traffic) sent(frame []byte) {
	if int32(binary.BigEndian.Uint32(frame)) == pingXid {
		return
	}
	t.requests.Add(1)
	if changing[testutil.Op(binary.BigEndian.Uint32(frame[4:]))] {
		t.transactions.Add(1)
	}
}

func (t *traffic) received(frame []byte) {
	if int32(binary.BigEndian.Uint32(frame)) == eventXid {
		t.events.Add(1)
	}
}

type counted struct {
	net.Conn
	sent, received frames
}

func (c *counted) Write(p []byte) (int, error) {
	c.sent.add(p)
	return c.Conn.Write(p)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.add(p[:n])
	return n, err
}

// frames cuts a stream into frames. The first is part of the handshake.
type frames struct {
	each  func(frame []byte)
	begun bytes.Buffer
	first bool // has passed
}

func (f *frames) add(p []byte) {
	f.begun.Write(p)
	for f.begun.Len() >= 4 {
		size := int(binary.BigEndian.Uint32(f.begun.Bytes()))
		if f.begun.Len() < 4+size {
			return
		}
		frame := f.begun.Next(4 + size)[4:]
		if f.first {
			f.each(frame)
		}
		f.first = true
	}
}
