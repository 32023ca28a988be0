package zkprom_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// What is added, in conflict and in a round is counted, by the client's own
// events.
func TestCountersAndBarriers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, metrics := newOption(t)
		ens := testutil.Start(t, testutil.InMemory())
		connect := func(opts ...framework.Option) *framework.Client {
			c := made(framework.New(ens.Servers(), append(opts, framework.WithDialer(ens.Dial))...))
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		c := connect(metrics.Option())
		n, other := made(counter.New(c, "/orders")), made(counter.New(connect(), "/orders"))
		for _, each := range []*counter.Counter{n, other, n} {
			made(each.Add(t.Context(), 1))
		}
		alone := made(barrier.NewDouble(c, "/start", 1))
		if err := made(alone.Enter(t.Context())).Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantMetrics(t, registry, `
			zkrecipes_barrier_rounds_total{barrier="/start",result="entered"} 1
			zkrecipes_barrier_rounds_total{barrier="/start",result="failed"} 0
			zkrecipes_barrier_rounds_total{barrier="/start",result="left"} 1
			zkrecipes_additions_total{counter="/orders",result="added"} 2
			zkrecipes_additions_total{counter="/orders",result="failed"} 0
			zkrecipes_additions_total{counter="/orders",result="unsure"} 0
			zkrecipes_addition_conflicts_total{counter="/orders"} 1`[1:],
			"zkrecipes_barrier_rounds_total", "zkrecipes_additions_total", "zkrecipes_addition_conflicts_total")
	})
}

// Calls that share a write are counted one by one, those that have failed by
// what is known of them. Labels are bounded.
func TestAdditionsThatFail(t *testing.T) {
	registry, o := newMetrics(t, zkprom.LabelLimit(1))
	for i, err := range []error{nil, errors.New("refused"), fmt.Errorf("counter: %w", unsure(t))} {
		o.Counters.Added(counter.Addition{Counter: counter.Info{Label: fmt.Sprint("/", i/2)}, Calls: 5, Failed: 2 * min(i, 1), Err: err})
	}
	o.Barriers.Left(barrier.Exit{Barrier: barrier.Info{Label: "/b"}, Err: barrier.ErrGone})
	wantMetrics(t, registry, `
		zkrecipes_barrier_rounds_total{barrier="/b",result="entered"} 0
		zkrecipes_barrier_rounds_total{barrier="/b",result="failed"} 1
		zkrecipes_barrier_rounds_total{barrier="/b",result="left"} 0
		zkrecipes_additions_total{counter="(other)",result="added"} 3
		zkrecipes_additions_total{counter="(other)",result="failed"} 0
		zkrecipes_additions_total{counter="(other)",result="unsure"} 2
		zkrecipes_additions_total{counter="/0",result="added"} 8
		zkrecipes_additions_total{counter="/0",result="failed"} 2
		zkrecipes_additions_total{counter="/0",result="unsure"} 0`[1:],
		"zkrecipes_barrier_rounds_total", "zkrecipes_additions_total")
}

// unsure returns an error of which framework.MaybeApplied is true.
func unsure(t *testing.T) error {
	t.Helper()
	err := managed.Unsure("add", "/n", errors.New("lost"))
	if !framework.MaybeApplied(err) {
		t.Fatal(err)
	}
	return err
}
