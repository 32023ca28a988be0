package managed_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// slowCore is a log sink that blocks until it is released.
type slowCore struct {
	zapcore.LevelEnabler
	released chan struct{}

	mu    sync.Mutex // guards what follows
	lines []string
	lost  int64 // lines that were dropped, as it was told
}

func (c *slowCore) With([]zapcore.Field) zapcore.Core { return c }
func (c *slowCore) Sync() error                       { return nil }

func (c *slowCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return ce.AddCore(e, c)
}

func (c *slowCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	<-c.released
	c.mu.Lock()
	defer c.mu.Unlock()
	encoder := zapcore.NewMapObjectEncoder()
	for _, field := range fields {
		field.AddTo(encoder)
	}
	if n, ok := encoder.Fields["lines"].(int64); ok {
		c.lost += n
		return nil
	}
	line := e.Message
	if why, ok := encoder.Fields["error"].(string); ok {
		line += ": " + why
	}
	c.lines = append(c.lines, line)
	return nil
}

// Lines that a slow sink cannot take are dropped and counted. The others arrive
// in order, whole, and before Close returns.
func TestALogSinkThatIsSlow(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		sink := &slowCore{LevelEnabler: zapcore.InfoLevel, released: make(chan struct{})}
		c, _ := connect(t, ens, framework.WithLogger(zap.New(sink)))
		synctest.Wait() // the state is told before its line is written
		const lines = 5000
		began := time.Now()
		for i := range lines {
			c.Logger().Info("line", zap.Int("i", i), zap.Error(errors.Join(errors.New("one"), errors.New("two"))))
		}
		if time.Since(began) > 0 {
			t.Errorf("to log took %v", time.Since(began))
		}
		close(sink.released)
		must(t, c.Close())
		sink.mu.Lock()
		defer sink.mu.Unlock()
		got := 0
		for _, line := range sink.lines {
			if strings.Contains(line, "\n") {
				t.Errorf("a line in two: %q", line)
			}
			if line == "line: one; two" {
				got++
			}
		}
		if int64(got)+sink.lost < lines || sink.lost == 0 || got < 1000 {
			t.Errorf("%d lines of %d, and %d dropped", got, lines, sink.lost)
		}
		if i := slices.Index(sink.lines, "state changed"); i != 0 {
			t.Errorf("the first state was logged as line %d, after %q", i, sink.lines[:max(0, i)])
		}
	})
}

// A blocked observer delays no request. Events are dropped and counted when too
// many wait; of other events than requests, very many may wait.
func TestAnObserverThatIsSlow(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var mu sync.Mutex
		var heard, dropped int
		var states []framework.State
		released := make(chan struct{})
		c, network := connect(t, ens, framework.WithObserver(framework.Observer{
			RequestEnd: func(_ context.Context, r framework.Request, _ framework.RequestResult) {
				<-released
				mu.Lock()
				defer mu.Unlock()
				if r.Op == "get" {
					heard++
				}
			},
			Dropped: func(d framework.Drop) {
				mu.Lock()
				defer mu.Unlock()
				dropped += d.Events
			},
			StateChanged: func(s framework.StateChange) {
				<-released
				mu.Lock()
				defer mu.Unlock()
				states = append(states, s.To)
			},
		}))
		const gets = 6000
		for range gets {
			if _, _, err := c.Get(t.Context(), "/"); err != nil {
				t.Fatal(err)
			}
		}
		network.Drop()
		time.Sleep(time.Second)
		close(released)
		must(t, c.Close())
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if heard+dropped < gets || dropped == 0 || heard == 0 {
			t.Errorf("heard of %d requests, %d dropped, %d made", heard, dropped, gets)
		}
		want := []framework.State{framework.Connected, framework.Suspended, framework.Connected, framework.Closed}
		if !slices.Equal(states, want) {
			t.Errorf("states %v, want %v", states, want)
		}
	})
}

