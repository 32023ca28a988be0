package zkprom_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
)

// newMetrics returns metrics in a new registry, and their observers.
func newMetrics(t testing.TB, opts ...zkprom.Option) (*prometheus.Registry, zkprom.Observers) {
	t.Helper()
	registry, metrics := newOption(t, opts...)
	return registry, metrics.Observers()
}

func newOption(t testing.TB, opts ...zkprom.Option) (*prometheus.Registry, *zkprom.Metrics) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	metrics, err := zkprom.New(append([]zkprom.Option{zkprom.Registerer(registry)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return registry, metrics
}

// wantMetrics compares some metrics with their text format, without its
// comments.
func wantMetrics(t *testing.T, g prometheus.Gatherer, want string, names ...string) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, family := range families {
		text.WriteString("# TYPE " + family.GetName() + " " + strings.ToLower(family.GetType().String()) + "\n")
		text.WriteString("# HELP " + family.GetName() + " " + family.GetHelp() + "\n")
	}
	var wanted strings.Builder
	for line := range strings.Lines(text.String()) {
		for _, name := range names {
			if strings.Contains(line, " "+name+" ") {
				wanted.WriteString(line)
			}
		}
	}
	for line := range strings.Lines(want) {
		wanted.WriteString(strings.TrimSpace(line) + "\n")
	}
	if err := promtest.GatherAndCompare(g, strings.NewReader(wanted.String()), names...); err != nil {
		t.Error(err)
	}
}

func mutex(path string) recipes.Acquire {
	return recipes.Acquire{Recipe: "mutex", Mode: "exclusive", Path: path, Label: path, Permits: 1}
}

// acquire tells o of a call that was granted, and returns the grant.
func acquire(o zkprom.Observers, a recipes.Acquire, token string) recipes.Grant {
	g := recipes.Grant{How: recipes.GrantedByEnsemble, Token: token, Znode: a.Path + "/" + token}
	o.AcquireEnd(o.AcquireStart(context.Background(), a), a, recipes.AcquireResult{Grant: g})
	return g
}

// Those who wait and what is held are counted exactly, and the oldest of each
// has its age.
func TestWaitingAndHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, o := newMetrics(t)
		want := func(waiting, held, oldestWait, oldestHold int) {
			t.Helper()
			const labels = `{mode="exclusive",recipe="mutex"} %d` + "\n"
			wantMetrics(t, registry, fmt.Sprintf("zkrecipes_waiting"+labels+"zkrecipes_held"+labels+
				"zkrecipes_oldest_wait_seconds"+labels+"zkrecipes_oldest_hold_seconds"+labels, waiting, held, oldestWait, oldestHold),
				"zkrecipes_waiting", "zkrecipes_held", "zkrecipes_oldest_wait_seconds", "zkrecipes_oldest_hold_seconds")
		}
		a, b, c := mutex("/a"), mutex("/b"), mutex("/c")
		ctx := t.Context()
		waitA := o.AcquireStart(ctx, a)
		time.Sleep(time.Second)
		waitB := o.AcquireStart(ctx, b)
		time.Sleep(time.Second)
		want(2, 0, 2, 0)

		grantA, grantB := recipes.Grant{Token: "1"}, recipes.Grant{Token: "2"}
		o.AcquireEnd(waitA, a, recipes.AcquireResult{Grant: grantA})
		time.Sleep(time.Second)
		want(1, 1, 2, 1)
		o.AcquireEnd(waitB, b, recipes.AcquireResult{Grant: grantB})
		waitC := o.AcquireStart(ctx, c)
		time.Sleep(time.Second)
		want(1, 2, 1, 2)
		o.AcquireEnd(waitC, c, recipes.AcquireResult{Err: recipes.ErrBusy})
		want(0, 2, 0, 2)

		o.Released(ctx, recipes.Release{Acquire: a, Grant: grantA, Held: 2 * time.Second})
		time.Sleep(time.Second)
		want(0, 1, 0, 2)
		o.Lost(ctx, recipes.Loss{Acquire: b, Grant: grantB, Reason: recipes.LostSession})
		want(0, 0, 0, 0)
	})
}

