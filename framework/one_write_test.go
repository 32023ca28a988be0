package framework_test

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// Callers that give up at any instant leave no request behind that is kept
// back: each is answered at once, though nothing else is sent.
func TestNothingIsKeptBackForWhoHasGivenUp(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		began := time.Now()
		for round := range 50 {
			var creates sync.WaitGroup
			for i := range 8 {
				ctx, cancel := context.WithCancel(t.Context())
				creates.Go(func() {
					if made, err := contender(ctx, s); err == nil {
						s.Discard(made.Path)
					}
				})
				for range (round + i) % 7 {
					runtime.Gosched()
				}
				if i%2 == 0 {
					cancel()
				}
				defer cancel()
			}
			creates.Wait()
			synctest.Wait()
			if kept := framework.KeptBack(s); kept > 0 {
				t.Fatalf("round %d: %d bytes are kept back", round, kept)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}
