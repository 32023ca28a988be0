package talk

import (
	"context"
	"net"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// punctual returns a dialer that returns when its limit and lateness have
// passed, also where the user's does not: otherwise one server that hangs would
// keep the client from all others. A connection that comes later is closed.
func punctual(dial dialer, tokens supplied.Tokens) dialer {
	return func(network, address string, limit time.Duration) (net.Conn, error) {
		conn := make(chan net.Conn, 1) // what the dialer has returned, until somebody takes it
		_, err := supplied.Get(context.Background(), tokens, nil, limit+lateness, func(ctx context.Context) (none struct{}, err error) {
			c, err := dial(network, address, limit)
			if err != nil {
				return none, err
			}
			conn <- c
			if ctx.Err() != nil {
				drop(conn)
			}
			return none, nil
		})
		if err != nil {
			drop(conn)
			return nil, err
		}
		return <-conn, nil
	}
}

// lateness is how much later than its limit a dialer may return: one that sets
// a timer is always a little late, and its error says more.
const lateness = 100 * time.Millisecond

// drop closes the connection in a channel, if there is one.
func drop(conn <-chan net.Conn) {
	select {
	case c := <-conn:
		if c != nil {
			_ = c.Close()
		}
	default:
	}
}

// dialer is the user's function that opens connections.
type dialer = func(network, address string, limit time.Duration) (net.Conn, error)
