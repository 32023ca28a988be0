package acceptance_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// blockable is something that the user supplied. Once it is stuck, no call of
// it returns until the test ends.
type blockable struct {
	stuck atomic.Bool
	calls atomic.Int32 // the calls that got stuck
	free  chan struct{}
}

func (b *blockable) pass() {
	if b.stuck.Load() {
		b.calls.Add(1)
		<-b.free
	}
}

// supplier is one thing that a user supplies to a client, in a form that can
// get stuck.
type supplier struct {
	name   string
	option func(b *blockable, dial framework.Dialer) framework.Option // nil for the plain dialer
	attach func(b *blockable, c *framework.Client)                    // nil for nothing
}

// connect connects the client "a", which uses it.
func (s supplier) connect(w *bubble.World, b *blockable) *framework.Client {
	var opts []framework.Option
	if s.option != nil {
		opts = append(opts, s.option(b, w.ClientNet("a").Dial))
	}
	a := w.Connect("a", opts...)
	if s.attach != nil {
		s.attach(b, a)
	}
	return a
}

var suppliers = []supplier{
	{"logger", func(b *blockable, _ framework.Dialer) framework.Option {
		return framework.WithLogger(zap.New(stuckCore{b}, zap.WithClock(stuckClock{b}), zap.AddStacktrace(stuckCore{b})))
	}, nil},
	{"slog handler", func(b *blockable, _ framework.Dialer) framework.Option {
		return framework.WithSlog(slog.New(stuckHandler{b}))
	}, nil},
	{"observer", func(b *blockable, _ framework.Dialer) framework.Option {
		return framework.Together(
			framework.WithObserver(framework.Observer{
				StateChanged: func(framework.StateChange) { b.pass() },
				RequestStart: func(ctx context.Context, _ framework.Request) context.Context { b.pass(); return ctx },
				RequestEnd:   func(context.Context, framework.Request, framework.RequestResult) { b.pass() },
				Retried:      func(context.Context, framework.Retry) { b.pass() },
				Batched:      func(framework.Batch) { b.pass() },
				Abandoned:    func(framework.Abandonment) { b.pass() },
				Moved:        func(framework.Move) { b.pass() },
			}),
			recipes.WithObserver(recipes.Observer{
				Lost:    func(context.Context, recipes.Loss) { b.pass() },
				Revoked: func(context.Context, recipes.Revocation) { b.pass() },
			}),
		)
	}, nil},
	{"listener", nil, func(b *blockable, c *framework.Client) {
		c.Listen(func(framework.StateChange) { b.pass() })
	}},
	{"dialer", func(b *blockable, dial framework.Dialer) framework.Option {
		return framework.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			b.pass()
			return dial(network, address, timeout)
		})
	}, nil},
	{"connection", func(b *blockable, dial framework.Dialer) framework.Option {
		return framework.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := dial(network, address, timeout)
			return stuckConn{conn, b}, err
		})
	}, nil},
}

// stuckCore is a log sink, for example a pipe that no process reads.
type stuckCore struct{ *blockable }

func (c stuckCore) Enabled(zapcore.Level) bool                 { c.pass(); return true }
func (c stuckCore) With([]zapcore.Field) zapcore.Core          { return c }
func (c stuckCore) Write(zapcore.Entry, []zapcore.Field) error { c.pass(); return nil }
func (c stuckCore) Sync() error                                { c.pass(); return nil }
func (c stuckCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	c.pass()
	return ce.AddCore(e, c)
}

// stuckHandler is the same for log/slog.
type stuckHandler struct{ *blockable }

func (h stuckHandler) Enabled(context.Context, slog.Level) bool  { h.pass(); return true }
func (h stuckHandler) Handle(context.Context, slog.Record) error { h.pass(); return nil }
func (h stuckHandler) WithAttrs([]slog.Attr) slog.Handler        { h.pass(); return h }
func (h stuckHandler) WithGroup(string) slog.Handler             { h.pass(); return h }

// stuckClock is the clock of a logger.
type stuckClock struct{ *blockable }

func (c stuckClock) Now() time.Time                         { c.pass(); return time.Now() }
func (c stuckClock) NewTicker(d time.Duration) *time.Ticker { c.pass(); return time.NewTicker(d) }

// stuckConn is a connection whose methods do not return.
type stuckConn struct {
	net.Conn
	*blockable
}

func (c stuckConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.pass()
	return n, err
}

func (c stuckConn) Write(p []byte) (int, error) { c.pass(); return c.Conn.Write(p) }
func (c stuckConn) Close() error                { c.pass(); return c.Conn.Close() }