// Attach used to call its function with the client locked. A slow function
// delayed everything, and one that used the client waited for itself.
func TestAttachMayUseTheClient(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		type key struct{}
		made := insideOf(c).Attach(key{}, func() any {
			inner := insideOf(c).Attach(key{}, func() any { return c.State() })
			return []any{inner}
		})
		if made != framework.Connected {
			t.Errorf("attached %v, want what was attached first", made)
		}
	})
}

// stuckConn is a user's connection that is stuck from some time on: it accepts
// nothing, and closing it does not end a Read.
type stuckConn struct {
	net.Conn
	stuck  *atomic.Bool
	closed *atomic.Int32 // calls of Close while it is stuck
	free   chan struct{}
}

func (c stuckConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.stuck.Load() {
		<-c.free
	}
	return n, err
}

func (c stuckConn) Write(p []byte) (int, error) {
	if c.stuck.Load() {
		<-c.free
	}
	return c.Conn.Write(p)
}

func (c stuckConn) Close() error {
	if c.stuck.Load() {
		c.closed.Add(1)
		<-c.free
	}
	return c.Conn.Close()
}

// A connection is stuck forever. Requests in the session fail when the session
// is over, and then the connection is closed, although the wire client cannot
// send its close request.
func TestAConnectionThatStandsStill(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var stuck atomic.Bool
		var closed atomic.Int32
		free := make(chan struct{})
		c, _ := connect(t, ens, framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
			conn, err := ens.Dial(network, address, limit)
			return stuckConn{conn, &stuck, &closed, free}, err
		}))
		defer close(free)
		s := session(t, c)
		stuck.Store(true)
		asked := make(chan error, 1)
		go func() {
			_, _, err := s.Get(context.Background(), "/")
			asked <- err
		}()
		time.Sleep(timeout - time.Second)
		before := closed.Load() // it is left when a heartbeat is not answered, too
		select {
		case <-s.Done():
		case <-time.After(timeout):
			t.Fatal("the session does not end")
		}
		synctest.Wait()
		if closed.Load() == before {
			t.Error("the connection was not closed")
		}
		select {
		case err := <-asked:
			if !errors.Is(err, framework.ErrSessionLost) {
				t.Errorf("it failed with %v", err)
			}
		default:
			t.Error("what was asked for in the session outlasts it")
		}
	})
}

// A client is opened once, before any change of its state, and then closed. One
// that New refuses is not opened.
func TestAnObserverHearsOfEachClientOnce(t *testing.T) {
	var events []string
	o := framework.Observer{
		Opened:       func() { events = append(events, "opened") },
		StateChanged: func(c framework.StateChange) { events = append(events, c.To.String()) },
	}
	if _, err := framework.New("h1:2181", framework.WithSessionTimeout(-1), framework.WithObserver(o)); err == nil {
		t.Fatal("a session timeout below zero")
	}
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens, framework.WithObserver(o))
		must(t, c.WaitConnected(t.Context()))
		_, err := c.Namespace("below")
		must(t, err)
		must(t, c.Close())
	})
	if want := []string{"opened", "CONNECTED", "CLOSED"}; !slices.Equal(events, want) {
		t.Errorf("the observer has heard of %q, want %q", events, want)
	}
}

// The observer gets requests, retries and states.
func TestObserver(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var requests, retried, states atomic.Int32
		c, _ := connect(t, ens, framework.WithObserver(framework.Observer{
			RequestEnd: func(_ context.Context, r framework.Request, _ framework.RequestResult) {
				if r.Op == "get" {
					requests.Add(1)
				}
			},
			Retried:      func(context.Context, framework.Retry) { retried.Add(1) },
			StateChanged: func(framework.StateChange) { states.Add(1) },
		}))
		defer once(ens, testutil.OpGetData, testutil.DropBefore())()
		if _, _, err := c.Get(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the state is set before anybody is told
		if requests.Load() != 2 || retried.Load() != 1 || states.Load() != 3 {
			t.Errorf("%d requests, %d retries, %d states; want 2, 1, 3", requests.Load(), retried.Load(), states.Load())
		}
	})
}
