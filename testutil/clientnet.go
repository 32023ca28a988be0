package testutil

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Dial connects to a member by its address, as Servers has it. It fits zk.Dialer. Over TCP it is net.DialTimeout; an ensemble in
// memory is reached in no other way.
func (e *Embedded) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if !e.cfg.memory {
		return net.DialTimeout(network, address, timeout)
	}
	near, err := e.dialMemory(network, address)
	if err != nil {
		return nil, err // not a nil *pipeEnd in an interface
	}
	return near, nil
}

func (e *Embedded) dialMemory(network, address string) (*pipeEnd, error) {
	for _, m := range e.members {
		if m.addr != address {
			continue
		}
		e.mu.Lock()
		up := m.up
		e.mu.Unlock()
		if !up {
			return nil, &net.OpError{Op: "dial", Net: network, Addr: memAddr(address), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		client := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 10000 + int(e.ports.Add(1)%50000)}
		near, far := newPipe(client, memAddr(address))
		m.welcome(far)
		return near, nil
	}
	return nil, &net.OpError{Op: "dial", Net: network, Addr: memAddr(address), Err: fmt.Errorf("no member has this address")}
}

type memAddr string

func (memAddr) Network() string  { return "tcp" }
func (a memAddr) String() string { return string(a) }

// ClientNet is the network between one client and the ensemble: connections made through its Dial can be cut, healed and broken
// without touching those of others.
type ClientNet struct {
	e *Embedded

	mu       sync.Mutex
	toServer bool // cut in this direction
	toClient bool
	conns    map[*pipeEnd]struct{}
	changed  chan struct{} // closed, and replaced, when the cuts change
}

// Client returns the network of the client with this name; the same name gives the same network.
func (e *Embedded) Client(name string) *ClientNet {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.clients[name]
	if n == nil {
		n = &ClientNet{e: e, conns: map[*pipeEnd]struct{}{}, changed: make(chan struct{})}
		e.clients[name] = n
	}
	return n
}

// Dial is Embedded.Dial for this client. While the client is cut off it waits in vain until the time-out, or until Heal.
func (n *ClientNet) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if timeout <= 0 {
		timeout = 2 * time.Minute // what a TCP stack does by itself
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		n.mu.Lock()
		cut, changed := n.toServer || n.toClient, n.changed
		n.mu.Unlock()
		if !cut {
			break
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, &net.OpError{Op: "dial", Net: network, Addr: memAddr(address), Err: os.ErrDeadlineExceeded}
		case <-n.e.done:
			return nil, &net.OpError{Op: "dial", Net: network, Addr: memAddr(address), Err: net.ErrClosed}
		}
	}
	near, err := n.connect(network, address, timeout)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for old := range n.conns {
		if old.over() {
			delete(n.conns, old)
		}
	}
	n.conns[near] = struct{}{}
	n.applyLocked(near)
	return near, nil
}

// connect makes a connection whose client end is a pipe, whatever the members listen on: a pipe can be cut.
func (n *ClientNet) connect(network, address string, timeout time.Duration) (*pipeEnd, error) {
	if n.e.cfg.memory {
		return n.e.dialMemory(network, address)
	}
	nc, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	near, far := newPipe(nc.LocalAddr(), nc.RemoteAddr())
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	if n.e.closed {
		nc.Close()
		return nil, net.ErrClosed
	}
	n.e.wg.Add(1)
	go n.relay(far, nc.(*net.TCPConn))
	return near, nil
}

// relay copies between a pipe and a TCP connection, both ways, until both ways have ended.
func (n *ClientNet) relay(far *pipeEnd, nc *net.TCPConn) {
	defer n.e.wg.Done()
	ended := make(chan struct{}) // the way to the client
	go func() {
		defer close(ended)
		if _, err := io.Copy(far, nc); err != nil {
			far.breakOff()
		}
		_ = far.CloseWrite()
	}()
	if _, err := io.Copy(nc, far); err != nil {
		far.breakOff()
		nc.Close()
	}
	_ = nc.CloseWrite() // it may be gone already
	<-ended
	nc.Close()
	far.Close()
}

func (n *ClientNet) applyLocked(p *pipeEnd) {
	p.out.update(func() { p.out.held = n.toServer })
	p.in.update(func() { p.in.held = n.toClient })
}

func (n *ClientNet) set(toServer, toClient bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.toServer, n.toClient = toServer, toClient
	for p := range n.conns {
		n.applyLocked(p)
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// Cut cuts the client off, both ways, as a network does that loses every packet: connections hang, new ones time out, nobody is
// told anything.
func (n *ClientNet) Cut() { n.set(true, true) }

// CutOneWay cuts one direction: what the client sends to the servers, or what they send to it. New connections time out.
func (n *ClientNet) CutOneWay(toServer bool) { n.set(toServer, !toServer) }

// Heal ends a cut. What was sent meanwhile on connections that are still open arrives now.
func (n *ClientNet) Heal() { n.set(false, false) }

// Drop breaks all connections of the client, at both ends.
func (n *ClientNet) Drop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p := range n.conns {
		p.breakOff()
		delete(n.conns, p)
	}
}

// over reports whether nothing can flow on the pipe any more.
func (p *pipeEnd) over() bool { return p.in.over() && p.out.over() }

func (s *stream) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reset || (s.ended || s.deaf) && !s.held
}
