package talk

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
)

// Each step to a server with TLS has what is left of the time.
func TestTheTimeToDialWithTLS(t *testing.T) {
	const limit = 4 * time.Second
	for name, tt := range map[string]struct {
		configured, dialed time.Duration // how long that takes
		toDial, took       time.Duration
	}{
		"at once":                 {0, 0, limit, limit},
		"a late configuration":    {limit - 1, 0, time.Millisecond, limit - 1 + time.Millisecond},
		"none":                    {limit + 1, 0, 0, limit},
		"half the time each":      {limit / 2, limit / 2, limit / 2, limit + time.Millisecond},
		"a dial of three fourths": {0, limit * 3 / 4, limit, limit},
	} {
		synctest.Test(t, func(t *testing.T) {
			var toDial time.Duration
			ours, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			c := of(Config{TLS: func() (*tls.Config, error) {
				time.Sleep(tt.configured)
				return &tls.Config{}, nil
			}, Dial: func(_, _ string, within time.Duration) (net.Conn, error) {
				toDial = within
				time.Sleep(tt.dialed)
				return ours, nil
			}})
			began := time.Now()
			_, err := c.DialServer(nil, "tcp", serverlist.Server{Name: "a:1", Address: "a:1"}, limit)
			if took := time.Since(began); err == nil || toDial != tt.toDial || took != tt.took {
				t.Errorf("%s: %v, dialed within %v, after %v", name, err, toDial, took)
			}
			_ = ours.Close()
			_ = theirs.Close()
			time.Sleep(time.Second) // the configuration
		})
	}
}

// A server that does not speak TLS, or is silent, is said to be that: the error
// of the handshake alone leaves open who has failed.
func TestAHandshakeThatDoesNotSucceed(t *testing.T) {
	for says, answer := range map[string]func(net.Conn){
		"TLS: the server does not speak TLS at this address: ":                                         func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
		"TLS: the server has ended the handshake, as one that does not expect TLS at this address: ":   func(c net.Conn) { _ = c.Close() },
		"TLS: the handshake does not end, as at a server that is silent: ":                             func(net.Conn) {},
		"TLS: the server refuses the handshake, as one that wants a certificate of the client, or has": func(c net.Conn) { _, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) },
	} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			go func() {
				_, _ = theirs.Read(make([]byte, 4096)) // of the hello
				answer(theirs)
				_, _ = io.Copy(io.Discard, theirs)
			}()
			c := of(Config{
				TLS:  func() (*tls.Config, error) { return &tls.Config{}, nil },
				Dial: func(string, string, time.Duration) (net.Conn, error) { return ours, nil },
			})
			_, err := c.DialServer(nil, "tcp", serverlist.Server{Name: "a:1", Address: "a:1"}, time.Second)
			if err == nil || !strings.HasPrefix(err.Error(), says) {
				t.Errorf("%v, want %s", err, says)
			}
			_ = theirs.Close()
		})
	}
}
