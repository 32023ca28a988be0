package doctor

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/seam"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// open is in package framework, in raw.go: a wrong signature there is a panic
// when a program that imports this package starts.
var open = seam.Framework.(interface {
	Raw(servers string, opts ...framework.Option) (any, error)
}).Raw

// ensemble makes connections as a client with the same options does.
type ensemble interface {
	Names() []string // of the servers, with ports
	Chroot() string
	Timeout() time.Duration
	MaxRequest() int
	Credentials() (schemes []string)
	Certificates() []tls.Certificate // ours, for TLS
	Resolve(ctx context.Context, name string, limit time.Duration) ([]string, error)
	// Dial opens a connection, with TLS if that is configured.
	Dial(ctx context.Context, to framework.SASLServer, limit time.Duration) (net.Conn, error)
	// Connect also sends a connect request, and authenticates unless that is not
	// wanted. It returns no connection, and no error either, if the session is
	// gone. A session that was opened is returned with an error as well.
	Connect(ctx context.Context, to framework.SASLServer, limit time.Duration, ask *wire.ConnectRequest, authenticated bool) (net.Conn, wire.ConnectResponse, error)
	// Close closes a session over a connection of its own, in one write. It
	// returns nil once the session is known to be gone.
	Close(ctx context.Context, to framework.SASLServer, limit time.Duration, id int64, password []byte, authenticated bool) error
}
