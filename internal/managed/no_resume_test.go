package managed_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// keeping is connect, to servers that resume no session.
func keeping(t *testing.T, ens *testutil.Embedded, opts ...framework.Option) (*framework.Client, *testutil.ClientNet) {
	t.Helper()
	network := ens.ClientNet(t.Name())
	network.Imitate(testutil.ClickHouseKeeper)
	c, err := framework.New(ens.Servers(), append([]framework.Option{framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial)}, opts...)...)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() }) // its error was judged
	must(t, c.WaitConnected(within(t, timeout)))
	return c, network
}

// A server that resumes no session gives another one in answer. The client used
// to take that for malformed answers, and tried for a whole timeout. Each try
// left a session behind. Now the session is over at once, the other one is
// closed, and the client goes on in a new one.
func TestAServerThatResumesNoSession(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := keeping(t, ens)
		for range 20 {
			s, states := session(t, c), record(c)
			must(t, s.Prove(t.Context()))
			lost := make(chan error, 1)
			_, err := s.Hold(func(err error) { lost <- err })
			must(t, err)
			_, err = s.Create(t.Context(), "/mine", nil, zk.FlagEphemeral)
			must(t, err)
			dropped := time.Now()
			network.Drop()
			err = bubble.Await(t, "the hold to be lost", lost)
			if took := time.Since(dropped); took > timeout/3 || !errors.Is(err, framework.ErrSessionLost) || errors.Is(err, framework.ErrUnproven) || !strings.Contains(err.Error(), "does not resume") {
				t.Errorf("after %v: %v", took, err)
			}
			must(t, c.WaitConnected(within(t, timeout)))
			synctest.Wait() // until the other one is closed
			// It may be over before the disconnect is told.
			if got := strings.Replace(states.states(), "SUSPENDED ", "", 1); got != "CONNECTED LOST CONNECTED " {
				t.Errorf("states %s", got)
			}
			if n := opens(ens); n > 2 { // the lost one stays until it expires
				t.Errorf("%d sessions", n)
			}
			if _, err := c.Create(t.Context(), "/mine", nil, zk.FlagEphemeral); !errors.Is(err, zk.ErrNodeExists) {
				t.Errorf("the lost session's znode: %v", err)
			}
			time.Sleep(2 * timeout)
			if n := opens(ens); n != 1 {
				t.Errorf("%d sessions", n)
			}
		}
		if n := insideOf(c).Earlier(); n > 8 {
			t.Errorf("%d earlier sessions are remembered", n)
		}
		must(t, c.Close())
	})
}

// Such a server does not answer a close, but ends the connection. Close has
// worked then, also for a client that has never reconnected.
func TestCloseWhereItIsNotAnswered(t *testing.T) {
	for _, reconnects := range []bool{false, true} {
		inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
			c, network := keeping(t, ens)
			if reconnects {
				network.Drop()
				time.Sleep(2 * timeout)
			}
			_, err := c.Create(t.Context(), "/mine", nil, zk.FlagEphemeral)
			must(t, err)
			began := time.Now()
			must(t, c.Close())
			if took := time.Since(began); took > time.Second || opens(ens) != 0 {
				t.Errorf("after %v, %d sessions", took, opens(ens))
			}
		})
	}
}

// That a server once resumed no session is no fact for life: once one resumes
// again, a session whose close is lost is closed over another connection.
func TestAServerThatResumesAgain(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := keeping(t, ens)
		for range 2 {
			network.Imitate(testutil.ClickHouseKeeper)
			network.Drop()
			time.Sleep(2 * timeout) // the session is lost, and has expired
			network.Imitate(0)
			network.Drop()
			time.Sleep(timeout)
		}
		closes := testutil.NewFault(testutil.Match{Op: testutil.OpCloseSession, Times: 1}, testutil.DropBefore())
		network.Control(closes.Control)
		must(t, c.Close())
		if closes.Count() != 1 || opens(ens) != 0 {
			t.Errorf("%d closes lost, %d sessions left", closes.Count(), opens(ens))
		}
	})
}

