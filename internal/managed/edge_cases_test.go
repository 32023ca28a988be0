package managed_test

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A timeout of a day was lost after eight minutes, because its milliseconds
// overflowed. A known failure elsewhere: CURATOR-460.
func TestLongSessionTimeout(t *testing.T) {
	const day = 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithTick(time.Minute), testutil.WithSessionTimeouts(time.Minute, 2*day))
		c, network := connect(t, ens, framework.WithSessionTimeout(day))
		s := session(t, c)
		holdThroughout(t, s)
		time.Sleep(3 * day)
		network.Cut()
		time.Sleep(8 * time.Hour)
		network.Drop()
		network.Heal()
		time.Sleep(time.Hour)
		if session(t, c).ID() != s.ID() || s.Timeout() != day {
			t.Errorf("a session of %v did not survive 8h without a server", s.Timeout())
		}
	})
}

// The server may grant a shorter timeout than was requested. The stop margin
// shrinks with it.
func TestNegotiatedTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithTick(100*time.Millisecond))
		c, network := connect(t, ens, framework.WithSessionTimeout(time.Hour), framework.WithStopMargin(10*time.Minute))
		s := session(t, c)
		if got, want := s.Timeout(), 2*time.Second; got != want {
			t.Fatalf("negotiated %v, want %v", got, want)
		}
		var lostAt time.Time
		_, err := s.Hold(func(error) { lostAt = time.Now() })
		must(t, err)
		time.Sleep(time.Minute + 50*time.Millisecond)
		network.Cut()
		deadline := s.Deadline()
		<-s.Done()
		if want := deadline.Add(-s.Timeout() / 3); !near(lostAt, want) {
			t.Errorf("lost %v from a third before the deadline", lostAt.Sub(want))
		}
	})
}

// An orphan is closed with the shortest timeout and at most three attempts,
// because each attempt attaches to the session and keeps it alive.
func TestClosingALostSessionKeepsItNotAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithSessionTimeouts(time.Second, time.Hour))
		c, network := connect(t, ens, framework.WithSessionTimeout(time.Minute))
		s := session(t, c)
		holdUntilLost(t, s)
		var attached atomic.Int32
		defer ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreateSession && r.Session == s.ID() {
				attached.Add(1)
			}
			if r.Op == testutil.OpCloseSession && r.Session == s.ID() {
				return testutil.DropBefore()
			}
			return testutil.Pass()
		})()
		network.Cut()
		<-s.Done()
		network.Heal()
		network.Drop()
		time.Sleep(time.Minute)
		if got := attached.Load(); got < 1 || got > 3 {
			t.Errorf("attached %d times, want 1 to 3", got)
		}
		if alive(ens, s.ID()) {
			t.Error("with the smallest timeout it would have expired by now")
		}
	})
}

// deadConn is a connection whose reads and writes do not end with it.
type deadConn struct {
	net.Conn

	release <-chan struct{}
}

func (c deadConn) Read([]byte) (int, error)  { <-c.release; return 0, io.EOF }
func (c deadConn) Write([]byte) (int, error) { <-c.release; return 0, io.EOF }

// A wire client that hangs, here in a connection whose reads do not end when it
// is closed, is left behind. The session ends by our own clock, and the next
// one begins. A known failure elsewhere: go-zookeeper.
func TestHangingWireClientIsLeftBehind(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		release := make(chan struct{})
		defer close(release)
		var dials atomic.Int32
		var abandoned atomic.Int32
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout),
			framework.WithObserver(framework.Observer{Abandoned: func(framework.Abandonment) { abandoned.Add(1) }}),
			framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
				conn, err := ens.Dial(network, address, limit)
				if err == nil && dials.Add(1) == 2 {
					conn = deadConn{conn, release}
				}
				return conn, err
			}))
		must(t, err)
		must(t, c.WaitConnected(t.Context()))
		s := session(t, c)
		began := time.Now()
		must(t, ens.DropConnections(s.ID()))
		<-s.Done()
		if took := time.Since(began); took < timeout || took > timeout+timeout/3 {
			t.Errorf("lost %v after the connection, want a session timeout, and a third at most until that is noticed", took)
		}
		must(t, c.WaitConnected(within(t, time.Minute)))
		if session(t, c).ID() == s.ID() {
			t.Error("how can it be the same session?")
		}
		time.Sleep(time.Minute)
		if abandoned.Load() == 0 {
			t.Error("what was left behind was not counted")
		}
		must(t, c.Close())
	})
}

