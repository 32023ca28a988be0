package zkprom_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// shop is a program under load: some clients whose goroutines use every recipe.
// It counts itself what happens to it, as its callers see it.
type shop struct {
	t       *testing.T
	ens     testutil.Ensemble
	metrics *zkprom.Metrics
	clients []*framework.Client
	nodes   []*presence.Node // one of each client that is open
	rosters []*presence.Roster
	stop    chan struct{} // closed: the load ends
	load    sync.WaitGroup

	mu      sync.Mutex // guards what follows
	granted map[string]int
	failed  map[string]int
	ended   map[string]int // leases, by recipe, however they ended
	lost    map[string]int
	states  map[string]int // transitions
	// As another observer sees it: what no caller sees.
	abandoned map[string]int
	retried   map[string]int
	reasons   map[string]int // of losses
	rare      map[string]int // batches, overruns, revocations
}

func openShop(t *testing.T, ens testutil.Ensemble, metrics *zkprom.Metrics) *shop {
	return &shop{
		t: t, ens: ens, metrics: metrics, stop: make(chan struct{}),
		granted: map[string]int{}, failed: map[string]int{}, ended: map[string]int{}, lost: map[string]int{},
		states: map[string]int{}, abandoned: map[string]int{}, retried: map[string]int{}, reasons: map[string]int{}, rare: map[string]int{},
	}
}

// count adds 1 to a count.
func (s *shop) count(in map[string]int, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in[what]++
}

// of returns a copy of a count.
func (s *shop) of(in map[string]int) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	copied := make(map[string]int)
	for what, n := range in {
		copied[what] = n
	}
	return copied
}

// copied returns a function that returns a copy of a count.
func (s *shop) copied(in map[string]int) func() map[string]int {
	return func() map[string]int { return s.of(in) }
}

// awaitCount does something until it has been counted.
func (s *shop) awaitCount(in map[string]int, what string, do func()) {
	s.t.Helper()
	await(s.t, what, func() (string, bool) {
		do()
		counts := s.of(in)
		return fmt.Sprint(counts), counts[what] > 0
	})
}

// connect returns a client of the shop.
func (s *shop) connect(dial framework.Dialer) *framework.Client {
	s.t.Helper()
	client, err := framework.New(s.ens.Servers(), framework.WithDialer(dial), framework.WithSessionTimeout(3*time.Second),
		s.metrics.Option(), framework.Together(
			framework.WithObserver(framework.Observer{
				Abandoned: func(a framework.Abandonment) { s.count(s.abandoned, string(a.Reason)) },
				Retried:   func(_ context.Context, r framework.Retry) { s.count(s.retried, r.Op) },
				Batched:   func(framework.Batch) { s.count(s.rare, "batches") },
			}),
			recipes.WithObserver(recipes.Observer{
				Lost:    func(_ context.Context, l recipes.Loss) { s.count(s.reasons, string(l.Reason)) },
				Overran: func(context.Context, recipes.Overrun) { s.count(s.rare, "overruns") },
				Revoked: func(context.Context, recipes.Revocation) { s.count(s.rare, "revocations") },
			}),
		))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Close() })
	client.Listen(func(c framework.StateChange) {
		if c.From != c.To {
			s.count(s.states, strings.ToLower(c.To.String()))
		}
	})
	s.clients = append(s.clients, client)
	if err := client.WaitConnected(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return client
}

// use acquires, works, and releases, and counts that.
func (s *shop) use(ctx context.Context, recipe string, a recipes.Acquirer, work func(*recipes.Lease)) {
	lease, err := a.Acquire(ctx)
	if err != nil {
		s.count(s.failed, recipe)
		return
	}
	s.count(s.granted, recipe)
	work(lease)
	_ = lease.Release(context.Background()) // what went wrong stands in Err
	s.count(s.ended, recipe)
	if !errors.Is(lease.Err(), recipes.ErrReleased) {
		s.count(s.lost, recipe)
	}
}

// repeat runs a caller until the load ends.
func (s *shop) repeat(call func(ctx context.Context)) {
	s.load.Go(func() {
		for {
			select {
			case <-s.stop:
				return
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			call(ctx)
			cancel()
			time.Sleep(rand.N(20 * time.Millisecond))
		}
	})
}

func work(*recipes.Lease) { time.Sleep(rand.N(10 * time.Millisecond)) }

// open lets a client use every recipe.
func (s *shop) open(c *framework.Client) {
	s.t.Helper()
	report := made(locks.NewMutex(c, "/locks/report"))
	keyed := made(locks.NewKeyed(c, "/orders"))
	table := made(rwlock.New(c, "/locks/table"))
	pool := made(semaphore.New(c, "/locks/pool", 2))
	election := made(leader.New(c, "/leader"))
	for range 2 {
		s.repeat(func(ctx context.Context) {
			s.use(ctx, "mutex", report, func(l *recipes.Lease) {
				s.use(l.Context(), "mutex", report, work) // re-enters
			})
		})
		s.repeat(func(ctx context.Context) {
			s.use(ctx, "mutex", recipes.Try(keyed.Key(fmt.Sprint(rand.N(3)))), work)
		})
		s.repeat(func(ctx context.Context) { s.use(ctx, "read", table.Reader(), work) })
		s.repeat(func(ctx context.Context) { s.use(ctx, "semaphore", pool, work) })
	}
	s.repeat(func(ctx context.Context) { s.use(ctx, "write", table.Writer(), work) })
	s.repeat(func(ctx context.Context) { s.use(ctx, "election", election, work) })
	group := made(presence.NewGroup(c, "/services"))
	node := made(group.Join(s.t.Context(), fmt.Sprint(len(s.nodes)), nil))
	s.nodes = append(s.nodes, node)
	s.rosters = append(s.rosters, group.Follow())
}

// made returns what a constructor has made of arguments that are right.
func made[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// close ends the load, and waits until every caller has returned.
func (s *shop) close() {
	close(s.stop)
	s.load.Wait()
}
