package cutnet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Relays is a network of relays on loopback. They know TCP connections, not
// packets: what is lost arrives later, as if it had been sent again, and a
// connection whose way is cut is made when it is whole again, if both sides
// still want it.
type Relays struct {
	*links
	wg   sync.WaitGroup
	done chan struct{} // closed by Close

	mu        sync.Mutex // guards what follows
	closed    bool
	addresses map[route]string
	listeners []net.Listener
	conns     map[net.Conn]struct{}
}

// route is an address as one node reaches it.
type route struct {
	from, to int
	address  string
}

// NewRelays returns a network of relays. This process is at no node: it reaches
// each directly.
func NewRelays() *Relays {
	return &Relays{links: newLinks(), done: make(chan struct{}), addresses: map[route]string{}, conns: map[net.Conn]struct{}{}}
}

// Host returns loopback.
func (n *Relays) Host(int) string { return "127.0.0.1" }

// Enter does nothing: a node is known by the addresses that it uses.
func (n *Relays) Enter(int, *exec.Cmd) error { return nil }

// Address returns the address of a relay for this route.
func (n *Relays) Address(from, to int, address string) (string, error) {
	r := route{from, to, address}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return "", fmt.Errorf("cutnet: relay to %s: %w", address, net.ErrClosed)
	}
	if known := n.addresses[r]; known != "" {
		return known, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("cutnet: relay to %s: %w", address, err)
	}
	n.addresses[r] = l.Addr().String()
	n.listeners = append(n.listeners, l)
	n.wg.Go(func() { n.accept(r, l) })
	return n.addresses[r], nil
}

func (n *Relays) accept(r route, l net.Listener) {
	for {
		near, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, most likely
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if !n.keep(near) {
			return
		}
		n.wg.Go(func() { n.relay(r, near) })
	}
}

// keep makes Close close a connection. It returns false, and closes it, if the
// network is closed already.
func (n *Relays) keep(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		c.Close()
		return false
	}
	n.conns[c] = struct{}{}
	return true
}

func (n *Relays) drop(c net.Conn) {
	c.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// relay serves one connection.
func (n *Relays) relay(r route, near net.Conn) {
	defer n.drop(near)
	first, ok := n.handshake(r, near)
	if !ok {
		return
	}
	far, err := net.DialTimeout("tcp", r.address, 10*time.Second)
	if err != nil {
		reset(near)
		return
	}
	if !n.keep(far) {
		return
	}
	defer n.drop(far)
	said := io.MultiReader(bytes.NewReader(first), near)
	var wg sync.WaitGroup
	wg.Go(func() { n.pump(r.from, r.to, n.introduce(r.from, r.to, said), near, far) })
	wg.Go(func() { n.pump(r.to, r.from, far, far, near) })
	wg.Wait()
}

// handshake waits until both directions are open, as a connection cannot be
// made before, and returns what was sent meanwhile. It returns false if the
// caller has given up: then nothing of what it sent may arrive.
func (n *Relays) handshake(r route, near net.Conn) (first []byte, ok bool) {
	there, _ := n.get(r.from, r.to)
	back, _ := n.get(r.to, r.from)
	if there.Refused || back.Refused {
		n.lost.Add(1)
		reset(near)
		return nil, false
	}
	if !there.Cut && !back.Cut {
		return nil, true
	}
	n.lost.Add(1)
	gone, read := make(chan struct{}), make(chan struct{})
	go func() { // ends with the deadline below
		defer close(read)
		buf := make([]byte, 4096)
		for {
			k, err := near.Read(buf)
			first = append(first, buf[:k]...)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
			if err != nil {
				close(gone)
				return
			}
		}
	}()
	open := n.open(r.from, r.to, gone) && n.open(r.to, r.from, gone)
	_ = near.SetReadDeadline(time.Now())
	<-read
	_ = near.SetReadDeadline(time.Time{})
	select {
	case <-gone:
		return nil, false
	default:
		return first, open
	}
}

// open waits until a direction is not cut. It returns false when gone is
// closed, or the network.
func (n *Relays) open(from, to int, gone <-chan struct{}) bool {
	for {
		l, changed := n.get(from, to)
		if !l.Cut {
			return true
		}
		select {
		case <-changed:
		case <-gone:
			return false
		case <-n.done:
			return false
		}
	}
}

// piece is what was read at once, or how the connection ended, and when it
// arrives.
type piece struct {
	data []byte
	err  error
	due  time.Time
}

// pump forwards what is said in one direction of a connection. in and out are
// its two ends.
func (n *Relays) pump(from, to int, said io.Reader, in, out net.Conn) {
	pieces := make(chan piece, 100)
	n.wg.Go(func() { n.read(from, to, said, pieces) })
	for p := range pieces {
		if n.arrive(from, to, p, out) {
			continue
		}
		reset(in) // the reader ends
		for range pieces {
		}
	}
}

// read reads until the end, and decides when each piece arrives.
func (n *Relays) read(from, to int, said io.Reader, pieces chan<- piece) {
	defer close(pieces)
	var q lane
	var last time.Time
	for {
		buf := make([]byte, 1460) // a packet
		k, err := said.Read(buf)
		due := n.due(from, to, k, &q)
		if due.Before(last) {
			due = last
		}
		last = due
		if k > 0 {
			pieces <- piece{data: buf[:k], due: due}
		}
		if err != nil {
			pieces <- piece{err: err, due: due}
			return
		}
	}
}

// due returns when a piece arrives unless the way is cut.
func (n *Relays) due(from, to, size int, q *lane) time.Time {
	l, _ := n.get(from, to)
	due, fits := q.due(l, size, time.Now())
	if !fits {
		due = q.free // TCP sends less
	}
	const again = 200 * time.Millisecond // the shortest time after which TCP sends again
	for after := again; l.Loss > 0 && !l.Cut && l.loses() && after < 10*time.Second; after *= 2 {
		n.lost.Add(1)
		due = due.Add(after)
	}
	return due
}

// arrive writes a piece when it is due and the way is open. It returns false if
// it cannot be written.
func (n *Relays) arrive(from, to int, p piece, out net.Conn) bool {
	if wait := time.Until(p.due); wait > 0 {
		select {
		case <-time.After(wait):
		case <-n.done:
			return false
		}
	}
	l, _ := n.get(from, to)
	if l.Cut || l.Refused {
		n.lost.Add(1)
	}
	if l.Refused {
		return false
	}
	if !n.open(from, to, nil) { // the end is not told either
		return false
	}
	if p.err == nil {
		_, err := out.Write(p.data)
		return err == nil
	}
	if half, ok := out.(*net.TCPConn); ok && errors.Is(p.err, io.EOF) {
		_ = half.CloseWrite()
	} else {
		reset(out)
	}
	return true
}

// reset ends a connection with an error at the other side.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

// Close ends the network.
func (n *Relays) Close() error {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.done)
	}
	for _, l := range n.listeners {
		l.Close()
	}
	for c := range n.conns {
		c.Close()
	}
	n.mu.Unlock()
	n.wg.Wait()
	return nil
}