// Leases of one znode, granted at one instant to callers that share it, are
// each counted.
func TestSharesOfOneGrant(t *testing.T) {
	registry, o := newMetrics(t)
	read := recipes.Acquire{Recipe: "read", Mode: "shared", Path: "/a", Label: "/a", Permits: 1}
	var grants []recipes.Grant
	for range 3 {
		grants = append(grants, acquire(o, read, "1"))
	}
	for held := 3; held >= 0; held-- {
		wantMetrics(t, registry, fmt.Sprintf(`zkrecipes_held{mode="shared",recipe="read"} %d`, held), "zkrecipes_held")
		if held > 0 {
			o.Released(t.Context(), recipes.Release{Acquire: read, Grant: grants[held-1]})
		}
	}
}

// Many goroutines at once, and two observers of one client, are counted right.
func TestConcurrently(t *testing.T) {
	registry, o := newMetrics(t)
	other, o2 := newMetrics(t)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			a := mutex(fmt.Sprintf("/%d", i%7))
			for j := range 20 {
				g := recipes.Grant{Token: fmt.Sprint(i, j)}
				ctx := o2.AcquireStart(o.AcquireStart(t.Context(), a), a)
				o2.AcquireEnd(ctx, a, recipes.AcquireResult{Grant: g})
				o.AcquireEnd(ctx, a, recipes.AcquireResult{Grant: g})
				if i > 0 || j > 0 { // one stays
					o.Released(ctx, recipes.Release{Acquire: a, Grant: g})
					o2.Lost(ctx, recipes.Loss{Acquire: a, Grant: g, Reason: recipes.LostClosed})
				}
			}
		})
	}
	all.Wait()
	for _, r := range []*prometheus.Registry{registry, other} {
		wantMetrics(t, r, `
			zkrecipes_held{mode="exclusive",recipe="mutex"} 1
			zkrecipes_waiting{mode="exclusive",recipe="mutex"} 0`[1:], "zkrecipes_held", "zkrecipes_waiting")
	}
}

// A loss is counted by its reason. All reasons are there from the first acquire
// on.
func TestLosses(t *testing.T) {
	registry, o := newMetrics(t)
	a := mutex("/a")
	for i, reason := range []recipes.LossReason{recipes.LostDeleted, recipes.LostDeleted, recipes.LostUnproven} {
		o.Lost(t.Context(), recipes.Loss{Acquire: a, Grant: acquire(o, a, fmt.Sprint(i)), Reason: reason})
	}
	o.Overran(t.Context(), recipes.Overrun{Acquire: a})
	o.Revoked(t.Context(), recipes.Revocation{Acquire: a})
	wantMetrics(t, registry, `
		zkrecipes_lost_total{mode="exclusive",reason="closed",recipe="mutex"} 0
		zkrecipes_lost_total{mode="exclusive",reason="connection",recipe="mutex"} 0
		zkrecipes_lost_total{mode="exclusive",reason="deleted",recipe="mutex"} 2
		zkrecipes_lost_total{mode="exclusive",reason="max_hold",recipe="mutex"} 0
		zkrecipes_lost_total{mode="exclusive",reason="other",recipe="mutex"} 0
		zkrecipes_lost_total{mode="exclusive",reason="session",recipe="mutex"} 0
		zkrecipes_lost_total{mode="exclusive",reason="unproven",recipe="mutex"} 1
		zkrecipes_overruns_total{mode="exclusive",recipe="mutex"} 1
		zkrecipes_revocations_total{mode="exclusive",recipe="mutex"} 1`[1:],
		"zkrecipes_lost_total", "zkrecipes_overruns_total", "zkrecipes_revocations_total")
}

