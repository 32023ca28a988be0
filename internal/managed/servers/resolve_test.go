package servers

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// The first lookup of a process creates a channel that all later ones share. If
// it were created in a bubble, it could not be used outside, so it is created
// before any test.
func init() {
	_, _ = (&net.Resolver{PreferGo: true}).LookupIPAddr(context.Background(), "localhost")
}

// A name server that does not answer delays nobody for longer than a connection
// may take.
func TestResolvingIsBounded(t *testing.T) {
	silent := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	synctest.Test(t, func(t *testing.T) {
		const name = "zk.example.:2181"
		c := of(Config{Names: []string{name}, Resolver: silent})
		for what, resolve := range map[string]func() bool{
			"the next": func() bool { _, _, err := c.list.Next(nil, 2*time.Second); return err == nil },
			"all":      func() bool { return len(c.list.Find(t.Context(), 2*time.Second)) > 0 },
			"to close": func() bool {
				return c.close(t.Context(), Orphan{ID: 7, Timeout: 6 * time.Second}, inTurn) == nil
			},
			"to dial": func() bool { _, _, _, err := c.Dial("tcp", nil, 2*time.Second); return err == nil },
			"by hand": func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				_, err := c.Resolve(ctx, name)
				return err == nil
			},
		} {
			synctest.Wait() // the lookup before has ended
			began := time.Now()
			if found := resolve(); found || time.Since(began) != 2*time.Second {
				t.Errorf("%s: found %t after %v", what, found, time.Since(began))
			}
		}
	})
}
