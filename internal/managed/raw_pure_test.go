package managed

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// The first lookup of a process creates a channel that all later ones share. If
// it were created in a bubble, it could not be used outside, so it is created
// before any test.
func init() {
	_, _ = (&net.Resolver{PreferGo: true}).LookupIPAddr(context.Background(), "localhost")
}

// A name server that does not answer delays a lookup by its limit at most.
func TestResolvingByHandIsBounded(t *testing.T) {
	silent := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	synctest.Test(t, func(t *testing.T) {
		const name = "zk.example.:2181"
		r := Raw{newCore(Config{Log: zap.NewNop(), Resolver: silent}, []string{name}, "")}
		began := time.Now()
		if found, err := r.Resolve(t.Context(), name, 2*time.Second); len(found) > 0 || err == nil || time.Since(began) != 2*time.Second {
			t.Errorf("%v, %v after %v", found, err, time.Since(began))
		}
	})
}
