package zkprom_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

var update = flag.Bool("update", false, "write what tests compare with: the README's table, the transcript")

// everyMetric returns a registry in which each metric has a value.
func everyMetric(t *testing.T, opts ...zkprom.Option) *prometheus.Registry {
	t.Helper()
	registry, o := newMetrics(t, opts...)
	a := mutex("/a")
	o.Lost(t.Context(), recipes.Loss{Acquire: a, Grant: acquire(o, a, "1"), Reason: recipes.LostDeleted})
	acquire(o, recipes.Acquire{Recipe: "election", Mode: "exclusive", Path: "/leader", Label: "/leader", Permits: 1}, "1")
	o.RequestEnd(t.Context(), framework.Request{Op: "list"}, framework.RequestResult{Took: time.Millisecond, Code: "OK"})
	o.Retried(t.Context(), framework.Retry{Op: "create"})
	o.Batched(framework.Batch{Operations: 5})
	o.Presences.StateChanged(presence.StateChange{ID: 1, Label: "/services/a", To: "pending", Timeout: time.Second})
	o.Caches.StateChanged(cache.StateChange{Cache: cache.Info{ID: 1, Label: "/config"}, To: "syncing"})
	o.Counters.Conflicted(counter.Conflict{Counter: counter.Info{Label: "/orders"}, InARow: 1})
	o.Barriers.Entered(barrier.Entry{Barrier: barrier.Info{Label: "/start"}})
	return registry
}

// names are the metrics that users rely on.
var names = []string{
	"acquire_duration_seconds", "addition_conflicts_total", "additions_total", "barrier_rounds_total", "batch_operations", "cache_changes_total", "cache_memory_bytes", "cache_stale_seconds",
	"cache_walk_duration_seconds", "cache_znodes", "cache_zxid", "caches", "clients", "connected", "connections_abandoned_total",
	"ephemeral_paths_ratio", "events_dropped_total", "guardians_lost_total",
	"held", "hold_duration_seconds", "leader", "leading_seconds", "lost_total", "oldest_hold_seconds", "oldest_wait_seconds", "overruns_total",
	"presence_missing_timeouts", "presence_transitions_total", "presences", "request_duration_seconds", "request_retries_total", "revocations_total", "server_moves_total", "session_transitions_total", "terms_total", "waiting",
}

func TestNoMetricIsMissing(t *testing.T) {
	families, err := everyMetric(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, family := range families {
		found = append(found, strings.TrimPrefix(family.GetName(), "zkrecipes_"))
	}
	if !slices.Equal(found, names) {
		t.Errorf("metrics %q, want %q", found, names)
	}
}

// Each histogram is both classic and native.
func TestHistogramsAreNativeToo(t *testing.T) {
	families, err := everyMetric(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	histograms := 0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			h := metric.GetHistogram()
			if h == nil {
				continue
			}
			histograms++
			if native := h.GetZeroThreshold() > 0; len(h.GetBucket()) == 0 || !native {
				t.Errorf("%s: %d classic buckets, native: %t", family.GetName(), len(h.GetBucket()), native)
			}
		}
	}
	if histograms == 0 {
		t.Error("no histograms")
	}
}

// promtool finds nothing wrong with names, types and help texts.
func TestPromtoolAcceptsTheMetrics(t *testing.T) {
	promtool := program(t, "promtool")
	for name, opts := range map[string][]zkprom.Option{
		"default":   nil,
		"LockLabel": {zkprom.LockLabel(func(path string) string { return path })},
		"Namespace": {zkprom.Namespace("shop_zookeeper")},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(promtool, "check", "metrics")
			cmd.Stdin = strings.NewReader(exposition(t, everyMetric(t, opts...)))
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func exposition(t *testing.T, g prometheus.Gatherer) string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

// program returns where a program is. Without it the test is skipped, except in
// CI.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") == "" {
		t.Skipf("no %s: Debian's packages prometheus and prometheus-alertmanager have it", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The README's program compiles: the examples have each of its lines.
func TestProgramOfTheREADME(t *testing.T) {
	_, rest, _ := strings.Cut(readFile(t, "README.md"), "```go\n")
	program, _, ok := strings.Cut(rest, "```")
	if !ok || !strings.Contains(strings.ReplaceAll(readFile(t, "example_test.go"), "\n\t", "\n"), program) {
		t.Errorf("example_test.go does not have\n%s", program)
	}
}

// The README's table of metrics is that of the code.
func TestTableOfTheREADME(t *testing.T) {
	families, err := everyMetric(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("metric | type | labels | meaning\n---|---|---|---\n")
	for _, family := range families {
		var labels []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+label.GetName()+"`")
		}
		fmt.Fprintf(&table, "`%s` | %s | %s | %s\n", family.GetName(), strings.ToLower(family.GetType().String()),
			strings.Join(labels, " "), family.GetHelp())
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- metrics -->\n", "<!-- end of metrics -->"
	before, rest, ok := strings.Cut(string(readme), begin)
	found, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("the README has no place for the table")
	}
	if found == table.String() {
		return
	}
	if !*update {
		t.Errorf("the README's table is not that of the code; run the test with -update. Want:\n%s", table.String())
		return
	}
	if err := os.WriteFile("README.md", []byte(before+begin+table.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
