package framework

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// dialServer opens a connection to one server, with TLS if that is configured,
// within limit, unless stop is closed.
func (c *core) dialServer(stop <-chan struct{}, network string, to server, limit time.Duration) (net.Conn, error) {
	if c.cfg.tls == nil {
		return c.cfg.dial(network, to.address, limit)
	}
	end := time.Now().Add(limit)
	left := func() time.Duration { return max(time.Until(end), time.Millisecond) }
	cfg, err := supplied.Get(context.Background(), c.supplying, stop, limit, func(context.Context) (*tls.Config, error) { return c.cfg.tls() })
	if err == nil && cfg == nil {
		err = errNoTLS
	}
	if err != nil {
		return nil, fmt.Errorf("TLS: configuration: %w", err)
	}
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(to.name)
	}
	conn, err := c.cfg.dial(network, to.address, left())
	if err != nil {
		return nil, err
	}
	secured := tls.Client(conn, cfg)
	_, err = supplied.Get(context.Background(), c.supplying, stop, left(), func(ctx context.Context) (struct{}, error) { // it calls functions of cfg
		return struct{}{}, secured.HandshakeContext(ctx)
	})
	if err != nil {
		_ = conn.Close()
		if zkerr.IsHangUp(err) {
			err = fmt.Errorf("the server has ended the handshake, as one that does not expect TLS at this address: %w", err)
		}
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return abruptConn{secured}, nil
}

var errNoTLS = errors.New("nil")

// abruptConn closes without the goodbye of TLS to the other end. That can take
// seconds, too long where a connection is closed because the deadline is near.
type abruptConn struct{ *tls.Conn }

func (c abruptConn) Close() error { return c.NetConn().Close() }
