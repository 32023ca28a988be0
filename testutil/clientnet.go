package testutil

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Dial connects to a member by one of the addresses of Servers. It fits
// framework.WithDialer and zk.WithDialer. Over TCP it is net.DialTimeout.
// Nothing else reaches an ensemble that is in memory.
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
	e.mu.Lock()
	members := e.members
	e.mu.Unlock()
	for _, m := range members {
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
		m.startConn(far)
		return near, nil
	}
	return nil, &net.OpError{Op: "dial", Net: network, Addr: memAddr(address), Err: errors.New("no member has this address")}
}

type memAddr string

func (memAddr) Network() string  { return "tcp" }
func (a memAddr) String() string { return string(a) }

// ClientNet returns the network between the members and the client with this
// name. The same name returns the same network. Close ends it.
func (e *Embedded) ClientNet(name string) *ClientNet {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.clients[name]
	if n == nil {
		n = NewClientNet(e.serversLocked(), e.Dial)
		if e.clients == nil {
			e.clients = map[string]*ClientNet{}
		}
		if e.closed {
			close(n.done)
			n.closed = true
		}
		e.clients[name] = n
	}
	return n
}

// ClientNet is the network between one client and an ensemble of any kind. Its
// faults affect only the connections made through its Dial or through the
// addresses of its Listen: Cut, CutOneWay, Drop, Latency, LoseEvents, and those
// of single requests by Control. Ensemble.ClientNet returns one, and
// [NewClientNet] makes one for other servers. Its methods may be called from
// any goroutine. The zero ClientNet acts like a closed one.
type ClientNet struct {
	dial          func(network, address string, timeout time.Duration) (net.Conn, error)
	wg            sync.WaitGroup
	done          chan struct{} // closed when Close begins
	toServerDelay atomic.Int64  // of messages to the servers, in nanoseconds
	toClientDelay atomic.Int64  // of messages to the client, in nanoseconds

	loseEvents atomic.Bool
	keeper     keeper

	mu          sync.Mutex // guards what follows
	servers     []string
	closed      bool
	cutToServer bool // cut in this direction
	cutToClient bool
	conns       map[*pipeEnd]struct{}
	changed     chan struct{} // closed and replaced when the cuts change
	hooks       []*hook
	imitates    Imitation
	listeners   []net.Listener // of the servers, as far as Listen has opened them
}

// NewClientNet returns a network between one client and servers that no
// Ensemble runs. servers are their addresses, separated by commas. dial
// connects to one of them; nil means net.DialTimeout. End the network with
// Close.
func NewClientNet(servers string, dial func(network, address string, timeout time.Duration) (net.Conn, error)) *ClientNet {
	if dial == nil {
		dial = net.DialTimeout
	}
	return &ClientNet{
		servers: strings.Split(servers, ","), dial: dial, done: make(chan struct{}),
		conns: map[*pipeEnd]struct{}{}, changed: make(chan struct{}),
	}
}

// AddServer tells the network of a server that has joined the others. An
// Ensemble does so itself when a member is added. The server's index in a
// Request is the next one. Its address for other processes is in what Listen
// returns from then on.
func (n *ClientNet) AddServer(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers = append(n.servers, address)
}

// Dial connects the client to a server. While the client is cut off, Dial waits
// for Heal and fails when timeout has passed. On a closed network it fails with
// net.ErrClosed.
func (n *ClientNet) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if timeout <= 0 {
		timeout = 2 * time.Minute // what a TCP stack does by default
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		n.mu.Lock()
		closed, cut, changed := n.closed || n.dial == nil, n.cutToServer || n.cutToClient, n.changed
		n.mu.Unlock()
		if closed {
			return nil, &net.OpError{Op: "dial", Net: network, Addr: memAddr(address), Err: net.ErrClosed}
		}
		if !cut {
			break
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, &net.OpError{Op: "dial", Net: network, Addr: memAddr(address), Err: os.ErrDeadlineExceeded}
		case <-n.done:
			return nil, &net.OpError{Op: "dial", Net: network, Addr: memAddr(address), Err: net.ErrClosed}
		}
	}
	server, err := n.dial(network, address, timeout)
	if err != nil {
		return nil, err
	}
	near, far := newPipe(server.LocalAddr(), server.RemoteAddr())
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		server.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Addr: memAddr(address), Err: net.ErrClosed}
	}
	for old := range n.conns {
		if old.over() {
			delete(n.conns, old)
		}
	}
	n.conns[near] = struct{}{}
	n.applyLocked(near)
	n.wg.Add(1)
	go newRelay(n, slices.Index(n.servers, address), far, server).run()
	return near, nil
}

