package measure_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/cycles"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// The benchmarks below measure what 10,000 of a thing cost each. One iteration
// is all of them, so the metrics say more than its time. Memory is that of the
// whole process: with the embedded ensemble it includes the servers, with a
// real one it is the client's alone.

const many = 10_000

// footprint is the memory and the goroutines of the process after a garbage
// collection.
type footprint struct {
	bytes      float64 // heap and stacks
	goroutines int
}

func takeFootprint() footprint {
	runtime.GC()
	runtime.GC() // frees what had a finalizer
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{float64(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()}
}

func (f footprint) report(b *testing.B, before footprint, n int, each string) {
	b.ReportMetric((f.bytes-before.bytes)/float64(n), "B/"+each)
	b.ReportMetric(float64(f.goroutines-before.goroutines)/float64(n), "goroutines/"+each)
}

// residentBytes returns the resident memory of the process, which leaves out
// what was allocated and never touched. It is 0 where the system does not
// report it.
func residentBytes() float64 {
	debug.FreeOSMemory() // of earlier measurements
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident float64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * float64(os.Getpagesize())
}

// inParallel calls f for 0 to n-1, sixteen at a time.
func inParallel(b *testing.B, n int, f func(i int) error) {
	b.Helper()
	var all sync.WaitGroup
	errs := make([]error, 16)
	for w := range errs {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += len(errs) {
				errs[w] = f(i)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkHeld: one client acquires and holds 10,000 locks. They are measured
// when their znodes are watched, as those of all locks are that are held for a
// while.
func BenchmarkHeld(b *testing.B) {
	onEachServer(b, func(b *testing.B, servers string) {
		var requests counter
		c := benchClient(b, servers, requests.option())
		for b.Loop() {
			held := make([]*recipes.Lease, many)
			before, sent, watched := takeFootprint(), requests.n.Load(), requests.watches.Load()
			inParallel(b, many, func(i int) error {
				m, err := locks.NewMutex(c, fmt.Sprintf("/held/%d", i))
				if err != nil {
					return err
				}
				held[i], err = m.Acquire(b.Context())
				return err
			})
			await(b, func() bool { return requests.watches.Load()-watched >= many })
			takeFootprint().report(b, before, many, "lock")
			b.ReportMetric(float64(requests.n.Load()-sent)/many, "requests/lock")
			inParallel(b, many, func(i int) error { return held[i].Release(b.Context()) })
		}
	})
}

// BenchmarkWaiting: 10,000 goroutines of one client wait for one lock that
// another goroutine of the client holds, or each for one of 10,000 locks that
// another client holds.
func BenchmarkWaiting(b *testing.B) {
	b.Run("in-process", func(b *testing.B) {
		onEachServer(b, func(b *testing.B, servers string) {
			var requests counter
			c := benchClient(b, servers, requests.option())
			benchWaiting(b, c, c, 1, &requests)
		})
	})
	b.Run("in line", func(b *testing.B) {
		onEachServer(b, func(b *testing.B, servers string) {
			var requests counter
			benchWaiting(b, benchClient(b, servers), benchClient(b, servers, requests.option()), many, &requests)
		})
	})
}

func benchWaiting(b *testing.B, holder, waiter *framework.Client, paths int, requests *counter) {
	for b.Loop() {
		held := make([]*recipes.Lease, paths)
		inParallel(b, paths, func(i int) error {
			m, err := locks.NewMutex(holder, fmt.Sprintf("/waiting/%d", i))
			if err != nil {
				return err
			}
			held[i], err = m.Acquire(b.Context())
			return err
		})
		ctx, leave := context.WithCancel(b.Context())
		before, sent, watched := takeFootprint(), requests.n.Load(), requests.watches.Load()
		var waiters sync.WaitGroup
		for i := range many {
			m, err := locks.NewMutex(waiter, fmt.Sprintf("/waiting/%d", i%paths))
			if err != nil {
				b.Fatal(err)
			}
			waiters.Go(func() {
				if lease, err := m.Acquire(ctx); err == nil {
					b.Error("granted while another holds")
					_ = lease.Release(ctx)
				} else if !errors.Is(err, context.Canceled) {
					b.Error(err)
				}
			})
		}
		if paths > 1 {
			await(b, func() bool { return requests.watches.Load()-watched >= many })
		} else {
			time.Sleep(time.Second) // nothing shows that a goroutine waits
		}
		takeFootprint().report(b, before, many, "waiter")
		b.ReportMetric(float64(requests.n.Load()-sent)/many, "requests/waiter")
		leave()
		waiters.Wait()
		inParallel(b, paths, func(i int) error { return held[i].Release(b.Context()) })
	}
}

// BenchmarkKeyed: 10,000 keys are locked and unlocked twice. An unused key
// keeps nothing in memory; its directory vanishes in time.
func BenchmarkKeyed(b *testing.B) {
	onEachServer(b, func(b *testing.B, servers string) {
		var requests counter
		k, err := locks.NewKeyed(benchClient(b, servers, requests.option()), "/keyed")
		if err != nil {
			b.Fatal(err)
		}
		defer k.Close(context.Background())
		cycle := func(i int) error { return cycles.Cycle(b.Context(), k.Key(fmt.Sprintf("key %d", i))) }
		for b.Loop() {
			before := takeFootprint()
			for _, time := range []string{"first", "later"} {
				sent := requests.n.Load()
				inParallel(b, many, cycle)
				b.ReportMetric(float64(requests.n.Load()-sent)/many, time+"-requests/key")
			}
			takeFootprint().report(b, before, many, "key")
		}
	})
}

// BenchmarkClients: a thousand clients in one process, each with a session, and
// as many of the wire client.
func BenchmarkClients(b *testing.B) {
	const clients = 1000
	for _, bench := range []struct {
		name    string
		connect func(b *testing.B, servers string)
	}{
		{"bare", func(b *testing.B, servers string) { bareConn(b, servers) }},
		{"client", func(b *testing.B, servers string) { benchClient(b, servers) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			onEachServer(b, func(b *testing.B, servers string) {
				for b.Loop() {
					before, began := takeFootprint(), time.Now()
					resident := residentBytes()
					for range clients {
						bench.connect(b, servers)
					}
					b.ReportMetric(float64(time.Since(began).Microseconds())/clients, "µs/client")
					takeFootprint().report(b, before, clients, "client")
					if resident > 0 {
						b.ReportMetric((residentBytes()-resident)/clients, "resident-B/client")
					}
				}
			})
		})
	}
}

// BenchmarkCaches: a client has a thousand caches, each of a directory of ten
// znodes of 100 bytes. It measures their first views, ten seconds in which
// nothing happens, and a connection that breaks. The session timeout is 4 s, so
// they read again within 1.3 s.
func BenchmarkCaches(b *testing.B) {
	const caches, znodes = 1000, 10
	for _, bench := range []struct {
		name string
		opts []cache.Option
	}{
		{"recursive", nil},
		{"one-shot", []cache.Option{cache.WithOneShotWatches()}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			onEachServer(b, func(b *testing.B, servers string) {
				fillTrees(b, benchClient(b, servers), caches, znodes)
				var requests counter
				var again atomic.Int64
				network := &cord{}
				c := benchClient(b, servers, requests.option(), framework.WithDialer(network.dial), framework.WithSessionTimeout(4*time.Second),
					cache.WithObserver(cache.Observer{StateChanged: func(change cache.StateChange) {
						if change.From == "stale" && change.To == "synced" {
							again.Add(1)
						}
					}}))
				for b.Loop() {
					before, sent := takeFootprint(), requests.n.Load()
					all := make([]*cache.Cache, caches)
					inParallel(b, caches, func(i int) (err error) {
						if all[i], err = cache.New(c, fmt.Sprintf("/trees/%d", i), bench.opts...); err != nil {
							return err
						}
						all[i].Start()
						view, err := all[i].Synced(b.Context())
						if err == nil && view.Len() != 1+znodes {
							err = fmt.Errorf("%d znodes", view.Len())
						}
						return err
					})
					takeFootprint().report(b, before, caches, "cache")
					perCache := func(what string) {
						time.Sleep(time.Second) // the observer may be behind
						b.ReportMetric(float64(requests.n.Load()-sent)/caches, what+"-requests/cache")
						sent = requests.n.Load()
					}
					perCache("first")
					time.Sleep(10 * time.Second)
					perCache("idle")
					count, began := again.Load(), time.Now()
					network.drop()
					await(b, func() bool { return again.Load()-count >= caches })
					b.ReportMetric(time.Since(began).Seconds(), "back-s")
					perCache("reconnect")
					inParallel(b, caches, func(i int) error { all[i].Close(); return nil })
				}
			})
		})
	}
}

// fillTrees makes directories with so many children each.
func fillTrees(b *testing.B, c *framework.Client, dirs, children int) {
	b.Helper()
	create := func(path string) any {
		return &zk.CreateRequest{Path: path, Data: make([]byte, 100), Acl: zk.WorldACL(zk.PermAll)}
	}
	if _, err := c.Multi(b.Context(), create("/trees")); err != nil {
		b.Fatal(err)
	}
	inParallel(b, dirs, func(i int) error {
		dir := fmt.Sprintf("/trees/%d", i)
		ops := []any{create(dir)}
		for j := range children {
			ops = append(ops, create(fmt.Sprintf("%s/%d", dir, j)))
		}
		_, err := c.Multi(b.Context(), ops...)
		return err
	})
}

// BenchmarkPermits: all permits of a semaphore of a thousand are acquired, one
// by one. The last costs what the first does, except for the longer list.
func BenchmarkPermits(b *testing.B) {
	const permits = 1000
	onEachServer(b, func(b *testing.B, servers string) {
		var requests counter
		s, err := semaphore.New(benchClient(b, servers, requests.option()), "/permits", permits)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			before := takeFootprint()
			var took sample
			var held []*recipes.Lease
			sent := requests.n.Load()
			for range permits {
				began := time.Now()
				l, err := s.Acquire(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				took, held = append(took, time.Since(began)), append(held, l)
			}
			b.ReportMetric(float64(requests.n.Load()-sent)/permits, "requests/permit")
			b.ReportMetric(took[:100].median(), "first-µs")
			b.ReportMetric(took[permits-100:].median(), "last-µs")
			takeFootprint().report(b, before, permits, "permit")
			if _, err := s.TryAcquire(b.Context()); !errors.Is(err, recipes.ErrBusy) {
				b.Errorf("one permit more: %v", err)
			}
			inParallel(b, permits, func(i int) error { return held[i].Release(b.Context()) })
		}
	})
}

// BenchmarkElection: 500 candidates, each in its own session. It measures how
// long it takes until the next one leads: after the leader resigned, after its
// client was closed, and after its process was killed. For the servers a killed
// process is a connection that breaks and does not return, so the session has
// to expire first (its timeout is 4 s).
func BenchmarkElection(b *testing.B) {
	const candidates = 500
	onEachServer(b, func(b *testing.B, servers string) {
		for b.Loop() {
			ctx, leave := context.WithCancel(b.Context())
			led := make(chan candidate, 1)
			var all sync.WaitGroup
			for range candidates {
				line := &cord{}
				c := candidate{cord: line, client: benchClient(b, servers, framework.WithSessionTimeout(4*time.Second), framework.WithDialer(line.dial))}
				e, err := leader.New(c.client, "/election")
				if err != nil {
					b.Fatal(err)
				}
				all.Go(func() {
					var err error
					if c.term, err = e.Acquire(ctx); err == nil {
						c.since = time.Now()
						led <- c
					} else if ctx.Err() == nil {
						b.Error(err)
					}
				})
			}
			now := <-led
			took := map[string]sample{}
			change := func(how string, end func() error) {
				began := time.Now()
				ended := make(chan error, 1)
				go func() { ended <- end() }()
				next := <-led
				took[how] = append(took[how], next.since.Sub(began))
				if err := <-ended; err != nil {
					b.Fatal(err)
				}
				now = next
			}
			for range 9 {
				change("resigned", func() error { return now.term.Release(context.Background()) })
				change("closed", now.client.Close)
			}
			for range 3 {
				change("killed", func() error { now.cord.cut(); return nil })
			}
			for how, s := range took {
				b.ReportMetric(s.median()/1000, how+"-ms")
			}
			leave()
			all.Wait()
		}
	})
}

type candidate struct {
	cord   *cord
	client *framework.Client
	term   *recipes.Lease
	since  time.Time
}

// cord is a client's connections to the ensemble, until it is cut for good.
type cord struct {
	mu    sync.Mutex // guards what follows
	conns []net.Conn
	gone  bool
}

func (c *cord) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return nil, net.ErrClosed
	}
	conn, err := net.DialTimeout(network, address, timeout)
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cord) cut() {
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
	c.drop()
}

// drop closes the connections. The client may make others.
func (c *cord) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}
