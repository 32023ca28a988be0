package closing

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/tlstest"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// TestAConnectThatWasGivenUp is taken back: its connection is reset, so the
// kernel does not send again what the member's host has not received.
func TestAConnectThatWasGivenUp(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	for name, secured := range map[string]bool{"TCP": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var opts []framework.Option
			if secured {
				l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{authority.Issue("zk.example", time.Hour)}})
				opts = append(opts, framework.WithTLS(&tls.Config{RootCAs: authority.Pool(), ServerName: "zk.example"}))
			}
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			ended := make(chan error, 1)
			go func() { // ends with the connection
				conn, err := l.Accept()
				if err == nil {
					defer conn.Close()
					_, err = wire.ReadFrame(conn, 100, nil)
				}
				if giveUp(); err == nil {
					_, err = io.Copy(io.Discard, conn)
				}
				ended <- err
			}()
			e, err := Open(l.Addr().String(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = e.Connect(ctx, e.Find(t.Context(), time.Minute)[0], time.Minute, func() (*wire.ConnectRequest, error) {
				return &wire.ConnectRequest{Timeout: 1000, SessionID: 10, Password: make([]byte, wire.PasswordSize)}, nil
			})
			if reset := <-ended; err == nil || !errors.Is(reset, syscall.ECONNRESET) {
				t.Errorf("%v; the member sees %v", err, reset)
			}
		})
	}
}
