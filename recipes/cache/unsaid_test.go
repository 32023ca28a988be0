package cache_test

import (
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// beside is a dialer whose second connections, beside an open one, fare badly
// for a while. The first connection is that of the session.
type beside struct {
	dial func(network, address string, limit time.Duration) (net.Conn, error)
	bad  func(net.Conn) (net.Conn, error)

	mu   sync.Mutex // guards what follows
	open int
}

func (b *beside) Dial(network, address string, limit time.Duration) (net.Conn, error) {
	conn, err := b.dial(network, address, limit)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	first := b.open == 0
	b.open++
	b.mu.Unlock()
	counted := &besideConn{Conn: conn, closed: sync.OnceFunc(func() {
		b.mu.Lock()
		b.open--
		b.mu.Unlock()
	})}
	if first {
		return counted, nil
	}
	return b.bad(counted)
}

type besideConn struct {
	net.Conn
	closed func()
}

func (c *besideConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// lateConn is a connection whose answers come late.
type lateConn struct {
	net.Conn
	by time.Duration
}

func (c lateConn) Read(p []byte) (int, error) {
	time.Sleep(c.by)
	return c.Conn.Read(p)
}

// A server that answers late what it is, or refuses one more connection for a
// while, is not taken for one without recursive watches. If it takes no longer
// than a session timeout, the cache waits for it. Otherwise it goes on with
// single watches, until the server has said it.
func TestASlowOrFullServerHasRecursiveWatches(t *testing.T) {
	bubble.Usual(t, bubble.ShortTimeout, bubble.OneShot) // has times of its own; needs multiRead, or recursive watches
	const znodes = 3002
	late := func(by time.Duration) func(net.Conn) (net.Conn, error) {
		return func(conn net.Conn) (net.Conn, error) { return lateConn{conn, by}, nil }
	}
	full := func(lasts time.Duration) func(net.Conn) (net.Conn, error) {
		until := sync.OnceValue(func() time.Time { return time.Now().Add(lasts) })
		return func(conn net.Conn) (net.Conn, error) {
			if time.Now().Before(until()) { // it accepts, and hangs up
				_ = conn.Close()
				return nil, io.EOF
			}
			return conn, nil
		}
	}
	for name, tt := range map[string]struct {
		bad    func(net.Conn) (net.Conn, error)
		within time.Duration // the first view
		cost   int           // requests of any kind
	}{
		"late":            {late(3 * time.Second), 4 * time.Second, 24},
		"full":            {full(3 * time.Second), bubble.Timeout, 24},
		"full for long":   {full(time.Minute), bubble.Timeout + time.Second, 6004 + 20},
		"full for longer": {full(time.Hour), bubble.Timeout + time.Second, 6004 + 20},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				fill(t, w.Connect("writer"), 1, znodes-2)
				b := &beside{dial: w.ClientNet("reader").Dial, bad: tt.bad}
				c := w.Connect("reader", framework.WithDialer(b.Dial))
				asked(w)
				began := time.Now()
				k := synced(t, c, cache.WithRecheck(0))
				if took := time.Since(began); took > tt.within {
					t.Errorf("synced after %v", took)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				sum, all := 0, asked(w)
				for op, n := range all {
					if op != testutil.OpRemoveWatches {
						sum += n
					}
				}
				if v := k.View(); v.Len() != znodes || k.Status().State != cache.Synced {
					t.Errorf("%d znodes, %v", v.Len(), k.Status())
				}
				if watches := w.WatchCount(); sum > tt.cost || watches != 2 {
					t.Errorf("%d requests, %d watches; %v", sum, watches, all)
				}
				shows(t, w, k)
			})
		})
	}
}
