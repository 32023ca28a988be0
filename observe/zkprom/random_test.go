package zkprom_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// call is a call of Acquire that waits, or whose lease is held.
type call struct {
	acquire recipes.Acquire
	ctx     context.Context
	grant   recipes.Grant
	since   time.Time
}

// Calls that begin and end in random order, many of them at one instant and
// with the same grant, are counted as a list of them counts.
func TestRandomCalls(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testRandomCalls(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func testRandomCalls(t *testing.T, random *rand.Rand) {
	registry, o := newMetrics(t)
	var waiting, held []call
	for range 200 {
		switch random.IntN(5) {
		case 0, 1:
			c := call{acquire: mutex(fmt.Sprintf("/%d", random.IntN(2))), since: time.Now()}
			c.acquire.Recipe = []string{"mutex", "read"}[random.IntN(2)]
			c.ctx = o.AcquireStart(t.Context(), c.acquire)
			waiting = append(waiting, c)
		case 2:
			c, ok := take(&waiting, random)
			if !ok {
				break
			}
			if random.IntN(4) == 0 {
				o.AcquireEnd(c.ctx, c.acquire, recipes.AcquireResult{Err: context.Canceled})
				break
			}
			c.since = time.Now()
			c.grant = recipes.Grant{How: recipes.GrantedByShare, At: c.since, Znode: fmt.Sprint(random.IntN(2))}
			o.AcquireEnd(c.ctx, c.acquire, recipes.AcquireResult{Grant: c.grant})
			held = append(held, c)
		case 3:
			c, ok := take(&held, random)
			switch {
			case !ok:
			case random.IntN(2) == 0:
				o.Released(t.Context(), recipes.Release{Acquire: c.acquire, Grant: c.grant})
			default:
				o.Lost(t.Context(), recipes.Loss{Acquire: c.acquire, Grant: c.grant, Reason: recipes.LostSession})
			}
		case 4:
			time.Sleep(time.Second)
		}
		compareCalls(t, registry, "waiting", "oldest_wait_seconds", waiting)
		compareCalls(t, registry, "held", "oldest_hold_seconds", held)
	}
}

// take removes one of the calls.
func take(from *[]call, random *rand.Rand) (c call, ok bool) {
	calls := *from
	if len(calls) == 0 {
		return c, false
	}
	i := random.IntN(len(calls))
	c = calls[i]
	calls[i] = calls[len(calls)-1]
	*from = calls[:len(calls)-1]
	return c, true
}

// compareCalls compares two gauges with the calls, by recipe.
func compareCalls(t *testing.T, g prometheus.Gatherer, number, oldest string, calls []call) {
	t.Helper()
	want := make(map[string]float64)
	for _, c := range calls {
		want[number+" "+c.acquire.Recipe]++
		age := oldest + " " + c.acquire.Recipe
		want[age] = max(want[age], time.Since(c.since).Seconds())
	}
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, name := range []string{number, oldest} {
				if family.GetName() != "zkrecipes_"+name {
					continue
				}
				of := name + " " + metric.GetLabel()[1].GetValue()
				if value := metric.GetGauge().GetValue(); value != want[of] {
					t.Fatalf("%s: %v, want %v", of, value, want[of])
				}
				delete(want, of)
			}
		}
	}
	if len(want) > 0 {
		t.Fatalf("missing: %v", want)
	}
}