// everyRecipe lists every way to get a lease.
var everyRecipe = []struct {
	name string
	make func(c *framework.Client, path string) (recipes.Acquirer, error)
}{
	{"mutex", func(c *framework.Client, path string) (recipes.Acquirer, error) { return locks.NewMutex(c, path) }},
	{"lingering mutex", func(c *framework.Client, path string) (recipes.Acquirer, error) {
		return locks.NewMutex(c, path, recipes.WithLinger(time.Minute))
	}},
	{"key", func(c *framework.Client, path string) (recipes.Acquirer, error) {
		k, err := locks.NewKeyed(c, path)
		if err != nil {
			return nil, err
		}
		return k.Key("key"), nil
	}},
	{"all", func(c *framework.Client, path string) (recipes.Acquirer, error) {
		m, err := locks.NewMutex(c, path+"/a")
		if err != nil {
			return nil, err
		}
		s, err := semaphore.New(c, path+"/b", 1)
		if err != nil {
			return nil, err
		}
		return locks.All(m, s)
	}},
	{"write lock", func(c *framework.Client, path string) (recipes.Acquirer, error) {
		rw, err := rwlock.New(c, path)
		if err != nil {
			return nil, err
		}
		return rw.Writer(), nil
	}},
	{"read lock", func(c *framework.Client, path string) (recipes.Acquirer, error) {
		rw, err := rwlock.New(c, path)
		if err != nil {
			return nil, err
		}
		return rw.Reader(), nil
	}},
	{"semaphore", func(c *framework.Client, path string) (recipes.Acquirer, error) { return semaphore.New(c, path, 1) }},
	{"permits", func(c *framework.Client, path string) (recipes.Acquirer, error) {
		s, err := semaphore.New(c, path, 3)
		if err != nil {
			return nil, err
		}
		return s.Permits(3), nil
	}},
	{"election", func(c *framework.Client, path string) (recipes.Acquirer, error) { return leader.New(c, path) }},
}

// The goroutine that knew the deadline also logged, called the observer and
// closed the connection, and it ended one lease after the other. So with a
// blocked log sink, a slow function of the observer, or a connection that took
// long to close, the next holder was granted while the previous holder still
// believed that it held.
func TestALossIsToldWhateverIsStuck(t *testing.T) {
	for _, supplier := range suppliers {
		for _, recipe := range everyRecipe {
			t.Run(supplier.name+"/"+recipe.name, func(t *testing.T) {
				t.Parallel()
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					b := &blockable{free: make(chan struct{})}
					defer close(b.free)
					a := supplier.connect(w, b)
					of := func(c *framework.Client, path string) recipes.Acquirer {
						r, err := recipe.make(c, path)
						if err != nil {
							t.Fatal(err)
						}
						return r
					}
					paths := []string{"/lock/1", "/lock/2", "/lock/3", "/lock/4"}
					var leases []*recipes.Lease
					for _, path := range paths {
						leases = append(leases, bubble.Acquire(t, t.Context(), of(a, path)))
					}
					other := w.Connect("b")
					var waits []<-chan bubble.Grant
					for _, path := range paths {
						rival := of(other, path)
						if recipe.name == "read lock" { // readers would not wait
							rw, err := rwlock.New(other, path)
							if err != nil {
								t.Fatal(err)
							}
							rival = rw.Writer()
						}
						waits = append(waits, bubble.Acquiring(t.Context(), rival))
					}
					time.Sleep(time.Second)
					b.stuck.Store(true)
					w.ClientNet("a").Cut()
					deadline := leases[0].Deadline()
					for i, l := range leases {
						if at := bubble.Lost(t, l); !at.Before(deadline) {
							t.Errorf("lease %d was lost %v after its deadline", i, at.Sub(deadline))
						}
						if began := time.Now(); l.Held() || l.Err() == nil || l.Deadline().After(deadline) || time.Since(began) > 0 {
							t.Errorf("lease %d: held %v, %v, until %v, after %v", i, l.Held(), l.Err(), l.Deadline(), time.Since(began))
						}
						bubble.Pending(t, waits...)
						began := time.Now()
						if err := l.Release(t.Context()); !errors.Is(err, recipes.ErrNotHeld) || time.Since(began) > 0 {
							t.Errorf("Release took %v: %v", time.Since(began), err)
						}
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					began := time.Now()
					if _, err := of(a, "/lock/5").Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
						t.Errorf("Acquire took %v: %v", time.Since(began), err)
					}
					for _, wait := range waits {
						bubble.Release(t, bubble.Granted(t, wait).Lease)
					}
					began = time.Now()
					_ = a.Close() // what the ensemble has received is unknown
					if took := time.Since(began); took > 12*time.Second {
						t.Errorf("Close took %v", took)
					}
					if b.calls.Load() == 0 {
						t.Errorf("the %s was not called, so the test shows nothing", supplier.name)
					}
				})
			})
		}
	}
}

// Close ended the leases on the goroutine that also called the observer.
func TestCloseTellsWhateverIsStuck(t *testing.T) {
	for _, supplier := range suppliers {
		t.Run(supplier.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				b := &blockable{free: make(chan struct{})}
				defer close(b.free)
				a := supplier.connect(w, b)
				m, err := locks.NewMutex(a, "/lock")
				if err != nil {
					t.Fatal(err)
				}
				l := bubble.Acquire(t, t.Context(), m)
				b.stuck.Store(true)
				began := time.Now()
				closed := make(chan error)
				go func() { closed <- a.Close() }()
				if at := bubble.Lost(t, l); at.Sub(began) > 0 {
					t.Errorf("lost %v after Close was called", at.Sub(began))
				}
				<-closed
				if took := time.Since(began); took > 15*time.Second {
					t.Errorf("Close took %v", took)
				}
			})
		})
	}
}
