package zkprom_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
	"github.com/zkrecipes/zkrecipes/recipes"
)

func TestNewRejectsBadInput(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for _, tt := range []struct {
		opt  zkprom.Option
		want string
	}{
		{nil, "zkprom: option 1: nil"},
		{zkprom.Registerer(nil), "zkprom: registerer: nil"},
		{zkprom.Namespace(""), `zkprom: namespace "": must begin a metric's name`},
		{zkprom.Namespace("my-app"), `zkprom: namespace "my-app": must begin a metric's name`},
		{zkprom.LockLabel(nil), "zkprom: lock label: no function"},
		{zkprom.LabelLimit(0), "zkprom: label limit 0: must be at least 1"},
	} {
		_, err := zkprom.New(zkprom.Registerer(registry), tt.opt)
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
	if families, err := registry.Gather(); err != nil || len(families) > 0 {
		t.Errorf("after failures: %d metrics, %v; want none", len(families), err)
	}
}

// Registering the same names twice is an error, and registers nothing. Another
// namespace, a registerer with another label, and the same one after Unregister
// are not.
func TestRegisterTwice(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	first, err := zkprom.New(zkprom.Registerer(registry))
	if err != nil {
		t.Fatal(err)
	}
	var already prometheus.AlreadyRegisteredError
	if _, err := zkprom.New(zkprom.Registerer(registry)); !errors.As(err, &already) {
		t.Errorf("registered twice: %v, want AlreadyRegisteredError", err)
	}
	if _, err := zkprom.New(zkprom.Registerer(registry), zkprom.Namespace("shop")); err != nil {
		t.Error(err)
	}
	first.Unregister()
	again, err := zkprom.New(zkprom.Registerer(registry))
	if err != nil {
		t.Fatal(err)
	}
	again.Observers().Opened()
	wantMetrics(t, registry, "shop_clients 0\nzkrecipes_clients 1", "shop_clients", "zkrecipes_clients")
	first.Observers().StateChanged(framework.StateChange{To: framework.Connected}) // of no consequence
}

// Each client can have separate metrics, with a label.
func TestALabelForEachClient(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for _, client := range []string{"orders", "stock"} {
		labeled := prometheus.WrapRegistererWith(prometheus.Labels{"client": client}, registry)
		metrics, err := zkprom.New(zkprom.Registerer(labeled))
		if err != nil {
			t.Fatal(err)
		}
		metrics.Observers().Opened()
	}
	wantMetrics(t, registry, `
		zkrecipes_clients{client="orders"} 1
		zkrecipes_clients{client="stock"} 1`[1:], "zkrecipes_clients")
}

func keyed(key string) recipes.Acquire {
	a := mutex("/keys/" + key)
	a.Label = "/keys"
	return a
}

// Without LockLabel nothing tells locks apart.
func TestNoLockLabel(t *testing.T) {
	registry, o := newMetrics(t)
	acquire(o, mutex("/a"), "1")
	acquire(o, keyed("1"), "2")
	wantMetrics(t, registry, `zkrecipes_held{mode="exclusive",recipe="mutex"} 2`, "zkrecipes_held")
}

// The function of LockLabel gets the label of the lock: of a Keyed its root.
func TestLockLabel(t *testing.T) {
	registry, o := newMetrics(t, zkprom.LockLabel(func(path string) string {
		if strings.HasPrefix(path, "/other") {
			return ""
		}
		return "of " + path
	}))
	acquire(o, mutex("/a"), "1")
	acquire(o, mutex("/other1"), "1")
	acquire(o, mutex("/other2"), "1")
	lost := mutex("/b")
	o.Lost(t.Context(), recipes.Loss{Acquire: lost, Grant: acquire(o, lost, "2"), Reason: recipes.LostDeleted})
	for i := range 3 {
		acquire(o, keyed(fmt.Sprint(i)), fmt.Sprint(i))
	}
	wantMetrics(t, registry, `
		zkrecipes_held{lock="",mode="exclusive",recipe="mutex"} 2
		zkrecipes_held{lock="of /a",mode="exclusive",recipe="mutex"} 1
		zkrecipes_held{lock="of /b",mode="exclusive",recipe="mutex"} 0
		zkrecipes_held{lock="of /keys",mode="exclusive",recipe="mutex"} 3`[1:], "zkrecipes_held")
	if n := counted(t, registry, "zkrecipes_hold_duration_seconds", "lock")["of /b"]; n != 1 {
		t.Errorf("counted %d leases of /b that have ended, want 1", n)
	}
}

// A function that panics, that answers differently each time, or that returns
// what a label cannot have, leaves the counts right.
func TestBadLockLabel(t *testing.T) {
	calls := 0
	ways := map[string]struct {
		fn    func(string) string
		label string
	}{
		"panics":         {func(string) string { panic("bug") }, "(panic)"},
		"not UTF-8":      {func(string) string { return "a\xff" }, "a\uFFFD"},
		"always another": {func(string) string { calls++; return fmt.Sprint(calls) }, "1"},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			registry, o := newMetrics(t, zkprom.LockLabel(way.fn))
			want := func(name string, n int) {
				t.Helper()
				wantMetrics(t, registry, fmt.Sprintf(`%s{lock="%s",mode="exclusive",recipe="mutex"} %d`, name, way.label, n), name)
			}
			a := mutex("/a")
			ctx := o.AcquireStart(t.Context(), a)
			want("zkrecipes_waiting", 1)
			g := recipes.Grant{Token: "1"}
			o.AcquireEnd(ctx, a, recipes.AcquireResult{Grant: g})
			want("zkrecipes_waiting", 0)
			want("zkrecipes_held", 1)
			o.Released(t.Context(), recipes.Release{Acquire: a, Grant: g})
			want("zkrecipes_held", 0)
		})
	}
}

// Labels beyond the limit are counted together, and leave the counts right.
func TestLabelLimit(t *testing.T) {
	registry, o := newMetrics(t, zkprom.LabelLimit(2), zkprom.LockLabel(func(path string) string { return path }))
	last := mutex("/3")
	for i := range 5 {
		acquire(o, mutex(fmt.Sprintf("/%d", i)), fmt.Sprint(i))
		election := recipes.Acquire{Recipe: "election", Mode: "exclusive", Path: fmt.Sprintf("/e%d", i), Label: fmt.Sprintf("/e%d", i)}
		o.AcquireEnd(o.AcquireStart(t.Context(), election), election, recipes.AcquireResult{Err: errors.New("fails")})
	}
	o.Released(t.Context(), recipes.Release{Acquire: last, Grant: recipes.Grant{How: recipes.GrantedByEnsemble, Token: "3", Znode: "/3/3"}})
	wantMetrics(t, registry, `
		zkrecipes_held{lock="(other)",mode="exclusive",recipe="election"} 0
		zkrecipes_held{lock="(other)",mode="exclusive",recipe="mutex"} 3
		zkrecipes_held{lock="/0",mode="exclusive",recipe="mutex"} 1
		zkrecipes_held{lock="/e0",mode="exclusive",recipe="election"} 0
		zkrecipes_leader{election="(other)"} 0
		zkrecipes_leader{election="/e0"} 0
		zkrecipes_leader{election="/e1"} 0`[1:], "zkrecipes_held", "zkrecipes_leader")
}
