package presence_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// realClient is a client of real servers, and what it has asked.
type realClient struct {
	*framework.Client

	mu       sync.Mutex // guards requests
	requests map[string]int
}

func connectReal(t *testing.T, ens *apache.Ensemble, name string) *realClient {
	t.Helper()
	c := &realClient{requests: map[string]int{}}
	var err error
	c.Client, err = framework.New(ens.Servers(), framework.WithSessionTimeout(4*time.Second), framework.WithDialer(ens.ClientNet(name).Dial),
		framework.WithObserver(framework.Observer{RequestEnd: func(_ context.Context, r framework.Request, _ framework.RequestResult) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.requests[r.Op]++
		}}))
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.WaitConnected(t.Context()))
	return c
}

// asked returns how many requests of an operation there were since it was
// called before, and forgets all.
func (c *realClient) asked(op string) int {
	time.Sleep(100 * time.Millisecond) // for the observer
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.requests[op]
	clear(c.requests)
	return n
}

func (c *realClient) session(t *testing.T) *framework.Session {
	t.Helper()
	s, err := c.AwaitSession(t.Context())
	must(t, err)
	return s
}

// isOf waits until the znode is that of a client, with these data.
func isOf(t *testing.T, c *realClient, path, data string) *zk.Stat {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got, stat, err := c.Get(t.Context(), path)
		if err == nil && stat.EphemeralOwner == c.session(t).ID() && string(got) == data {
			return stat
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %q, %+v, %v", path, got, stat, err)
		}
	}
}

func TestOnTheRealServer(t *testing.T) {
	ens := apache.Start(t, 3)
	t.Run("a node", func(t *testing.T) { nodeOnReal(t, ens) })
	t.Run("many nodes", func(t *testing.T) { manyOnReal(t, ens) })
}

// What a node promises: over lost connections, expired sessions, deletes, and
// beside another session of the name.
func nodeOnReal(t *testing.T, ens *apache.Ensemble) {
	c, other := connectReal(t, ens, "ours"), connectReal(t, ens, "other")
	n := announce(t, c.Client, path, "one")
	isOf(t, c, path, "one")
	must(t, n.Set(t.Context(), []byte("two")))
	isOf(t, c, path, "two")

	_, before, err := c.Get(t.Context(), path)
	must(t, err)
	network := ens.ClientNet("ours")
	network.Cut()
	awaitReal(t, n, presence.Suspended)
	network.Heal()
	awaitReal(t, n, presence.Standing)
	_, after, err := c.Get(t.Context(), path)
	must(t, err)
	if *after != *before {
		t.Errorf("%+v became %+v over a lost connection", before, after)
	}

	expired := c.session(t)
	must(t, ens.ExpireSession(expired.ID()))
	<-expired.Done()
	deleted := isOf(t, c, path, "two")
	must(t, other.Delete(t.Context(), path, -1))
	for isOf(t, c, path, "two").Czxid == deleted.Czxid { // c's member may be behind
		time.Sleep(10 * time.Millisecond)
	}

	waits, err := presence.New(other.Client, path, []byte("theirs"))
	must(t, err)
	must(t, waits.Start())
	if s := awaitReal(t, waits, presence.Taken); s.Session != c.session(t).ID() || string(s.Data) != "two" {
		t.Errorf("%+v", s)
	}
	must(t, n.Close(t.Context()))
	must(t, waits.Standing(t.Context()))
	isOf(t, other, path, "theirs")

	n = announce(t, c.Client, path, "three", presence.WithTakeover(func(old []byte) bool { return string(old) == "theirs" }))
	isOf(t, c, path, "three")
	awaitReal(t, waits, presence.Taken)
	must(t, waits.Close(t.Context()))
	isOf(t, c, path, "three")
	must(t, n.Close(t.Context()))
	if found, _, err := c.Exists(t.Context(), path); found || err != nil {
		t.Errorf("after Close: %t, %v", found, err)
	}
}

func awaitReal(t *testing.T, n *presence.Node, want presence.State) presence.Status {
	t.Helper()
	reached := make(chan presence.Status, 100)
	defer n.Listen(func(s presence.Status) {
		if s.State == want {
			reached <- s
		}
	})()
	select {
	case s := <-reached:
		return s
	case <-time.After(time.Minute):
		t.Fatalf("not %v: %+v", want, n.Status())
		return presence.Status{}
	}
}

// Many nodes come back after an expiry by a few requests. Ten names are taken.
func manyOnReal(t *testing.T, ens *apache.Ensemble) {
	const all = 1000
	c, other := connectReal(t, ens, "ours"), connectReal(t, ens, "other")
	name := func(i int) string { return fmt.Sprintf("/services/many/%04d", i) }
	nodes := make([]*presence.Node, all)
	for i := range nodes {
		var err error
		nodes[i], err = presence.New(c.Client, name(i), nil)
		must(t, err)
		must(t, nodes[i].Start())
	}
	for _, n := range nodes {
		must(t, n.Standing(t.Context()))
	}
	network := ens.ClientNet("ours")
	network.Cut()
	must(t, ens.ExpireSession(c.session(t).ID()))
	for i := range 10 {
		_, err := other.Create(t.Context(), name(37+93*i), nil, zk.FlagEphemeral)
		must(t, err)
	}
	c.asked("")
	network.Heal()
	for i, n := range nodes {
		want := presence.Standing
		if (i-37)%93 == 0 && i <= 37+93*9 {
			want = presence.Taken
		}
		awaitReal(t, n, want)
	}
	if n := c.asked("multi"); n > 8 {
		t.Errorf("%d transactions, want 8 at most", n)
	}
}
