package managed_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// downServers is a network on which the first few servers that are asked to
// close an orphan are down for that request.
type downServers struct {
	dial framework.Dialer
	down int // how many

	mu    sync.Mutex // guards what follows
	shut  bool       // nothing but that passes
	asked []string   // servers, in the order in which they were asked first
}

func (g *downServers) Dial(network, address string, limit time.Duration) (net.Conn, error) {
	conn, err := g.dial(network, address, limit)
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn, of: g, address: address}, nil
}

func (g *downServers) cut(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
}

// takes reports whether a connection that begins with frame reaches a server.
func (g *downServers) takes(address string, frame []byte) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if connect := 4 + int(binary.BigEndian.Uint32(frame)); len(frame) == connect { // nothing behind it
		return !g.shut
	}
	at := len(g.asked)
	for i, other := range g.asked {
		if other == address {
			at = i
		}
	}
	if at == len(g.asked) {
		g.asked = append(g.asked, address)
	}
	return at >= g.down
}

// watchedConn is one connection.
type watchedConn struct {
	net.Conn
	of      *downServers
	address string
	began   bool
}

func (c *watchedConn) Write(p []byte) (int, error) {
	if !c.began && !c.of.takes(c.address, p) {
		return 0, errors.New("refused")
	}
	c.began = true
	return c.Conn.Write(p)
}

// A lost session is closed at the ensemble: its znodes would block others until
// it expires. The client used to ask only one server, and if that was down the
// znodes stayed.
func TestAnOrphanIsClosedWhileSomeServersAreDown(t *testing.T) {
	for down := range 3 {
		t.Run(fmt.Sprint(down, " down"), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				network := ens.ClientNet("buried")
				g := &downServers{dial: network.Dial, down: down}
				c, _ := start(t, ens, framework.WithDialer(g.Dial))
				must(t, c.WaitConnected(within(t, time.Minute)))
				s := session(t, c)
				holdUntilLost(t, s)
				path, err := s.Create(t.Context(), "/mine", nil, zk.FlagEphemeral)
				must(t, err)
				time.Sleep(time.Minute)
				release := s.Keep()
				g.cut(true)
				deaf := ens.Control(func(r testutil.Request) testutil.Action { // it keeps the session, and hears no answer
					if r.Session == s.ID() && r.Op == testutil.OpSync {
						return testutil.DropAfter()
					}
					return testutil.Pass()
				})
				bubble.Await(t, "the session to be lost", s.Done())
				began := time.Now()
				release()
				deaf()
				bubble.AwaitTrue(t, "the session to be gone", func() bool { return !alive(ens, s.ID()) })
				if took := time.Since(began); took > 4*time.Second {
					t.Errorf("%s stood for %v after the session was lost", path, took)
				}
				g.cut(false)
			})
		})
	}
}

// The same when the client closes, which asks several servers at once.
func TestAClosedClientsSessionIsClosedWhileSomeServersAreDown(t *testing.T) {
	for down := range 3 {
		t.Run(fmt.Sprint(down, " down"), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				network := ens.ClientNet("closed")
				g := &downServers{dial: network.Dial, down: down}
				c, _ := start(t, ens, framework.WithDialer(g.Dial))
				must(t, c.WaitConnected(within(t, time.Minute)))
				s := session(t, c)
				g.cut(true)
				network.Drop()
				time.Sleep(time.Millisecond)
				began := time.Now()
				must(t, c.Close())
				if alive(ens, s.ID()) {
					t.Error("the session is still there")
				}
				if took := time.Since(began); took >= 2*time.Second { // it does not wait for a connection
					t.Errorf("Close took %v", took)
				}
			})
		})
	}
}

// Each attempt to close an orphan may touch it, which keeps it alive. So there
// are three attempts, one to two seconds apart.
func TestAnOrphanIsTouchedSeldom(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		holdUntilLost(t, s)
		var attached []time.Time
		ens.Control(func(r testutil.Request) testutil.Action {
			if r.Session != s.ID() {
				return testutil.Pass()
			}
			if r.Op == testutil.OpCreateSession {
				attached = append(attached, time.Now())
			}
			return testutil.DropBefore()
		})
		bubble.Await(t, "the session to be lost", s.Done())
		lost := time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		tries := slices.DeleteFunc(attached, lost.After)
		if len(tries) != 3 {
			t.Fatalf("%d attempts, want 3: %v after the loss", len(tries), tries)
		}
		for i, at := range tries[1:] {
			if pause := at.Sub(tries[i]); pause < time.Second || pause > 2*time.Second+10*time.Millisecond {
				t.Errorf("attempt %d comes %v after the one before", i+2, pause)
			}
		}
		if first := tries[0].Sub(lost); first > 10*time.Millisecond {
			t.Errorf("the first attempt is made %v after the loss", first)
		}
	})
}

// A client that closes without a connection asks several servers at once to
// close its session, but not all of a large ensemble.
func TestCloseAsksThreeServersAtMost(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("closing")
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial))
		must(t, err)
		must(t, c.WaitConnected(within(t, time.Minute)))
		s := session(t, c)
		var mu sync.Mutex
		asked := map[int]bool{}
		ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreateSession && r.Session == s.ID() {
				mu.Lock()
				defer mu.Unlock()
				asked[r.Member] = true
				return testutil.DropBefore()
			}
			return testutil.Pass()
		})
		network.Drop()
		time.Sleep(time.Millisecond)
		mu.Lock()
		clear(asked) // what came before Close came to connect again
		mu.Unlock()
		if err := c.Close(); err == nil {
			t.Error("Close says that the session was closed")
		}
		mu.Lock()
		defer mu.Unlock()
		if len(asked) != 3 {
			t.Errorf("asked %v, want three of five", asked)
		}
	})
}

// A session is lost while a connection waits for its first answer. That
// connection is closed with the session, so that the wire client ends and
// nothing arrives late.
func TestALostSessionLeavesNoConnection(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var mu sync.Mutex
		open := map[int]bool{} // by number
		n := 0
		c, _ := connect(t, ens, framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
			conn, err := ens.Dial(network, address, limit)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			n++
			number := n
			open[number] = true
			return &counted{Conn: conn, closed: func() {
				mu.Lock()
				defer mu.Unlock()
				delete(open, number)
			}}, nil
		}))
		s := session(t, c)
		holdUntilLost(t, s)
		never := make(chan struct{})
		stop := ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreateSession {
				return testutil.Hold(never)
			}
			return testutil.Pass()
		})
		must(t, ens.DropConnections(s.ID()))
		time.Sleep(time.Until(s.Deadline()) - 10*time.Millisecond)
		mu.Lock()
		waiting := maps.Clone(open)
		mu.Unlock()
		if len(waiting) != 1 {
			t.Errorf("%d connections wait for their first answer", len(waiting))
		}
		bubble.Await(t, "the session to be lost", s.Done())
		synctest.Wait()
		mu.Lock()
		for number := range waiting {
			if open[number] {
				t.Errorf("connection %d is still open", number)
			}
		}
		mu.Unlock()
		stop()
		close(never)
	})
}

// counted is a connection that reports its first Close.
type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}