// If the close was not sent the session stays, and Close says so.
func TestCloseWithoutAConnectionWhereNoneIsResumed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := keeping(t, ens)
		id := session(t, c).ID()
		network.Cut()
		network.Drop()
		time.Sleep(10 * time.Millisecond)
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		time.Sleep(time.Second)
		network.Heal()
		if err := bubble.Await(t, "Close to return", closed); err == nil || !strings.Contains(err.Error(), "ephemeral znodes stay") {
			t.Errorf("error %v", err)
		}
		if s := ens.Sessions(); len(s) != 1 || s[0].ID != id {
			t.Errorf("sessions %v", s)
		}
	})
}

// No other server is believed that ends the connection behind a close: it may
// not have executed it.
func TestAnEndIsNoAnswerToAClose(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("unanswered")
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial))
		must(t, err)
		must(t, c.WaitConnected(within(t, timeout)))
		closes := testutil.NewFault(testutil.Match{Op: testutil.OpCloseSession, Times: -1}, testutil.DropBefore())
		network.Control(closes.Control)
		if err := c.Close(); err == nil || !strings.Contains(err.Error(), "ephemeral znodes stay") {
			t.Errorf("error %v", err)
		}
		if closes.Count() < 2 || opens(ens) != 1 {
			t.Errorf("%d closes, %d sessions", closes.Count(), opens(ens))
		}
	})
}

// The connection drops, or nobody answers, while another session is being
// closed. Ours is over all the same, at once, and Close is not held up.
func TestAnotherSessionCannotBeClosed(t *testing.T) {
	for name, action := range map[string]func() testutil.Action{
		"it drops": testutil.DropBefore,
		"silence":  func() testutil.Action { return testutil.Hold(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, network := keeping(t, ens)
				s := session(t, c)
				closes := testutil.NewFault(testutil.Match{Op: testutil.OpCloseSession}, action())
				stop := network.Control(closes.Control)
				dropped := time.Now()
				network.Drop()
				bubble.Await(t, "the session to be over", s.Done())
				if took := time.Since(dropped); took > timeout/3 {
					t.Errorf("after %v", took)
				}
				must(t, c.WaitConnected(within(t, timeout)))
				synctest.Wait()
				stop()
				if closes.Count() != 1 {
					t.Errorf("%d closes", closes.Count())
				}
				must(t, c.Close())
			})
		})
	}
}

// The caller cancels, and the session ends, while a request is under way whose
// answer is lost with the connection.
func TestRequestsWhereNoSessionIsResumed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := keeping(t, ens)
		lost := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: "/lost"}, testutil.DropAfter())
		network.Control(lost.Control)
		s := session(t, c)
		_, err := s.Create(t.Context(), "/lost", nil, zk.FlagEphemeral)
		if !errors.Is(err, framework.ErrSessionLost) || !framework.MaybeApplied(err) {
			t.Errorf("in the session: %v", err)
		}
		_, err = c.Create(t.Context(), "/again", nil, 0)
		must(t, err)
		network.Cut()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, _, err := c.Get(ctx, "/again"); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		network.Heal()
		must(t, c.Close())
	})
}

// A server that lies about the id of the session ends it, too. The client tells
// so first, and closes what the server has opened: it may be ours.
func TestALieAboutTheSession(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var lying atomic.Bool
		c, _ := liar(t, ens, wire.OpCreateSession, 1000, func(f []byte) tamper.Instead {
			if lying.CompareAndSwap(true, false) {
				f[19]++
			}
			return tamper.Instead{Frame: f}
		})
		must(t, c.WaitConnected(within(t, timeout)))
		s := session(t, c)
		lying.Store(true)
		must(t, ens.DropConnections(s.ID()))
		bubble.Await(t, "the session to be over", s.Done())
		must(t, c.WaitConnected(within(t, timeout)))
		synctest.Wait()
		if now := session(t, c); now.ID() == s.ID() || opens(ens) != 1 {
			t.Errorf("session %#x, then %#x, of %d", s.ID(), now.ID(), opens(ens))
		}
		// The next one is resumed, so the servers are not taken for such.
		s = session(t, c)
		must(t, ens.DropConnections(s.ID()))
		must(t, c.Sync(within(t, timeout), "/"))
		if session(t, c).ID() != s.ID() {
			t.Errorf("another session: %v", s.Err())
		}
	})
}
