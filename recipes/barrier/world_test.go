package barrier_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/hidden"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/retry"
)

const (
	path  = "/app/barrier"
	ready = path + "/ready"
)

// patient makes calls outlast an outage.
var patient = framework.WithRetry(retry.Exponential(50*time.Millisecond, 2*time.Second, math.MaxInt))

// bothKindsOfWatches runs a scenario at servers that have recursive watches,
// and at servers that have none.
func bothKindsOfWatches(t *testing.T, scenario func(t *testing.T, w *bubble.World)) {
	t.Helper()
	bubble.Run(t, scenario)
	bubble.Run(t, scenario, hidden.WithoutLastingWatches())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func double(t *testing.T, c *framework.Client, n int, opts ...barrier.Option) *barrier.Double {
	t.Helper()
	d, err := barrier.NewDouble(c, path, n, opts...)
	must(t, err)
	return d
}

// entered is the result of an Enter.
type entered struct {
	in  *barrier.Inside
	err error
}

func entering(ctx context.Context, d *barrier.Double) <-chan entered {
	result := make(chan entered, 1)
	go func() {
		in, err := d.Enter(ctx)
		result <- entered{in, err}
	}()
	return result
}

func enter(t *testing.T, from <-chan entered) *barrier.Inside {
	t.Helper()
	e := bubble.Await(t, "Enter", from)
	must(t, e.err)
	return e.in
}

func leaving(ctx context.Context, in *barrier.Inside) <-chan error {
	result := make(chan error, 1)
	go func() { result <- in.Leave(ctx) }()
	return result
}

func leave(t *testing.T, all ...<-chan error) {
	t.Helper()
	for _, result := range all {
		must(t, bubble.Await(t, "Leave", result))
	}
}

// wait lets everybody do what needs no time-out, and fails the test if one of
// them has a result.
func pending[T any](t *testing.T, all ...<-chan T) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	for i, result := range all {
		select {
		case r := <-result:
			t.Fatalf("%d did not wait: %+v", i, r)
		default:
		}
	}
}

// round makes members enter and leave: nobody before the last one.
func round(t *testing.T, all ...*barrier.Double) {
	t.Helper()
	leaveTogether(t, enterTogether(t, all...)...)
}

func enterTogether(t *testing.T, all ...*barrier.Double) (inside []*barrier.Inside) {
	t.Helper()
	var results []<-chan entered
	for i, d := range all {
		if pending(t, results...); i < len(all) {
			results = append(results, entering(t.Context(), d))
		}
	}
	for _, result := range results {
		inside = append(inside, enter(t, result))
	}
	return inside
}

func leaveTogether(t *testing.T, inside ...*barrier.Inside) {
	t.Helper()
	var results []<-chan error
	for _, in := range inside {
		pending(t, results...)
		results = append(results, leaving(t.Context(), in))
	}
	leave(t, results...)
}

// nothingLeft fails the test if a znode or a watch is left.
func nothingLeft(t *testing.T, w *bubble.World) {
	t.Helper()
	w.NothingLeft(path)
}

func wantErr(t *testing.T, err error, each ...error) {
	t.Helper()
	for _, want := range each {
		if !errors.Is(err, want) {
			t.Errorf("got error %v, want %v", err, want)
		}
	}
}
