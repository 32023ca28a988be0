package managed_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// loseByClock has the client give its session up while the ensemble keeps it,
// and returns that session when the client has another one.
func loseByClock(t *testing.T, ens *testutil.Embedded, c *framework.Client, network *testutil.ClientNet) *framework.Session {
	t.Helper()
	s := session(t, c)
	must(t, s.Prove(t.Context()))
	holdUntilLost(t, s)
	// It touches its session until the end, and hears nothing.
	network.CutOneWay(false)
	bubble.Await(t, "the session to be lost", s.Done())
	network.Heal()
	must(t, c.WaitConnected(t.Context()))
	return s
}

// refuseCloses lets the first n requests that close a session fail.
func refuseCloses(ens *testutil.Embedded, id int64, n int32, action testutil.Action) (tries *atomic.Int32, stop func()) {
	tries = &atomic.Int32{}
	return tries, ens.Control(func(r testutil.Request) testutil.Action {
		if r.Op == testutil.OpCloseSession && (id == 0 || r.Session == id) && tries.Add(1) <= n {
			return action
		}
		return testutil.Pass()
	})
}

// A session that the client has lost is closed by all that ask for it together,
// once in two session timeouts, until the ensemble has answered.
func TestAnEarlierSessionIsClosed(t *testing.T) {
	for name, tt := range map[string]struct {
		refused int32
		action  testutil.Action
		most    time.Duration
	}{
		"at once":                {0, testutil.Pass(), time.Second},
		"one server is away":     {1, testutil.DropBefore(), 3 * time.Second},
		"an answer is lost":      {1, testutil.DropAfter(), 3 * time.Second},
		"all answers are lost":   {100, testutil.DropAfter(), 3 * time.Second}, // what is gone is not asked to close again
		"no server can at first": {3, testutil.DropBefore(), 3 * timeout},
		"no server can at all":   {100, testutil.DropBefore(), 3 * timeout}, // it expires
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				must(t, inside(session(t, c)).CreateEphemeral("/mine", nil, nil))
				id := session(t, c).ID()
				tries, stop := refuseCloses(ens, id, tt.refused, tt.action)
				defer stop()
				loseByClock(t, ens, c, network)
				began := time.Now()
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						for {
							ours, err := insideOf(c).CloseEarlier(t.Context(), id)
							if !ours {
								t.Error("not ours")
							}
							if err == nil {
								break
							}
							time.Sleep(100 * time.Millisecond)
						}
						if ens.Exists("/mine") || alive(ens, id) {
							t.Error("it is there after CloseEarlier")
						}
					})
				}
				all.Wait()
				took := time.Since(began)
				if took > tt.most {
					t.Errorf("closed after %v", took)
				}
				if most := 3 + 3*int32(took/timeout/2); tries.Load() > most {
					t.Errorf("%d tries in %v, want %d at most", tries.Load(), took, most)
				}
			}, testutil.WithTick(timeout/2)) // a session may live for a tick longer than its timeout
		})
	}
}

// One that is not the client's, or that the client closes itself.
func TestCloseEarlierOfOtherSessions(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		other, _ := connect(t, ens)
		for _, id := range []int64{0, 1, session(t, other).ID(), session(t, c).ID()} {
			if ours, err := insideOf(c).CloseEarlier(t.Context(), id); ours || err != nil {
				t.Errorf("%#x: %t, %v", id, ours, err)
			}
		}
		id := session(t, c).ID()
		must(t, inside(session(t, c)).CreateEphemeral("/mine", nil, nil))
		must(t, c.Close())
		if ours, err := insideOf(c).CloseEarlier(t.Context(), id); !ours || err != nil || ens.Exists("/mine") {
			t.Errorf("%t, %v, exists %t", ours, err, ens.Exists("/mine"))
		}
	})
}

// A client that no server lets close its session says so for as long as it
// lives.
func TestCloseEarlierOnAClosedClient(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("cut")
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial))
		must(t, err)
		must(t, c.WaitConnected(t.Context()))
		id := session(t, c).ID()
		network.Cut()
		result := make(chan error, 1)
		go func() { result <- c.Close() }()
		bubble.Await(t, "closing", c.Done())
		if ours, err := insideOf(c).CloseEarlier(t.Context(), id); !ours || err == nil {
			t.Errorf("%t, %v", ours, err)
		}
		if bubble.Await(t, "Close", result) == nil {
			t.Error("Close knows better")
		}
	})
}

// Sessions that are over take little memory, however many there were. One that
// may still be there is not forgotten.
func TestEarlierSessionsAreFew(t *testing.T) {
	const many = 100
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		for range many {
			s := session(t, c)
			must(t, ens.ExpireSession(s.ID()))
			bubble.Await(t, "the end", s.Done())
			must(t, c.WaitConnected(t.Context()))
		}
		time.Sleep(timeout)
		if n := insideOf(c).Earlier(); n > 8 {
			t.Errorf("%d sessions are remembered", n)
		}
		first := session(t, c).ID()
		must(t, inside(session(t, c)).CreateEphemeral("/mine", nil, zk.WorldACL(zk.PermAll)))
		_, heal := refuseCloses(ens, 0, 1<<30, testutil.DropBefore())
		for range many {
			loseByClock(t, ens, c, network)
			time.Sleep(timeout) // no server closes it
		}
		if n := insideOf(c).Earlier(); n > 65 {
			t.Errorf("%d sessions are remembered", n)
		}
		heal()
		if ours, err := insideOf(c).CloseEarlier(t.Context(), first); ours || err != nil {
			t.Errorf("%t, %v", ours, err)
		}
		if ens.Exists("/mine") {
			t.Error("its znode is there")
		}
	})
}