// A dialer that hangs costs a third of a session timeout: the client calls
// again, and its lease survives. What the dialer returns later is closed.
func TestADialerThatHangsCostsNoLease(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		release := make(chan struct{})
		var dials, late atomic.Int32
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout),
			framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
				hangs := dials.Add(1) == 2
				if hangs {
					<-release
				}
				conn, err := ens.Dial(network, address, limit)
				if hangs && err == nil {
					conn = closeCounter{conn, &late}
				}
				return conn, err
			}))
		must(t, err)
		must(t, c.WaitConnected(t.Context()))
		s := session(t, c)
		lost := lossOf(t, s)
		began := time.Now()
		must(t, ens.DropConnections(s.ID()))
		synctest.Wait()
		must(t, c.WaitConnected(within(t, timeout)))
		most := timeout/3 + time.Second + timeout/10 // with the wire client's pause, and ours
		if took := time.Since(began); took < timeout/3 || took > most || len(lost) > 0 || session(t, c).ID() != s.ID() {
			t.Errorf("connected after %v; lost %d", took, len(lost))
		}
		close(release)
		synctest.Wait()
		if late.Load() == 0 {
			t.Error("a connection that came late is open")
		}
		must(t, c.Close())
	})
}

// closeCounter counts that it is closed.
type closeCounter struct {
	net.Conn

	closed *atomic.Int32
}

func (c closeCounter) Close() error {
	c.closed.Add(1)
	return c.Conn.Close()
}

// Discard goes on whatever the retry policy says. A known failure elsewhere:
// CURATOR-106.
func TestDiscardUnderAPolicyOfNoRetries(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens, framework.WithRetry(retry.Never()))
		s := session(t, c)
		_, err := s.Create(t.Context(), "/e", nil, zk.FlagEphemeral)
		must(t, err)
		tries := testutil.NewFault(testutil.Match{Op: testutil.OpDelete, Times: 1}, testutil.DropBefore())
		defer ens.Control(tries.Control)()
		began := time.Now()
		gone := s.Discard("/e")
		time.Sleep(500 * time.Millisecond)
		network.Drop()
		<-gone
		if took := time.Since(began); ens.Exists("/e") || took < time.Second || took > 2*time.Second {
			t.Errorf("there: %t, after %v; a budget of the policy is followed by another one after a second", ens.Exists("/e"), took)
		}
	})
}

// forbidden makes a znode /closed/e of the client's session, which is returned.
// The znode may not be deleted.
func forbidden(t *testing.T, c *framework.Client) *framework.Session {
	t.Helper()
	_, err := c.Create(t.Context(), "/closed", nil, 0)
	must(t, err)
	s := session(t, c)
	_, err = s.Create(t.Context(), "/closed/e", nil, zk.FlagEphemeral)
	must(t, err)
	_, err = c.SetACL(t.Context(), "/closed", zk.WorldACL(zk.PermRead|zk.PermAdmin), -1)
	must(t, err)
	return s
}

// A znode that may not be deleted is logged once and retried now and then. A
// znode in line used to stay for as long as its process lived, after an
// operator had changed an ACL and changed it back.
func TestDiscardOfWhatIsForbidden(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		log, logged := observer.New(zap.ErrorLevel)
		c, _ := connect(t, ens, framework.WithLogger(zap.New(log)))
		s := forbidden(t, c)
		began := time.Now()
		var tries []int // seconds
		stop := ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpDelete {
				tries = append(tries, int(time.Since(began).Seconds()))
			}
			return testutil.Pass()
		})
		s.Discard("/closed/e")
		time.Sleep(4 * time.Minute)
		stop()
		if want := []int{0, 5, 15, 35, 75, 135, 195}; !slices.Equal(tries, want) || logged.Len() != 1 {
			t.Errorf("tries of what is forbidden after %v s, want %v; said %d times", tries, want, logged.Len())
		}
		_, err := c.SetACL(t.Context(), "/closed", zk.WorldACL(zk.PermAll), -1)
		must(t, err)
		time.Sleep(time.Minute)
		if ens.Exists("/closed/e") {
			t.Error("still there, a minute after it was allowed")
		}
	})
}