// The outcome says how a call was granted, or why it was not.
func TestOutcomes(t *testing.T) {
	registry, o := newMetrics(t)
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(framework.ErrClosed)
	results := map[string]recipes.AcquireResult{
		"busy":         {Err: fmt.Errorf("acquire /a: %w", recipes.ErrBusy)},
		"layout":       {Err: recipes.ErrLayout},
		"deadlock":     {Err: recipes.ErrDeadlock},
		"exhausted":    {Err: recipes.ErrExhausted},
		"timeout":      {Err: fmt.Errorf("%w: %w", context.DeadlineExceeded, zk.ErrNoServer)},
		"canceled":     {Err: fmt.Errorf("%w: %w", canceled.Err(), context.Cause(canceled))},
		"closed":       {Err: framework.ErrClosed},
		"no_auth":      {Err: zk.ErrNoAuth},
		"session_lost": {Err: framework.ErrUnproven},
		"unreachable":  {Err: zk.ErrNoServer},
		"error":        {Err: errors.New("other")},
	}
	for _, how := range []recipes.How{
		recipes.GrantedByEnsemble, recipes.GrantedByHandoff, recipes.GrantedByLinger, recipes.GrantedByShare, recipes.GrantedByReentry,
	} {
		results[string(how)] = recipes.AcquireResult{Grant: recipes.Grant{How: how}}
	}
	a := mutex("/a")
	for _, result := range results {
		o.AcquireEnd(o.AcquireStart(t.Context(), a), a, result)
	}
	counts := counted(t, registry, "zkrecipes_acquire_duration_seconds", "outcome")
	if len(counts) != len(results) {
		t.Errorf("outcomes %v, want those of %v", counts, results)
	}
	for outcome := range results {
		if counts[outcome] != 1 {
			t.Errorf("outcome %s: counted %d times, want 1", outcome, counts[outcome])
		}
	}
}

// counted returns how many observations a histogram has by one label.
func counted(t *testing.T, g prometheus.Gatherer, name, label string) map[string]uint64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]uint64)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, l := range metric.GetLabel() {
				if l.GetName() == label {
					counts[l.GetValue()] += metric.GetHistogram().GetSampleCount()
				}
			}
		}
	}
	return counts
}

// The leader's metric is 0 for a candidate, 1 during its term, and 0 after it.
// The time of the term is that of the oldest, and each term is counted.
func TestLeader(t *testing.T) {
	synctest.Test(t, testLeader)
}

func testLeader(t *testing.T) {
	registry, o := newMetrics(t)
	want := func(leads, seconds, terms int) {
		t.Helper()
		wantMetrics(t, registry, fmt.Sprintf(`
			zkrecipes_leader{election="nightly"} %d
			zkrecipes_leading_seconds{election="nightly"} %d
			zkrecipes_terms_total{election="nightly"} %d`[1:], leads, seconds, terms),
			"zkrecipes_leader", "zkrecipes_leading_seconds", "zkrecipes_terms_total")
	}
	a := recipes.Acquire{Recipe: "election", Mode: "exclusive", Path: "/leader", Label: "nightly", Permits: 1}
	ctx := o.AcquireStart(t.Context(), a)
	want(0, 0, 0)
	first := recipes.Grant{Token: "1"}
	o.AcquireEnd(ctx, a, recipes.AcquireResult{Grant: first})
	time.Sleep(time.Minute)
	want(1, 60, 1)
	// The next term may begin before the loss of the last one is told.
	second := acquire(o, a, "2")
	time.Sleep(time.Second)
	want(1, 61, 2)
	o.Lost(t.Context(), recipes.Loss{Acquire: a, Grant: first})
	want(1, 1, 2)
	o.Released(t.Context(), recipes.Release{Acquire: a, Grant: second})
	want(0, 0, 2)
}

