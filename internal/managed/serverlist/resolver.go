package serverlist

import (
	"context"
	"net"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// cancelable returns a resolver as r, whose lookups leave nothing behind when
// their context ends: Go's resolver would leave a goroutine that reads from the
// name server, for 5s by default. Those of the C library cannot be ended.
func cancelable(r *net.Resolver, log *zap.Logger) *net.Resolver {
	if r == nil {
		return nil
	}
	dial := r.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return &net.Resolver{PreferGo: r.PreferGo, StrictErrors: r.StrictErrors, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		var conn net.Conn
		dialed := supplied.Go(log, func() (err error) {
			if conn, err = dial(ctx, network, address); err == nil {
				context.AfterFunc(ctx, func() { _ = conn.Close() })
			}
			return err
		})
		select {
		case err := <-dialed:
			if err != nil {
				return nil, err
			}
			return conn, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
}
