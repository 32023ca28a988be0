package framework

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
)

// SASL is a mechanism by which a client authenticates each of its connections.
// Package sasl/digestmd5 has one.
//
// If it also has a method Check() error, New calls it and returns its error. A
// method Changed() bool is called about once a second while the client pauses
// after a refusal, on a separate goroutine. It reports whether the credentials
// differ from those of the last exchange; if so, the next attempt is made
// immediately. See also SASLRenewer.
type SASL interface {
	// Begin begins an exchange with a server. It is called before the server is
	// dialed, on a separate goroutine, so it may ask a directory or read a file.
	// Several calls may be under way, 16 at most. ctx ends when the attempt to
	// connect has no time left; what is returned after that is dropped. An error
	// means that the server is not dialed. It must wrap ErrAuthFailed if it is a
	// refusal, and not if something could not be reached.
	Begin(ctx context.Context, to SASLServer) (SASLExchange, error)
}

// SASLServer is a server that is about to be dialed.
type SASLServer struct {
	Name    string // "host:port", as in the list of servers
	Address string // as it is dialed: the name, or an address of it
}

// SASLExchange is the client's side of one exchange. It is used once.
type SASLExchange interface {
	// Next returns the response to a challenge of the server. The first challenge
	// is nil: the client begins. A response is sent unless it is nil; it may be
	// empty. done says that no challenge is expected after it. An error ends the
	// connection, and counts as ErrAuthFailed. Next is called on a separate
	// goroutine, and has the rest of the time to connect.
	Next(challenge []byte) (response []byte, done bool, err error)
}

// SASLRenewer is implemented by a SASL that keeps something fresh between the
// connections, such as tickets.
type SASLRenewer interface {
	// Renew is called at New, and again at the time that it returns, but not
	// within a second. After an error, which is logged, the pauses grow up to a
	// minute. The calls are made one after the other, on a separate goroutine.
	// Close ends ctx, and does not wait for the call. servers are the servers for
	// which Begin may be called, according to the latest lookups of their names.
	Renew(ctx context.Context, servers []SASLServer) (next time.Time, err error)
}

// WithSASL authenticates each connection before the first request on it. The
// credentials of WithAuth are presented after that. The connect itself, with
// the session's id and password, comes first: use TLS to be safe from false
// servers. A session that is over is closed without authentication if need be.
// Unlike other options it may not be repeated. Default: none.
//
// A connection that is refused does not count: the state stays Connecting or
// Suspended, and no lease is extended. If the session is lost for that, the
// refusal is in StateChange.Err. Once each server of the list was tried, and
// one of them has refused and none has accepted, calls that wait for a
// connection fail with ErrAuthFailed. From then on the pauses between attempts
// grow to between half a minute and a minute, because directories lock
// accounts; a mechanism whose credentials have changed is tried immediately.
// The next connection that is accepted ends all that.
func WithSASL(m SASL) Option {
	return func(c *config) { c.SASL = append(c.SASL, managed.SASL{Mechanism: mechanism(m), Of: m}) }
}

// mechanism returns m in the words of package talk, the zero one without m.
func mechanism(m SASL) (in talk.Mechanism) {
	if m == nil {
		return in
	}
	in.Begin = func(ctx context.Context, to servers.Server) (talk.Exchange, error) {
		return m.Begin(ctx, SASLServer{to.Name, to.Address})
	}
	if m, ok := m.(interface{ Changed() bool }); ok {
		in.Changed = m.Changed
	}
	if m, ok := m.(SASLRenewer); ok {
		in.Renew = func(ctx context.Context, all []servers.Server) (time.Time, error) {
			these := make([]SASLServer, len(all))
			for i, s := range all {
				these[i] = SASLServer{s.Name, s.Address}
			}
			return m.Renew(ctx, these)
		}
	}
	return in
}
