package managed_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// countedConn counts the writes of a connection.
type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// A create and the list behind it leave in one write, and the delete in
// another.
func TestACreateAndItsListAreOneWrite(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var writes atomic.Int64
		c, _ := connect(t, ens, framework.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := ens.Dial(network, address, timeout)
			return countedConn{conn, &writes}, err
		}))
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		for range 10 {
			before := writes.Load()
			made, err := contender(t.Context(), s)
			must(t, err)
			if len(made.Children) != 1 {
				t.Errorf("the list shows %q", made.Children)
			}
			must(t, s.Delete(t.Context(), made.Path, -1))
			if n := writes.Load() - before; n != 2 {
				t.Errorf("%d writes for a create, a list and a delete, want 2", n)
			}
		}
	})
}
