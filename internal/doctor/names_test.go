package doctor_test

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/nameserver"
)

// Two names of three without an answer took the time of both, and nothing was
// asked at the third.
func TestNamesAreLookedUpBesideEachOther(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		names := &nameserver.Server{}
		names.Is("", "10.0.0.1")
		for _, silent := range []string{"zk0.example.", "zk1.example."} {
			names.Answer(silent, nameserver.Silence, 0)
		}
		began := time.Now()
		var first atomic.Int64
		examine(t, "zk0.example.:2181,zk1.example.:2181,zk2.example.:2181", false, framework.WithResolver(names.Resolver()), framework.WithSessionTimeout(9*time.Second),
			framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
				if strings.HasPrefix(address, "10.") {
					first.CompareAndSwap(0, int64(time.Since(began)))
					address = w.Servers()
				}
				return w.Dial(network, address, limit)
			}))
		if took := time.Duration(first.Load()); took != 3*time.Second {
			t.Errorf("the first server was called after %v", took)
		}
	})
}
