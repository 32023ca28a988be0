package closing

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Ensemble makes connections to the servers of one ensemble.
type Ensemble interface {
	// Find returns the servers, after lookups of at most limit.
	Find(ctx context.Context, limit time.Duration) []servers.Server
	// Connect connects to a session: it dials within limit, and then the answers
	// have as long. It calls ask for the request when it has dialed, and sends
	// nothing if ask fails. It returns no connection, and no error either, if the
	// session is gone. A connection has a deadline.
	Connect(ctx context.Context, to servers.Server, limit time.Duration, ask func() (*wire.ConnectRequest, error)) (net.Conn, wire.ConnectResponse, error)
}

// longestDial bounds a dial, whatever limit it is given.
const longestDial = time.Minute

// Open returns the ensemble that a client with the same options would use. It
// does no I/O. Credentials of framework.WithAuth are never sent.
func Open(list string, opts ...framework.Option) (Ensemble, error) {
	raw, err := managed.NewRaw(list, append(slices.Clone(opts), func(c *managed.Config) {
		c.Auths, c.SessionTimeout = nil, 3*longestDial // a dial has a third of it
	})...)
	if err != nil {
		return nil, err
	}
	return members{raw}, nil
}

// members is a client's list of servers.
type members struct{ managed.Raw }

// Find does not wait long for a lookup once it has found a server: the process
// may have known more addresses than a name server knows now.
func (m members) Find(ctx context.Context, limit time.Duration) (all []servers.Server) {
	names := m.Names()
	found := make(chan []servers.Server, len(names))
	for _, name := range names {
		go func() { // ends within limit
			var some []servers.Server
			addresses, _ := m.Resolve(ctx, name, limit) // the other names may do
			for _, address := range addresses {
				some = append(some, servers.Server{Name: name, Address: address})
			}
			found <- some
		}()
	}
	var late <-chan time.Time
	for range names {
		select {
		case some := <-found:
			if all = append(all, some...); late == nil && len(all) > 0 {
				late = time.After(hedge)
			}
		case <-late:
			return all
		}
	}
	return all
}

// Connect presents no credentials to a server that refuses them: most servers
// close a session without credentials, too.
func (m members) Connect(ctx context.Context, to servers.Server, limit time.Duration, ask func() (*wire.ConnectRequest, error)) (net.Conn, wire.ConnectResponse, error) {
	authenticated := len(m.Credentials()) > 0
	began := time.Now()
	asks := func(conn net.Conn) (*wire.ConnectRequest, error) {
		withdraw(conn)
		return ask()
	}
	conn, answer, err := m.ConnectBy(ctx, to, limit, asks, authenticated)
	if authenticated && (errors.Is(err, zk.ErrAuthFailed) || errors.Is(err, framework.ErrAuthFailed)) {
		return m.ConnectBy(ctx, to, max(limit-time.Since(began), time.Millisecond), asks, false)
	}
	return conn, answer, err
}

// withdraw makes the end of a connection, also by the end of this process, take
// back what has not reached the server's host. Otherwise the kernel would send
// it for minutes: a connect that was given up would extend its session, or move
// it back, when the network is mended.
func withdraw(conn net.Conn) {
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secured.NetConn()
	}
	if tcp, ok := conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = tcp.SetLinger(0) // it has ended otherwise
	}
}