// Close does not wait for the next try to remove what may not be removed.
func TestCloseDuringADiscard(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := forbidden(t, c)
		s.Discard("/closed/e")
		time.Sleep(time.Hour) // the pauses have grown to a minute
		began := time.Now()
		must(t, c.Close())
		if took := time.Since(began); took > timeout/2 {
			t.Errorf("Close took %v", took)
		}
	})
}

// Prove makes round trips until there is a proof, as after a pause that came
// close to the deadline.
func TestProve(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		time.Sleep(300 * time.Millisecond)
		network.CutOneWay(false)
		time.Sleep(time.Until(s.Deadline()) - timeout/20)
		if s.Proven() {
			t.Fatal("proven within the stop margin")
		}
		if _, err := s.Hold(func(error) {}); !errors.Is(err, framework.ErrSessionLost) {
			t.Errorf("Hold within the stop margin: %v", err)
		}
		network.Drop()
		network.Heal()
		must(t, s.Prove(within(t, timeout)))
		if !s.Proven() || session(t, c).ID() != s.ID() {
			t.Error("proved, but not proven")
		}
		must(t, ens.ExpireSession(s.ID()))
		<-s.Done()
		if err := s.Prove(t.Context()); !errors.Is(err, framework.ErrSessionLost) {
			t.Errorf("Prove of a lost session: %v", err)
		}
	})
}

// After Close there are no listeners.
func TestNoListenerIsLeft(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		for range 10 {
			c.Listen(func(framework.StateChange) {})
			c.Listen(func(framework.StateChange) {})()
		}
		must(t, c.Close())
		synctest.Wait()
		if n := insideOf(c).Listeners(); n != 0 {
			t.Errorf("%d listeners are left", n)
		}
	})
}

// Servers that accept connections and drop them, as a proxy without a backend
// does, are not called in a tight loop. The first healthy one is found soon. A
// known failure elsewhere: go-zookeeper.
func TestServersThatAcceptAndDropAreCalledNowAndThen(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var dials atomic.Int32
		var well atomic.Bool
		never := make(chan struct{})
		defer close(never)
		c, _ := start(t, ens, framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
			if well.Load() {
				return ens.Dial(network, address, limit)
			}
			if dials.Add(1) > 1000 {
				<-never // virtual time would stand still in a loop
			}
			client, server := net.Pipe()
			server.Close()
			return client, nil
		}))
		time.Sleep(time.Minute)
		if n := dials.Load(); n < 60 || n > 400 {
			t.Errorf("called %d times in a minute", n)
		}
		well.Store(true)
		must(t, c.WaitConnected(within(t, time.Second)))
	})
}

// A server that sends malformed frames costs the client its connection and
// nothing else. A connect answer with a timeout of 0 does not cause a panic. A
// known failure elsewhere: go-zookeeper.
func TestMalformedFramesFromTheServer(t *testing.T) {
	for name, answer := range map[string]string{
		"text":           "HTTP/1.1 400 Bad Request\r\n\r\n",
		"a huge frame":   "\x7f\xff\xff\xff" + strings.Repeat("x", 1000),
		"a negative one": "\xff\xff\xff\xff" + strings.Repeat("x", 1000),
		"an empty one":   strings.Repeat("\x00", 1000),
		"half an answer": "\x00\x00\x00\x24\x00\x00",
		"no timeout":     "\x00\x00\x00\x24" + strings.Repeat("\x00", 8) + strings.Repeat("\x01", 8) + "\x00\x00\x00\x10" + strings.Repeat("\x01", 16),
		"short frames":   "\x00\x00\x00\x24\x00\x00\x00\x00\x00\x00\x10\x00" + strings.Repeat("\x01", 28) + strings.Repeat("\x00\x00\x00\x03xyz", 10),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				var dials atomic.Int32
				c, _ := start(t, ens, framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
					if dials.Add(1) > 3 {
						return ens.Dial(network, address, limit)
					}
					client, server := net.Pipe()
					go func() {
						_, _ = server.Read(make([]byte, 100))
						_, _ = server.Write([]byte(answer))
						server.Close()
					}()
					return client, nil
				}))
				states := record(c)
				must(t, c.WaitConnected(within(t, time.Minute)))
				if _, _, err := c.Get(t.Context(), "/"); err != nil {
					t.Error(err)
				}
				if got, want := states.states(), "CONNECTING CONNECTED "; got != want {
					t.Errorf("states %s, want %s: nonsense was taken for a session", got, want)
				}
			})
		})
	}
}
