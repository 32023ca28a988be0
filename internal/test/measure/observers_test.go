package measure_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/cycles"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// observerOptions are clients without an observer, and with several.
var observerOptions = []struct {
	name string
	opts []framework.Option
}{
	{"none", nil},
	{"no functions", []framework.Option{framework.WithObserver(framework.Observer{}), recipes.WithObserver(recipes.Observer{})}},
	{"no requests", []framework.Option{everyFunction(false)}},
	{"every function", []framework.Option{everyFunction(true)}},
	{"two of every function", []framework.Option{everyFunction(true), everyFunction(true)}},
}

// everyFunction is observers whose functions do nothing.
func everyFunction(requests bool) framework.Option {
	o := framework.Observer{
		StateChanged: func(framework.StateChange) {},
		Abandoned:    func(framework.Abandonment) {},
		Moved:        func(framework.Move) {},
		Dropped:      func(framework.Drop) {},
	}
	if requests {
		o.RequestStart = func(ctx context.Context, _ framework.Request) context.Context { return ctx }
		o.RequestEnd = func(context.Context, framework.Request, framework.RequestResult) {}
		o.Retried = func(context.Context, framework.Retry) {}
		o.Batched = func(framework.Batch) {}
	}
	return framework.Together(framework.WithObserver(o), cache.WithObserver(cache.Observer{
		StateChanged: func(cache.StateChange) {},
		Read:         func(cache.Read) {},
	}), presence.WithObserver(presence.Observer{
		StateChanged: func(presence.StateChange) {},
	}), recipes.WithObserver(recipes.Observer{
		AcquireStart: func(ctx context.Context, _ recipes.Acquire) context.Context { return ctx },
		AcquireEnd:   func(context.Context, recipes.Acquire, recipes.AcquireResult) {},
		Released:     func(context.Context, recipes.Release) {},
		Lost:         func(context.Context, recipes.Loss) {},
		LostReleased: func(context.Context, recipes.Loss) {},
		Overran:      func(context.Context, recipes.Overrun) {},
		Revoked:      func(context.Context, recipes.Revocation) {},
	}))
}

// BenchmarkObservers measures what observers cost: a cycle of an uncontended
// Mutex, with its requests, to a server in another process; a cycle of a Mutex
// that lingers, which makes none; and one of two goroutines that hand a Mutex
// off to each other, which makes none either.
func BenchmarkObservers(b *testing.B) {
	servers := startServer(b)
	for _, bench := range observerCycles {
		for _, with := range observerOptions {
			b.Run(bench.name+"/"+with.name, func(b *testing.B) {
				m := bench.mutex(b, servers, with.opts)
				b.ReportAllocs()
				b.ResetTimer()
				bench.run(b, m, b.N)
			})
		}
	}
}

type observerCycle struct {
	name   string
	linger time.Duration
	run    func(tb testing.TB, m *locks.Mutex, n int)
}

var observerCycles = []observerCycle{
	{"requests", 0, oneByOne},
	{"linger", time.Minute, oneByOne},
	{"handoff", time.Minute, handOff},
}

// mutex returns the Mutex of a new client, after its first cycle.
func (c observerCycle) mutex(tb testing.TB, servers string, opts []framework.Option) *locks.Mutex {
	tb.Helper()
	m, err := locks.NewMutex(benchClient(tb, servers, opts...), "/locks/"+c.name, recipes.WithLinger(c.linger))
	if err != nil {
		tb.Fatal(err)
	}
	c.run(tb, m, 100)
	return m
}

// oneByOne makes n cycles.
func oneByOne(tb testing.TB, m *locks.Mutex, n int) {
	for range n {
		if err := cycles.Cycle(context.Background(), m); err != nil {
			tb.Fatal(err)
		}
	}
}

// handOff makes n cycles on two goroutines.
func handOff(tb testing.TB, m *locks.Mutex, n int) {
	var both sync.WaitGroup
	for _, n := range []int{n / 2, n - n/2} {
		both.Go(func() {
			for range n {
				if err := cycles.Cycle(context.Background(), m); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	both.Wait()
}

// Without an observer the hooks allocate nothing: a cycle without requests
// makes as many allocations as it made before there were hooks. Nor do they
// with one that has no functions for leases.
func TestNoObserverAllocatesNothing(t *testing.T) {
	const before = 10.0 // of a cycle that lingers, before the hooks
	servers := startServer(t)
	for name, opts := range map[string][]framework.Option{
		"none":           nil,
		"no functions":   {framework.WithObserver(framework.Observer{}), recipes.WithObserver(recipes.Observer{})},
		"of states only": {framework.WithObserver(framework.Observer{StateChanged: func(framework.StateChange) {}})},
	} {
		m := observerCycles[1].mutex(t, servers, opts)
		got := testing.AllocsPerRun(2000, func() { oneByOne(t, m, 1) })
		t.Logf("%s: %.0f allocations", name, got)
		if got > before {
			t.Errorf("%s: %.0f allocations, want %.0f", name, got, before)
		}
	}
}
