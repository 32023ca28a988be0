package testutil

import (
	"crypto/tls"
	"fmt"
	"net"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// WithTLS makes the members take connections with TLS alone, as cfg says, like
// the real server's secureClientPort. If cfg verifies the certificates of
// clients, the subject of a client's certificate is its identity in the scheme
// x509, and [WithEnforcedAuth] may require that. A control function of a
// [ClientNet] sees no request of such a connection; one of the ensemble does.
// By default members have no TLS.
func WithTLS(cfg *tls.Config) Option { return func(c *config) { c.tls = cfg } }

// secure returns a client's connection, which begins with a handshake if the
// members have TLS.
func (c *config) secure(nc net.Conn) net.Conn {
	if c.tls == nil {
		return nc
	}
	return abruptConn{tls.Server(nc, c.tls)}
}

// abruptConn closes without the goodbye of TLS, which waits for a client that
// does not read.
type abruptConn struct{ *tls.Conn }

func (c abruptConn) Close() error { return c.NetConn().Close() }

// shake makes the handshake, and notes who the client is.
func (c *conn) shake() error {
	secured, ok := c.nc.(abruptConn)
	if !ok {
		return nil
	}
	if err := secured.Handshake(); err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	verified := secured.ConnectionState().VerifiedChains
	if len(verified) == 0 {
		return nil
	}
	c.m.e.mu.Lock()
	defer c.m.e.mu.Unlock()
	c.addAuthLocked(wire.ID{Scheme: "x509", ID: verified[0][0].Subject.String()})
	return nil
}

// beginsTLS reports whether the first bytes of a connection are of TLS. As the
// length of a connect request they would be far too long.
func beginsTLS(head [4]byte) bool { return head[0] == 22 && head[1] == 3 }
