package tlstest

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Front accepts TLS and forwards to a server without TLS, over loopback.
type Front struct {
	Address string

	config   atomic.Pointer[tls.Config]
	accepted atomic.Int64

	mu    sync.Mutex // guards conns
	conns map[net.Conn]struct{}
}

// NewFront returns a front of a server, which ends with the test.
func NewFront(t testing.TB, server string, config *tls.Config) *Front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &Front{Address: l.Addr().String(), conns: make(map[net.Conn]struct{})}
	f.Configure(config)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { f.serve(ctx, conn, server) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		cancel()
		serving.Wait()
	})
	return f
}

// Configure sets the configuration of later connections.
func (f *Front) Configure(config *tls.Config) { f.config.Store(config) }

// Accepted returns how many clients have been accepted.
func (f *Front) Accepted() int64 { return f.accepted.Load() }

// Drop closes the connections that stand.
func (f *Front) Drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.conns {
		conn.Close()
	}
}

func (f *Front) serve(ctx context.Context, conn net.Conn, server string) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	f.mu.Lock()
	f.conns[conn] = struct{}{}
	f.mu.Unlock()
	defer func() {
		conn.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.conns, conn)
	}()
	near := tls.Server(conn, f.config.Load())
	if near.Handshake() != nil {
		return
	}
	f.accepted.Add(1)
	far, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer far.Close()
	go func() { // ends with the connection
		_, _ = io.Copy(far, near)
		far.Close()
	}()
	_, _ = io.Copy(near, far)
}
