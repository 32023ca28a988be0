package managed_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// timeout is the session timeout T of the tests in virtual time. The stop
// margin of a lease is 600ms. A heartbeat is sent every 2s, or every second
// with keepers.
const timeout = 6 * time.Second

// inBubble runs a scenario in virtual time, on an embedded ensemble of n
// members.
func inBubble(t *testing.T, members int, scenario func(t *testing.T, ens *testutil.Embedded), opts ...testutil.Option) {
	t.Helper()
	bubble.Run(t, func(t *testing.T, w *bubble.World) { scenario(t, w.Embedded) }, append(opts, testutil.WithMembers(members))...)
}

var clients atomic.Int64 // numbers them, over all tests

// start returns a client, behind its own network, that is closed with the test.
func start(t *testing.T, ens *testutil.Embedded, opts ...framework.Option) (*framework.Client, *testutil.ClientNet) {
	t.Helper()
	network := ens.ClientNet(fmt.Sprint("client ", clients.Add(1)))
	opts = append([]framework.Option{framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial)}, opts...)
	c, err := framework.New(ens.Servers(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		network.Heal()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, network
}

// connect is start, and waits until the client is connected.
func connect(t *testing.T, ens *testutil.Embedded, opts ...framework.Option) (*framework.Client, *testutil.ClientNet) {
	t.Helper()
	c, network := start(t, ens, opts...)
	if err := c.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, network
}

// session returns the client's live session.
func session(t *testing.T, c *framework.Client) *framework.Session {
	t.Helper()
	s, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// holdUntilLost holds s for good, so that it ends at its deadline if no server
// answers.
func holdUntilLost(t *testing.T, s *framework.Session) {
	t.Helper()
	if _, err := s.Hold(nil); err != nil {
		t.Fatal(err)
	}
}

// recorder keeps the states that a client went through.
type recorder struct {
	mu      sync.Mutex
	changes []framework.StateChange
}

func record(c *framework.Client) *recorder {
	r := &recorder{}
	c.Listen(func(change framework.StateChange) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changes = append(r.changes, change)
	})
	return r
}

func (r *recorder) all() []framework.StateChange {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]framework.StateChange(nil), r.changes...)
}

func (r *recorder) states() string {
	text := ""
	for _, c := range r.all() {
		text += c.To.String() + " "
	}
	return text
}

// within returns a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// near reports whether two times are equal, except for the time that messages
// take, which is none in memory.
func near(a, b time.Time) bool { return a.Sub(b).Abs() < 2*time.Millisecond }
