package testutil

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Listen opens an address on loopback for each server and returns them as a connect string: a process that connects there, in
// whatever language it is written, is on this client's network. The addresses stay until Close; a second call returns the same.
func (n *ClientNet) Listen() (servers string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.dial == nil {
		return "", fmt.Errorf("testutil: listen for a client: %w", net.ErrClosed)
	}
	if n.front != "" {
		return n.front, nil
	}
	var addresses []string
	for _, server := range n.servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			for _, l := range n.listeners {
				l.Close()
			}
			n.listeners = nil
			return "", fmt.Errorf("testutil: listen for %s: %w", server, err)
		}
		n.listeners = append(n.listeners, l)
		addresses = append(addresses, l.Addr().String())
	}
	for i, l := range n.listeners {
		n.wg.Add(1)
		go n.accept(l, n.servers[i])
	}
	n.front = strings.Join(addresses, ",")
	return n.front, nil
}

func (n *ClientNet) accept(l net.Listener, server string) {
	defer n.wg.Done()
	for {
		outside, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, most likely: somebody will close one
			time.Sleep(5 * time.Millisecond)
			continue
		}
		n.wg.Add(1)
		go n.pipe(outside.(*net.TCPConn), server)
	}
}

// pipe gives a process that has connected what Dial would have given it. The system has accepted its connection already: where Dial
// would fail, it is closed.
func (n *ClientNet) pipe(outside *net.TCPConn, server string) {
	defer n.wg.Done()
	defer outside.Close()
	inside, err := n.Dial("tcp", server, 0)
	if err != nil {
		return
	}
	ended := make(chan struct{}) // the way to the process
	go func() {
		defer close(ended)
		if _, err := io.Copy(outside, inside); err != nil {
			_ = outside.SetLinger(0) // broken, not ended: so shall it be for the process
		}
		outside.Close()
	}()
	_, _ = io.Copy(inside, outside) // however the process has left, the server learns of it
	inside.Close()
	<-ended
}