func (n *ClientNet) applyLocked(p *pipeEnd) {
	p.out.update(func() { p.out.held = n.cutToServer })
	p.in.update(func() { p.in.held = n.cutToClient })
}

func (n *ClientNet) setCut(toServer, toClient bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cutToServer, n.cutToClient = toServer, toClient
	for p := range n.conns {
		n.applyLocked(p)
	}
	if n.changed != nil {
		close(n.changed)
	}
	n.changed = make(chan struct{})
}

// Cut stops everything in both directions, as a broken network does:
// connections hang, new ones time out, and neither side is told.
func (n *ClientNet) Cut() { n.setCut(true, true) }

// CutOneWay cuts one direction: what the client sends if toServer is true, or
// else what the servers send. New connections time out.
func (n *ClientNet) CutOneWay(toServer bool) { n.setCut(toServer, !toServer) }

// Heal ends a cut. What was sent meanwhile arrives now on the connections that
// are still open.
func (n *ClientNet) Heal() { n.setCut(false, false) }

// Latency sets how long each message takes from now on, by direction. The
// default is 0 in both.
func (n *ClientNet) Latency(toServer, toClient time.Duration) {
	n.toServerDelay.Store(int64(max(toServer, 0)))
	n.toClientDelay.Store(int64(max(toClient, 0)))
}

// LoseEvents sets whether the events of watches are lost on their way to the
// client. Nothing else is lost, and neither side is told. Some releases of the
// real server have lost events like that.
func (n *ClientNet) LoseEvents(lose bool) { n.loseEvents.Store(lose) }

// Drop breaks all connections of the client, at both ends.
func (n *ClientNet) Drop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p := range n.conns {
		p.breakOff()
		delete(n.conns, p)
	}
}

// Control makes f decide about every request of this client, pings included,
// until stop is called. It is like Embedded.Control, but works in front of any
// server: a request that it holds back has not reached the member, which
// therefore has not heard from the session. The request arrives later even if
// the client has closed the connection meanwhile, but not if Drop has broken
// the connection.
func (n *ClientNet) Control(f func(Request) Action) (stop func()) {
	if f == nil {
		return func() {}
	}
	h := &hook{f}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hooks = append(slices.Clone(n.hooks), h)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.hooks = slices.DeleteFunc(slices.Clone(n.hooks), func(o *hook) bool { return o == h })
	}
}

func (n *ClientNet) ask(r Request) Action {
	n.mu.Lock()
	hooks := n.hooks
	n.mu.Unlock()
	return decide(hooks, r)
}

// Close breaks all connections of the client, ends the listeners of Listen, and
// waits until every goroutine of the network has ended. It returns an error if
// one has not ended after ten seconds. Closing twice is fine.
func (n *ClientNet) Close() error {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		if n.done != nil {
			close(n.done)
		}
		for _, l := range n.listeners {
			l.Close()
		}
	}
	n.mu.Unlock()
	n.Drop()
	ended := make(chan struct{})
	go func() { n.wg.Wait(); close(ended) }()
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return errors.New("testutil: goroutines of a ClientNet have not ended ten seconds after Close")
	}
}

// over reports whether the pipe is closed in both directions.
func (p *pipeEnd) over() bool { return p.in.over() && p.out.over() }

func (s *stream) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken || (s.writerClosed || s.readerClosed) && !s.held
}
