// Package talk talks to one server: it opens a connection, with TLS and SASL if
// these are configured, and asks questions over it, in addition to the
// connection of the wire client.
//
// # State, and who owns it
//
// A Talker has none but how it was configured. It does not know which servers
// there are: each call names one.
//
// # What callers may rely on
//
// Each step has a limit, and ends early with its context or when stop is
// closed, also where the user's function does not return: that goes on, on
// another goroutine. A Mechanism and an Exchange are called on such a
// goroutine, and so are the functions of a TLS configuration. A connection that
// is not returned is closed.
//
// # In which order to read
//
// This file; dial.go and punctual.go, how a connection is opened; sasl.go, how
// it is authenticated; connect.go, how it gets a session; srvr.go, what a
// server says of itself.
package talk

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Config is how servers are talked to. Nothing changes it.
type Config struct {
	Timeout   time.Duration                                                          // the session timeout that the client asks for
	Dial      func(network, address string, timeout time.Duration) (net.Conn, error) // nil: TCP
	TLS       func() (*tls.Config, error)                                            // nil: no TLS
	Auths     []wire.AuthRequest                                                     // presented in each session
	SASL      Mechanism
	Supplying supplied.Tokens // of calls of the user's functions, apart from Dial
	Log       *zap.Logger     // never blocks
}

// Mechanism is the user's mechanism of SASL. framework.SASL and its relatives
// say what each function does. The zero Mechanism is none; Changed and Renew
// may be nil beside Begin.
type Mechanism struct {
	Begin   func(ctx context.Context, to serverlist.Server) (Exchange, error)
	Changed func() bool
	Renew   func(ctx context.Context, servers []serverlist.Server) (next time.Time, err error)
}

// Exchange is the client's side of one exchange with a server. It is used once.
type Exchange interface {
	Next(challenge []byte) (response []byte, done bool, err error)
}

// Talker talks to servers. See the package comment.
type Talker struct{ cfg Config }

// mostDials is how many calls of the user's dialer may be under way.
const mostDials = 16

// New returns a Talker. It does nothing until it is called.
func New(cfg Config) *Talker {
	if cfg.Dial == nil {
		cfg.Dial = net.DialTimeout
	} else {
		cfg.Dial = punctual(cfg.Dial, supplied.NewTokens(mostDials, cfg.Log))
	}
	return &Talker{cfg}
}
