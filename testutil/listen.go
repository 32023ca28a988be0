package testutil

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/goroutines"
)

// Listen opens an address on loopback for each server and returns these
// addresses, separated by commas. A process that connects there, in any
// language, is on this client's network. The addresses stay until Close. A
// second call returns the same, and those of servers that were added since. On
// a closed network Listen fails with net.ErrClosed.
func (n *ClientNet) Listen() (servers string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.dial == nil {
		return "", fmt.Errorf("testutil: listen for a client: %w", net.ErrClosed)
	}
	if goroutines.Bubble() != "" {
		return "", fmt.Errorf("testutil: listen for a client: %w", errSockets)
	}
	for _, server := range n.servers[len(n.listeners):] {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", fmt.Errorf("testutil: listen for %s: %w", server, err)
		}
		n.listeners = append(n.listeners, l)
		n.wg.Add(1)
		go n.accept(l, server)
	}
	addresses := make([]string, len(n.listeners))
	for i, l := range n.listeners {
		addresses[i] = l.Addr().String()
	}
	return strings.Join(addresses, ","), nil
}

func (n *ClientNet) accept(l net.Listener, server string) {
	defer n.wg.Done()
	for {
		outside, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, most likely: some will be closed soon
			time.Sleep(5 * time.Millisecond)
			continue
		}
		n.wg.Add(1)
		go n.pipe(outside.(*net.TCPConn), server)
	}
}

// pipe connects a process to a server through Dial. Its connection was already
// accepted by the system, so it is closed where Dial fails.
func (n *ClientNet) pipe(outside *net.TCPConn, server string) {
	defer n.wg.Done()
	defer outside.Close()
	inside, err := n.Dial("tcp", server, 0)
	if err != nil {
		return
	}
	ended := make(chan struct{}) // closed when nothing more is copied to the process
	go func() {
		defer close(ended)
		if _, err := io.Copy(outside, inside); err != nil {
			_ = outside.SetLinger(0) // the server's side broke, so the process's side breaks as well
		}
		outside.Close()
	}()
	_, _ = io.Copy(inside, outside) // the server is told, however the process has left
	inside.Close()
	<-ended
}
