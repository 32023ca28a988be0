package managed

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Raw makes single connections as a client with the same options does, and has
// nothing that runs by itself.
type Raw struct{ core *core }

// NewRaw returns a Raw of the ensemble at list. It validates its arguments.
func NewRaw[Option ~func(*Config)](list string, opts ...Option) (Raw, error) {
	c, err := idleCore(list, opts)
	return Raw{c}, err
}

// Names returns the servers, with ports.
func (r Raw) Names() []string { return slices.Sorted(slices.Values(r.core.servers.Names())) }

// Chroot returns the chroot, "" without one.
func (r Raw) Chroot() string { return string(r.core.chroot) }

// Timeout returns the session timeout to request.
func (r Raw) Timeout() time.Duration { return r.core.cfg.SessionTimeout }

// MaxRequest returns the size of the largest request.
func (r Raw) MaxRequest() int { return r.core.cfg.MaxRequest }

// Credentials returns the schemes of what is presented.
func (r Raw) Credentials() (schemes []string) {
	for _, a := range r.core.cfg.Auths {
		schemes = append(schemes, a.Scheme)
	}
	if len(r.core.cfg.SASL) > 0 {
		schemes = append(schemes, "sasl")
	}
	return schemes
}

// Certificates returns ours, for TLS.
func (r Raw) Certificates() []tls.Certificate {
	if r.core.cfg.TLS != nil {
		if own, err := r.core.cfg.TLS(); err == nil {
			return own.Certificates
		}
	}
	return nil
}

// Resolve looks a name of the list up, and returns its addresses.
func (r Raw) Resolve(ctx context.Context, name string, limit time.Duration) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found, err := r.core.servers.Resolve(ctx, name)
	return slices.Sorted(slices.Values(found)), err
}

// Members returns the members in the config of the ensemble at which such a
// client calls them.
func (r Raw) Members(config []byte) ([]string, error) {
	members, _, _, err := serverlist.Members(config, r.core.cfg.TLS != nil)
	return members, err
}

// Dial opens a connection, with TLS if that is configured.
func (r Raw) Dial(ctx context.Context, to servers.Server, limit time.Duration) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return r.core.servers.DialServer(ctx.Done(), "tcp", to, limit)
}

// Connect also sends a connect request, and authenticates unless that is not
// wanted. It returns no connection, and no error either, if the session is
// gone. A session that was opened is returned with an error as well.
func (r Raw) Connect(ctx context.Context, to servers.Server, limit time.Duration, connect *wire.ConnectRequest, authenticated bool) (net.Conn, wire.ConnectResponse, error) {
	return r.ConnectBy(ctx, to, limit, talk.Ask(connect), authenticated)
}

// ConnectBy is Connect. It calls ask for the request when it has dialed, with
// the connection.
func (r Raw) ConnectBy(ctx context.Context, to servers.Server, limit time.Duration, ask func(net.Conn) (*wire.ConnectRequest, error), authenticated bool) (net.Conn, wire.ConnectResponse, error) {
	return r.core.servers.Connect(ctx, to, limit, ask, authenticated, nil)
}

// Close closes a session over a separate connection, in one write. It returns
// nil once the session is known to be gone.
func (r Raw) Close(ctx context.Context, to servers.Server, limit time.Duration, id int64, password []byte, authenticated bool) error {
	return r.core.servers.CloseAt(ctx, to, id, password, authenticated, limit)
}
