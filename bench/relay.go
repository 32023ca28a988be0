package main

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// relay passes connections on to a server. It counts the bytes that come from
// there, and the frames that go there.
type relay struct {
	listener net.Listener
	to       string
	frames   *frames
	received atomic.Int64
	copying  sync.WaitGroup
}

func newRelay(to string, f *frames) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{listener: l, to: to, frames: f}
	r.copying.Go(r.accept)
	return r, nil
}

func (r *relay) address() string { return r.listener.Addr().String() }

// accept ends when the listener is closed.
func (r *relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.to)
		if err != nil {
			_ = client.Close() // it finds that out by itself
			continue
		}
		r.copying.Go(func() { r.pass(&countedConn{Conn: server, frames: r.frames}, client) })
		r.copying.Go(func() { r.pass(client, counted{server, &r.received}) })
	}
}

// pass copies until one side closes its connection, and closes the other one.
func (r *relay) pass(to io.WriteCloser, from io.ReadCloser) {
	_, _ = io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
	_ = to.Close()
	_ = from.Close()
}

// close returns when all connections are closed, which their ends have to do.
func (r *relay) close() {
	_ = r.listener.Close()
	r.copying.Wait()
}

// counted adds up what is read.
type counted struct {
	io.ReadCloser
	sum *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.sum.Add(int64(n))
	return n, err
}
