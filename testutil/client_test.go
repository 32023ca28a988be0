package testutil_test

import (
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inOrder is a host provider that resolves nothing, for addresses that only the
// ensemble's dialer knows.
type inOrder struct {
	mu    sync.Mutex
	hosts []string
	next  int
}

func (h *inOrder) Init(servers []string) error {
	h.hosts = servers
	return nil
}

func (h *inOrder) Len() int { return len(h.hosts) }

func (h *inOrder) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.hosts[h.next%len(h.hosts)]
	h.next++
	return server, h.next > len(h.hosts) && (h.next-1)%len(h.hosts) == 0
}

func (h *inOrder) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next %= len(h.hosts) // a new round
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

type dialer = func(network, address string, timeout time.Duration) (net.Conn, error)

// wireClient connects the real wire client, waits for its session, and closes
// it when the test ends.
func wireClient(t testing.TB, servers string, dial dialer, timeout time.Duration) *zk.Conn {
	t.Helper()
	c, events, err := zk.Connect(strings.Split(servers, ","), timeout, zk.WithDialer(dial), zk.WithHostProvider(&inOrder{}),
		zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	connected := false
	for !connected {
		select {
		case event, ok := <-events:
			if !ok {
				t.Fatal("the client has given up")
			}
			connected = event.State == zk.StateHasSession
		case <-time.After(30 * time.Second):
			t.Fatal("the client gets no session")
		}
	}
	t.Cleanup(func() {
		c.Close()
		for range events { // until its goroutines have ended
		}
	})
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
