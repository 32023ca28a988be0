package cache_test

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The pauses of a long outage are not those of the next error: once the cache
// was synced they begin anew.
func TestPausesBeginAnewOnceItIsSynced(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		create(t, w.Connect("writer"), root, "a")
		c := w.Connect("reader")
		k := synced(t, c)
		isSynced := func() bool { return k.Status().State == cache.Synced }
		refuse := func(times int) (stop func()) {
			return w.ClientNet("reader").Control(testutil.NewFault(testutil.Match{Op: testutil.OpAddWatch, Times: times}, testutil.Fail(testutil.CodeThrottled)).Control)
		}
		for range 5 {
			stop := refuse(-1)
			w.ClientNet("reader").Drop()
			time.Sleep(10 * time.Minute)
			if isSynced() {
				t.Fatal("synced without a watch")
			}
			stop()
			bubble.AwaitTrue(t, "the cache to be synced", isSynced)
			time.Sleep(time.Minute)
			stop = refuse(1)
			w.ClientNet("reader").Drop()
			bubble.AwaitTrue(t, "the cache to be stale", func() bool { return !isSynced() })
			began := time.Now()
			bubble.AwaitTrue(t, "the cache to be synced", isSynced)
			if took := time.Since(began); took > 2*bubble.Timeout/3+time.Second { // many readers spread over a third of it, each time
				t.Errorf("synced after %v", took)
			}
			stop()
		}
	})
}

// Listeners that have stopped leave nothing in the cache.
func TestNothingIsLeftOfListeners(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		create(t, c, root, "a")
		k := synced(t, c)
		listen := func(times int) bubble.Census {
			for range times {
				heard := make(chan cache.Batch, 100)
				stop := k.Listen(func(b cache.Batch) { heard <- b })
				bubble.Await(t, "the first batch", heard)
				stop()
			}
			synctest.Wait()
			return w.Count(k)
		}
		before := listen(5)
		if grown := listen(50).Grown(before, 10); len(grown) > 0 {
			t.Errorf("left behind: %v", grown)
		}
	})
}

// A server that says late that it has no recursive watches has said it. The
// cache, which has single watches by then, does not ask for that any more.
func TestAServerThatSaysLateThatItHasNone(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		writer := w.Connect("writer")
		create(t, writer, root, "a")
		until := time.Now().Add(time.Minute)
		b := &beside{dial: w.ClientNet("reader").Dial, bad: func(conn net.Conn) (net.Conn, error) {
			if time.Now().Before(until) { // it accepts, and hangs up
				_ = conn.Close()
				return nil, io.EOF
			}
			return conn, nil
		}}
		k := synced(t, w.Connect("reader", framework.WithDialer(b.Dial)), cache.WithRecheck(0))
		time.Sleep(time.Hour)
		set(t, writer, root, "b")
		time.Sleep(time.Second)
		shows(t, w, k)
		if s := k.Status(); s.State != cache.Synced {
			t.Errorf("%+v", s)
		}
	}, testutil.WithoutNewOperations())
}
