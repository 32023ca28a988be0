package framework

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// raw makes single connections as a client with the same options does, and
// nothing that runs by itself. The package internal/doctor says what each
// method does.
type raw struct{ core *core }

func (forEngine) Raw(servers string, opts ...Option) (any, error) {
	c, err := idleCore(servers, opts)
	if err != nil {
		return nil, err
	}
	return raw{c}, nil
}

func (r raw) Names() []string { return slices.Sorted(slices.Values(r.core.servers.names)) }

func (r raw) Chroot() string { return string(r.core.chroot) }

func (r raw) Timeout() time.Duration { return r.core.cfg.sessionTimeout }

func (r raw) MaxRequest() int { return r.core.cfg.maxRequest }

func (r raw) Credentials() (schemes []string) {
	for _, a := range r.core.cfg.auths {
		schemes = append(schemes, a.scheme)
	}
	if r.core.cfg.sasl != nil {
		schemes = append(schemes, "sasl")
	}
	return schemes
}

func (r raw) Certificates() []tls.Certificate {
	if r.core.cfg.tls != nil {
		if own, err := r.core.cfg.tls(); err == nil {
			return own.Certificates
		}
	}
	return nil
}

func (r raw) Resolve(ctx context.Context, name string, limit time.Duration) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found, err := r.core.servers.resolve(ctx, name)
	return slices.Sorted(slices.Values(found)), err
}

func (r raw) Dial(ctx context.Context, to SASLServer, limit time.Duration) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return r.core.dialServer(ctx.Done(), "tcp", server{name: to.Name, address: to.Address}, limit)
}

func (r raw) Connect(ctx context.Context, to SASLServer, limit time.Duration, connect *wire.ConnectRequest, authenticated bool) (net.Conn, wire.ConnectResponse, error) {
	return r.core.openSide(ctx, server{name: to.Name, address: to.Address}, limit, connect, authenticated, nil)
}

func (r raw) Close(ctx context.Context, to SASLServer, limit time.Duration, id int64, password []byte, authenticated bool) error {
	return r.core.closeRemotely(ctx, server{name: to.Name, address: to.Address}, id, password, authenticated, limit)
}
