package zkotel_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// The gauges have the oldest wait and the oldest lease of all clients, also if
// each has an observer of its own.
func TestAges(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		want := func(mode string, wait, hold float64) {
			t.Helper()
			of := attribute.String("zkrecipes.mode", mode)
			for name, want := range map[string]float64{"zkrecipes.oldest_wait": wait, "zkrecipes.oldest_hold": hold} {
				if got := w.age(name, of); got < want || got > want+0.1 {
					t.Errorf("%s, %s: %vs, want %vs", name, mode, got, want)
				}
			}
		}
		lock := func(client string) *rwlock.RWLock {
			l, err := rwlock.New(w.connect(client, w.observer()), "/app/lock")
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		first, err := lock("a").Reader().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		second, err := lock("b").Reader().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want("shared", 0, 120)
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		want("shared", 0, 60)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for _, client := range []string{"c", "d"} {
			writer := lock(client).Writer()
			go func() {
				_, err := writer.Acquire(ctx)
				ended <- err
			}()
			time.Sleep(time.Minute)
		}
		want("exclusive", 120, 0)
		cancel()
		for range 2 {
			if err := await(t, "a writer", ended); !errors.Is(err, context.Canceled) {
				t.Errorf("a canceled writer: %v", err)
			}
		}
		want("exclusive", 0, 0)
		if err := second.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		want("shared", 0, 0)
	})
}

// A candidate is shown before it leads, and each term is counted.
func TestTerms(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		of := attribute.String("zkrecipes.election", "/app/leader")
		want := func(leaders, terms int64, seconds float64) {
			t.Helper()
			if n := w.sum("zkrecipes.leader", of); n != leaders {
				t.Errorf("%d leaders, want %d", n, leaders)
			}
			if n := w.sum("zkrecipes.terms", of); n != terms {
				t.Errorf("%d terms, want %d", n, terms)
			}
			if age := w.age("zkrecipes.leading", of); age < seconds || age > seconds+0.1 {
				t.Errorf("leads for %vs, want %vs", age, seconds)
			}
		}
		other, err := leader.New(w.connect("other"), "/app/leader") // is not observed
		if err != nil {
			t.Fatal(err)
		}
		stranger, err := other.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e, err := leader.New(w.connect("a", w.observer()), "/app/leader")
		if err != nil {
			t.Fatal(err)
		}
		elected := make(chan *recipes.Lease, 1)
		campaign := func() {
			if lease, err := e.Acquire(context.Background()); err == nil {
				elected <- lease
			}
		}
		go campaign()
		time.Sleep(time.Minute)
		want(0, 0, 0)
		for _, name := range []string{"zkrecipes.leader", "zkrecipes.terms"} {
			if w.metric(name) == nil {
				t.Errorf("a candidate has no %s", name)
			}
		}
		if err := stranger.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		term := await(t, "the term", elected)
		time.Sleep(time.Minute)
		want(1, 1, 60)
		if err := term.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(0, 1, 0)
		go campaign()
		await(t, "the next term", elected)
		want(1, 2, 0)
	})
}

// A client is counted from New to Close, also while no server answers.
func TestClients(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		want := func(clients, connected int64) {
			t.Helper()
			if n := w.sum("zkrecipes.clients"); n != clients {
				t.Errorf("%d clients, want %d", n, clients)
			}
			if n := w.sum("zkrecipes.connected"); n != connected {
				t.Errorf("%d are connected, want %d", n, connected)
			}
		}
		shared := w.observer()
		w.ens.ClientNet("away").Cut()
		away, a := w.connect("away", shared), w.connect("a", shared)
		if err := a.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(2, 1)
		_, _ = away.Close(), a.Close()
		want(0, 0)
	})
}

// odd is a provider that cannot be a key of a map.
type odd struct {
	metric.MeterProvider
	_ []int
}

// Any provider will do, and leases of which nothing tells one from the other
// are each measured.
func TestOddProviders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := newTelemetry(t)
		a := recipes.Acquire{Recipe: "read", Mode: "shared", Path: "/a", Label: "/a", Permits: 1}
		for _, provider := range []metric.MeterProvider{odd{MeterProvider: tel.metrics}, noop.NewMeterProvider()} {
			o := zkotel.NewObservers(zkotel.TracerProvider(tel.traces), zkotel.MeterProvider(provider))
			r := recipes.AcquireResult{Grant: recipes.Grant{Token: "1"}}
			for range 3 {
				o.AcquireEnd(o.AcquireStart(t.Context(), a), a, r)
			}
			time.Sleep(time.Second)
			for held := 3; held >= 0; held-- {
				if age := tel.age("zkrecipes.oldest_hold"); provider != noop.NewMeterProvider() && age != min(1, float64(held)) {
					t.Errorf("the oldest of %d: %vs", held, age)
				}
				o.Released(t.Context(), recipes.Release{Acquire: a, Grant: r.Grant}) // once too often
			}
		}
	})
}
