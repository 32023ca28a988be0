package measure_test

import (
	"context"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/cycles"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

func TestMain(m *testing.M) {
	if os.Getenv(serverRole) != "" {
		os.Exit(serve())
	}
	goleak.VerifyTestMain(m)
}

// onEachServer runs a benchmark on the embedded ensemble over loopback and,
// with ZKR_REAL=1, on a standalone Apache ZooKeeper: once with its defaults,
// where each write is on the disk before its answer, and once without, so that
// the disk does not hide what the client costs.
func onEachServer(b *testing.B, bench func(b *testing.B, servers string)) {
	b.Run("embedded", func(b *testing.B) {
		bench(b, testutil.Start(b, testutil.WithLogger(func(string, ...any) {})).Servers())
	})
	sessions := apache.WithSessionTimeouts(400*time.Millisecond, longSession)
	b.Run("real", func(b *testing.B) { bench(b, apache.Start(b, 1, sessions, apache.WithForceSync()).Servers()) })
	b.Run("real-nosync", func(b *testing.B) { bench(b, apache.Start(b, 1, sessions).Servers()) })
}

// longSession outlives every measurement and needs few heartbeats.
const longSession = 40 * time.Second

func benchClient(b testing.TB, servers string, opts ...framework.Option) *framework.Client {
	b.Helper()
	c, err := framework.New(servers, append([]framework.Option{framework.WithSessionTimeout(longSession)}, opts...)...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	if err := c.WaitConnected(ctx); err != nil {
		b.Fatal(err)
	}
	return c
}

// bareConn connects the wire client alone.
func bareConn(b testing.TB, servers string) *zk.Conn {
	b.Helper()
	conn, events, err := zk.Connect([]string{servers}, longSession, zk.WithLogInfo(false))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		conn.Close()
		for range events { //nolint:revive // its closing is the only sign that the wire client has ended
		}
	})
	for event := range events {
		if event.State == zk.StateHasSession {
			break
		}
	}
	return conn
}

// counter counts the answered requests of clients, without heartbeats.
type counter struct {
	n       atomic.Int64
	watches atomic.Int64 // part of n
}

func (c *counter) option() framework.Option {
	return framework.WithObserver(framework.Observer{RequestEnd: func(_ context.Context, r framework.Request, _ framework.RequestResult) {
		switch r.Op {
		case "sync":
			return
		case "watch":
			c.watches.Add(1)
		}
		c.n.Add(1)
	}, Dropped: func(d framework.Drop) { c.n.Add(int64(d.Events)) }})
}

// BenchmarkGrant measures one cycle of Acquire and Release, by goroutines of
// one client.
func BenchmarkGrant(b *testing.B) {
	type maker func(c *framework.Client) (recipes.Acquirer, error)
	mutex := func(opts ...locks.Option) maker {
		return func(c *framework.Client) (recipes.Acquirer, error) { return locks.NewMutex(c, "/bench", opts...) }
	}
	rw := func(side func(*rwlock.RWLock) recipes.Acquirer) maker {
		return func(c *framework.Client) (recipes.Acquirer, error) {
			l, err := rwlock.New(c, "/bench")
			if err != nil {
				return nil, err
			}
			return side(l), nil
		}
	}
	permits := func(most int) maker {
		return func(c *framework.Client) (recipes.Acquirer, error) { return semaphore.New(c, "/bench", most) }
	}
	term := func(c *framework.Client) (recipes.Acquirer, error) { return leader.New(c, "/bench") }
	for _, bench := range []struct {
		name       string
		make       maker
		goroutines int
		atOnce     int32
	}{
		{"mutex", mutex(), 1, 1},
		{"mutex-lingering", mutex(recipes.WithLinger(time.Second)), 1, 1},
		{"mutex-16", mutex(), 16, 1},
		{"mutex-16-one-by-one", mutex(recipes.WithHandoffs(0)), 16, 1},
		{"read", rw((*rwlock.RWLock).Reader), 1, 1},
		{"read-16", rw((*rwlock.RWLock).Reader), 16, 16},
		{"write", rw((*rwlock.RWLock).Writer), 1, 1},
		{"write-16", rw((*rwlock.RWLock).Writer), 16, 1},
		{"semaphore-1", permits(1), 1, 1},
		{"semaphore-4-of-16", permits(4), 16, 4},
		{"term", term, 1, 1},
	} {
		b.Run(bench.name, func(b *testing.B) {
			onEachServer(b, func(b *testing.B, servers string) {
				var requests counter
				a, err := bench.make(benchClient(b, servers, requests.option()))
				if err != nil {
					b.Fatal(err)
				}
				runCycles(b, a, bench.goroutines, bench.atOnce, &requests)
			})
		})
	}
}

func runCycles(b *testing.B, a recipes.Acquirer, goroutines int, atOnce int32, requests *counter) {
	var inside atomic.Int32
	cycle := func(ctx context.Context, _, _ int) error {
		l, err := a.Acquire(ctx)
		if err != nil {
			return err
		}
		if inside.Add(1) > atOnce {
			judge.Errorf(b, "too many holders")
		}
		inside.Add(-1)
		return l.Release(ctx)
	}
	if err := cycle(b.Context(), 0, 0); err != nil { // creates the directory
		b.Fatal(err)
	}
	b.ReportAllocs()
	before := requests.n.Load()
	b.ResetTimer()
	if _, _, err := (cycles.Load{Goroutines: goroutines, Locks: 1, Cycles: int64(b.N)}).Run(b.Context(), cycle); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "grants/s")
	b.ReportMetric(float64(requests.n.Load()-before)/float64(b.N), "requests/grant")
}

// sample is a series of durations.
type sample []time.Duration

func (s sample) median() float64 { return s.quantile(0.5) }

// quantile returns microseconds.
func (s sample) quantile(q float64) float64 {
	s = slices.Clone(s)
	slices.Sort(s)
	return float64(s[int(q*float64(len(s)-1))]) / float64(time.Microsecond)
}
