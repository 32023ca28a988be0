package managed_test

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// heldConn is a connection whose writes wait while hold is set.
type heldConn struct {
	net.Conn
	hold *atomic.Pointer[chan struct{}]
}

func (c heldConn) Write(p []byte) (int, error) {
	if until := c.hold.Load(); until != nil {
		<-*until
	}
	return c.Conn.Write(p)
}

// While a request of the wire client is being written, none of ours is noted:
// the answers are expected in the order of the notes.
func TestRequestsAreNotedInTheOrderInWhichTheyAreSent(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var hold atomic.Pointer[chan struct{}]
		network := ens.ClientNet("held")
		c, _ := connect(t, ens, framework.WithDialer(func(net, address string, limit time.Duration) (net.Conn, error) {
			conn, err := network.Dial(net, address, limit)
			return heldConn{conn, &hold}, err
		}))
		if _, err := c.ReadAll(t.Context(), framework.Read{Path: "/"}); err != nil { // asks the server for its version
			t.Fatal(err)
		}
		s := session(t, c)
		until := make(chan struct{})
		hold.Store(&until)
		ended := make(chan error)
		go func() {
			_, _, err := c.Get(t.Context(), "/")
			ended <- err
		}()
		synctest.Wait()
		go func() {
			_, err := c.ReadAll(t.Context(), framework.Read{Path: "/"})
			ended <- err
		}()
		synctest.Wait() // would hang if both were being written
		if n := inside(s).Unanswered(); n != 1 {
			t.Errorf("%d requests are noted while the first is being written", n)
		}
		hold.Store(nil)
		close(until)
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}
