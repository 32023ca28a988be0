package zkprom_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// inVirtualTime runs a test with a client in the namespace /app.
func inVirtualTime(t *testing.T, opts []zkprom.Option, run func(*testing.T, *framework.Client, *prometheus.Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		registry, metrics := newOption(t, opts...)
		ens := testutil.Start(t, testutil.InMemory())
		client, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial), metrics.Option())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		run(t, made(client.Namespace("app")), registry)
	})
}

// A client is counted from New to Close, also while no server answers. One that
// New has refused is not.
func TestClientsThatShareAnObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, metrics := newOption(t)
		want := func(clients, connected int) {
			t.Helper()
			synctest.Wait()
			wantMetrics(t, registry, fmt.Sprintf("zkrecipes_clients %d\nzkrecipes_connected %d", clients, connected),
				"zkrecipes_clients", "zkrecipes_connected")
		}
		ens := testutil.Start(t, testutil.InMemory())
		if _, err := framework.New("no server, at all", metrics.Option()); err == nil {
			t.Fatal("a client of no server")
		}
		want(0, 0)
		away := ens.ClientNet("away")
		away.Cut()
		first := made(framework.New(ens.Servers(), framework.WithDialer(away.Dial), metrics.Option()))
		want(1, 0)
		second := made(framework.New(ens.Servers(), framework.WithDialer(ens.Dial), metrics.Option()))
		if err := second.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(2, 1)
		for _, c := range []*framework.Client{first, second} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		want(0, 0)
	})
}

// The function of LockLabel gets the path at the ensemble, the root of a Keyed,
// and what recipes.WithLabel says. Each lock of an All is counted.
func TestLabelsOfRecipes(t *testing.T) {
	opts := []zkprom.Option{zkprom.LockLabel(func(path string) string { return path })}
	inVirtualTime(t, opts, func(t *testing.T, c *framework.Client, registry *prometheus.Registry) {
		keyed := made(locks.NewKeyed(c, "/orders"))
		for _, a := range []recipes.Acquirer{
			keyed.Key("1"), keyed.Key("2"),
			made(locks.NewMutex(c, "/named", recipes.WithLabel("reports"))),
			made(locks.All(made(locks.NewMutex(c, "/a")), made(locks.NewMutex(c, "/b")))),
			recipes.Within(made(semaphore.New(c, "/pool", 3)), time.Second),
		} {
			acquired(t, a)
		}
		wantMetrics(t, registry, `
			zkrecipes_held{lock="/app/a",mode="exclusive",recipe="mutex"} 1
			zkrecipes_held{lock="/app/b",mode="exclusive",recipe="mutex"} 1
			zkrecipes_held{lock="/app/orders",mode="exclusive",recipe="mutex"} 2
			zkrecipes_held{lock="/app/pool",mode="shared",recipe="semaphore"} 1
			zkrecipes_held{lock="reports",mode="exclusive",recipe="mutex"} 1`[1:], "zkrecipes_held")
	})
}

// Readers that share a znode are held for as long as each of them is, and a
// writer waits for as long as it does.
func TestAges(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, c *framework.Client, registry *prometheus.Registry) {
		lock := made(rwlock.New(c, "/lock"))
		first := acquired(t, lock.Reader())
		time.Sleep(time.Minute)
		second := acquired(t, lock.Reader())
		time.Sleep(time.Minute)
		wantAge(t, registry, "zkrecipes_oldest_hold_seconds", "read", 2*time.Minute)
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantAge(t, registry, "zkrecipes_oldest_hold_seconds", "read", time.Minute)
		go func() {
			if lease, err := lock.Writer().Acquire(context.Background()); err == nil {
				_ = lease.Release(context.Background())
			}
		}()
		time.Sleep(time.Minute)
		wantAge(t, registry, "zkrecipes_oldest_wait_seconds", "write", time.Minute)
		if err := second.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for _, name := range []string{"zkrecipes_oldest_hold_seconds", "zkrecipes_oldest_wait_seconds"} {
			wantAge(t, registry, name, "read", 0)
			wantAge(t, registry, name, "write", 0)
		}
	})
}

// wantAge compares a gauge of seconds, which the requests of the recipe may
// make a moment longer.
func wantAge(t *testing.T, g prometheus.Gatherer, name, recipe string, want time.Duration) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() != name || metric.GetLabel()[1].GetValue() != recipe {
				continue
			}
			if age := metric.GetGauge().GetValue(); age < want.Seconds() || age > want.Seconds()*1.01 {
				t.Errorf("%s of %s: %v, want %v", name, recipe, age, want.Seconds())
			}
			return
		}
	}
	t.Errorf("no %s of %s", name, recipe)
}

// A function of LockLabel that hangs keeps only its own caller waiting: neither
// other callers nor a scrape.
func TestSlowLockLabel(t *testing.T) {
	var free chan struct{} // made in the bubble
	opts := []zkprom.Option{zkprom.LockLabel(func(path string) string {
		if path == "/app/slow" {
			<-free
		}
		return path
	})}
	inVirtualTime(t, opts, func(t *testing.T, c *framework.Client, registry *prometheus.Registry) {
		free = make(chan struct{})
		slow, done := made(locks.NewMutex(c, "/slow")), make(chan error)
		go func() {
			_, err := slow.Acquire(context.Background())
			done <- err
		}()
		synctest.Wait()
		acquired(t, made(locks.NewMutex(c, "/quick")))
		const quick = `zkrecipes_held{lock="/app/quick",mode="exclusive",recipe="mutex"} 1` + "\n"
		wantMetrics(t, registry, quick, "zkrecipes_held")
		close(free)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		wantMetrics(t, registry, quick+`zkrecipes_held{lock="/app/slow",mode="exclusive",recipe="mutex"} 1`, "zkrecipes_held")
	})
}