// What happens to connections and requests is counted.
func TestClients(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics, err := zkprom.New(zkprom.Registerer(registry))
	if err != nil {
		t.Fatal(err)
	}
	o := metrics.Observers()
	second := o // several clients may share it
	change := func(o zkprom.Observers, states ...framework.State) {
		for i := range len(states) - 1 {
			o.StateChanged(framework.StateChange{From: states[i], To: states[i+1]})
		}
	}
	want := func(clients, connected int) {
		t.Helper()
		wantMetrics(t, registry, fmt.Sprintf("zkrecipes_clients %d\nzkrecipes_connected %d", clients, connected),
			"zkrecipes_clients", "zkrecipes_connected")
	}
	want(0, 0)
	o.Opened()
	second.Opened()
	want(2, 0)
	change(o, framework.Connecting, framework.Connected)
	want(2, 1)
	change(second, framework.Connecting, framework.Connected, framework.Suspended, framework.Connected, framework.Suspended,
		framework.Lost, framework.Connected)
	want(2, 2)
	change(second, framework.Connected, framework.Suspended, framework.Closed)
	want(1, 1)
	change(o, framework.Connected, framework.Closed)
	want(0, 0)

	o.Abandoned(framework.Abandonment{Reason: framework.AbandonedUnproven})
	o.Moved(framework.Move{From: "a", To: "b"})
	for range 2 {
		o.Moved(framework.Move{From: "a", Err: errors.New("b lags")})
	}
	o.GuardianLost(errors.New("the daemon has ended"))
	o.Dropped(framework.Drop{Events: 7})
	for client, percents := range [][]int{{40, 33}, {90, 0}, {12}} {
		for _, percent := range percents {
			second.EphemeralsChanged(framework.EphemeralsChange{Client: uint64(client), Percent: percent})
		}
	}
	o.Retried(t.Context(), framework.Retry{Op: "create"})
	o.Batched(framework.Batch{Operations: 5})
	o.RequestEnd(t.Context(), framework.Request{Op: "list"}, framework.RequestResult{Took: time.Millisecond, Code: "OK"})
	wantMetrics(t, registry, `
		zkrecipes_session_transitions_total{to="closed"} 2
		zkrecipes_session_transitions_total{to="connected"} 4
		zkrecipes_session_transitions_total{to="lost"} 1
		zkrecipes_session_transitions_total{to="suspended"} 3
		zkrecipes_connections_abandoned_total{reason="silent"} 0
		zkrecipes_connections_abandoned_total{reason="stuck"} 0
		zkrecipes_connections_abandoned_total{reason="unproven"} 1
		zkrecipes_ephemeral_paths_ratio 0.33
		zkrecipes_events_dropped_total 7
		zkrecipes_guardians_lost_total 1
		zkrecipes_server_moves_total{result="failed"} 2
		zkrecipes_server_moves_total{result="moved"} 1
		zkrecipes_request_retries_total{op="create"} 1`[1:], "zkrecipes_session_transitions_total",
		"zkrecipes_connections_abandoned_total", "zkrecipes_ephemeral_paths_ratio", "zkrecipes_events_dropped_total", "zkrecipes_guardians_lost_total",
		"zkrecipes_server_moves_total", "zkrecipes_request_retries_total")
	if n := counted(t, registry, "zkrecipes_request_duration_seconds", "op")["list"]; n != 1 {
		t.Errorf("counted %d requests, want 1", n)
	}
}

// Times are counted in seconds, batches in operations.
func TestUnits(t *testing.T) {
	registry, o := newMetrics(t)
	a, g := mutex("/a"), recipes.Grant{Token: "1"}
	o.AcquireEnd(o.AcquireStart(t.Context(), a), a, recipes.AcquireResult{Grant: g, Waited: 1500 * time.Millisecond})
	o.Released(t.Context(), recipes.Release{Acquire: a, Grant: g, Held: 2500 * time.Millisecond})
	o.RequestEnd(t.Context(), framework.Request{Op: "list"}, framework.RequestResult{Took: 3500 * time.Millisecond, Code: "OK"})
	o.Batched(framework.Batch{Operations: 5})
	o.Caches.StateChanged(cache.StateChange{To: "syncing"})
	o.Caches.Read(cache.Read{Reason: cache.ReadFirst, Took: 4500 * time.Millisecond})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := make(map[string]float64)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if h := metric.GetHistogram(); h != nil {
				sums[strings.TrimPrefix(family.GetName(), "zkrecipes_")] += h.GetSampleSum()
			}
		}
	}
	want := map[string]float64{
		"acquire_duration_seconds": 1.5, "hold_duration_seconds": 2.5, "request_duration_seconds": 3.5, "batch_operations": 5,
		"cache_walk_duration_seconds": 4.5,
	}
	if !maps.Equal(sums, want) {
		t.Errorf("sums %v, want %v", sums, want)
	}
}
