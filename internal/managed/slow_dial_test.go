package managed_test

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Slow dials and servers that do not answer the connect request end no idle
// session, each of them within its own limit.
func TestASlowDialToAMuteServerEndsNoIdleSession(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var mute atomic.Bool
		network := ens.ClientNet("slow")
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout),
			framework.WithDialer(func(name, address string, limit time.Duration) (net.Conn, error) {
				if !mute.Load() {
					return network.Dial(name, address, limit)
				}
				time.Sleep(limit * 9 / 10)
				ours, theirs := net.Pipe()
				go func() {
					_, _ = io.Copy(io.Discard, theirs)
					_ = theirs.Close()
				}()
				return ours, nil
			}))
		must(t, err)
		defer c.Close()
		must(t, c.WaitConnected(t.Context()))
		s := session(t, c)
		mute.Store(true)
		network.Drop()
		time.Sleep(3 * timeout)
		if err := s.Err(); err != nil {
			t.Errorf("the session was ended: %v", err)
		}
		mute.Store(false)
		time.Sleep(timeout) // no dial is under way
	})
}
