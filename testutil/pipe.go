package testutil

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// pipeEnd is one end of a connection in memory that behaves like TCP. Writes
// return before the data is read, up to a window. What was written before a
// close can still be read. Each direction can be held, as by a network that
// loses all packets, and delivers them when it is healed. A pipe has two
// streams: each end reads one and writes the other.
type pipeEnd struct {
	in, out       *stream
	local, remote net.Addr
	readBy        deadline
	writeBy       deadline
}

// window is how many bytes a writer can be ahead of the reader.
const window = 256 << 10

// stream is one direction of a pipe.
type stream struct {
	mu           sync.Mutex
	buf          []byte        // written and not yet read
	held         bool          // what is written does not arrive
	arrived      int           // how many bytes of buf can be read
	writerClosed bool          // the writer has closed: the stream ends after buf
	broken       bool          // broken: both sides fail at once
	readerClosed bool          // the reader has closed: what is written is lost
	changed      chan struct{} // closed and replaced when any of this changes
}

func newPipe(client, server net.Addr) (near, far *pipeEnd) {
	a, b := &stream{changed: make(chan struct{})}, &stream{changed: make(chan struct{})}
	return &pipeEnd{in: a, out: b, local: client, remote: server}, &pipeEnd{in: b, out: a, local: server, remote: client}
}

func (s *stream) changeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// update changes the stream's state and wakes its waiters.
func (s *stream) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	if !s.held {
		s.arrived = len(s.buf)
	}
	s.changeLocked()
}

// read copies what has arrived. If nothing has, changed is closed when it is
// time to retry.
func (s *stream) read(p []byte) (n int, changed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.readerClosed:
		return 0, nil, io.ErrClosedPipe
	case s.broken:
		return 0, nil, syscall.ECONNRESET
	case s.arrived > 0:
		n = copy(p, s.buf[:s.arrived])
		s.buf, s.arrived = s.buf[n:], s.arrived-n
		if len(s.buf) == 0 {
			s.buf = nil
		}
		s.changeLocked()
		return n, nil, nil
	case s.writerClosed && !s.held:
		return 0, nil, io.EOF
	}
	return 0, s.changed, nil
}

// write takes what fits into the window. If nothing does, changed is closed
// when it is time to retry.
func (s *stream) write(p []byte) (n int, changed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.writerClosed:
		return 0, nil, io.ErrClosedPipe
	case s.broken:
		return 0, nil, syscall.ECONNRESET
	case s.readerClosed && !s.held:
		return 0, nil, syscall.EPIPE
	case len(s.buf) >= window:
		return 0, s.changed, nil
	}
	n = min(len(p), window-len(s.buf))
	s.buf = append(s.buf, p[:n]...)
	if !s.held {
		s.arrived = len(s.buf)
	}
	s.changeLocked()
	return n, s.changed, nil
}

// Read implements net.Conn.
func (p *pipeEnd) Read(b []byte) (int, error) {
	for {
		expired := p.readBy.wait()
		select {
		case <-expired:
			return 0, os.ErrDeadlineExceeded
		default:
		}
		n, changed, err := p.in.read(b)
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		select {
		case <-changed:
		case <-expired:
		}
	}
}

// Write implements net.Conn.
func (p *pipeEnd) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		expired := p.writeBy.wait()
		select {
		case <-expired:
			return written, os.ErrDeadlineExceeded
		default:
		}
		n, changed, err := p.out.write(b[written:])
		written += n
		if err != nil {
			return written, err
		}
		if n == 0 {
			select {
			case <-changed:
			case <-expired:
			}
		}
	}
	return written, nil
}

// CloseWrite ends this direction: the other end reads what was written, and
// then the end of the stream.
func (p *pipeEnd) CloseWrite() error {
	p.out.update(func() { p.out.writerClosed = true })
	return nil
}

// Close implements net.Conn. The other end reads what was written, and then the
// end of the stream. Its writes fail.
func (p *pipeEnd) Close() error {
	_ = p.CloseWrite()
	p.in.update(func() { p.in.readerClosed = true })
	p.readBy.set(time.Time{})
	p.writeBy.set(time.Time{})
	return nil
}

// breakOff makes both ends fail at once.
func (p *pipeEnd) breakOff() {
	p.in.update(func() { p.in.broken = true })
	p.out.update(func() { p.out.broken = true })
}

// hold stops or releases what this end sends.
func (p *pipeEnd) hold(held bool) { p.out.update(func() { p.out.held = held }) }

// LocalAddr implements net.Conn.
func (p *pipeEnd) LocalAddr() net.Addr { return p.local }

// RemoteAddr implements net.Conn.
func (p *pipeEnd) RemoteAddr() net.Addr { return p.remote }

// SetDeadline implements net.Conn.
func (p *pipeEnd) SetDeadline(t time.Time) error {
	p.readBy.set(t)
	p.writeBy.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (p *pipeEnd) SetReadDeadline(t time.Time) error {
	p.readBy.set(t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (p *pipeEnd) SetWriteDeadline(t time.Time) error {
	p.writeBy.set(t)
	return nil
}

// deadline is a deadline that can be moved while somebody waits for it. The
// channel is replaced only after it was closed, so a waiter sees either the
// deadline it started with or a later setting.
type deadline struct {
	mu      sync.Mutex
	timer   *time.Timer
	version int
	expired chan struct{}
	closed  bool
}

func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.expired == nil {
		d.expired = make(chan struct{})
	}
	return d.expired
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.version++
	if d.expired == nil || d.closed {
		d.expired, d.closed = make(chan struct{}), false
	}
	if t.IsZero() {
		return
	}
	wait := time.Until(t)
	if wait <= 0 {
		close(d.expired)
		d.closed = true
		return
	}
	version := d.version
	d.timer = time.AfterFunc(wait, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.version == version && !d.closed {
			close(d.expired)
			d.closed = true
		}
	})
}
