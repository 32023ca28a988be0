package zkotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/tables"
	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// The tables of the README are what is emitted.
func TestReadme(t *testing.T) {
	tel := newTelemetry(t)
	emitAll(tel)
	spans, events := spanRows(tel)
	tables.Made(t, "README.md", "spans", "| span | kind | attributes |\n|---|---|---|\n"+spans)
	tables.Made(t, "README.md", "events", "| event on the caller's span | attributes |\n|---|---|\n"+events)
	tables.Made(t, "README.md", "metrics", "| metric | kind | unit | attributes |\n|---|---|---|---|\n"+metricRows(tel))
}

// emitAll calls all functions of an observer, with all that they can be told.
func emitAll(tel *telemetry) {
	o := zkotel.NewObservers(zkotel.TracerProvider(tel.traces), zkotel.MeterProvider(tel.metrics),
		zkotel.RequestSpans(), zkotel.LockLabel(func(path string) string { return path }))
	ctx, caller := tel.begin(context.Background(), "caller")
	call := recipes.Acquire{Recipe: "election", Mode: "exclusive", Path: "/lead", Label: "/lead", Permits: 1}
	grant := recipes.Grant{How: recipes.GrantedByEnsemble, Token: "1", Session: 1, Znode: "/lead/1"}

	acquiring := o.AcquireStart(ctx, call)
	for _, err := range []error{nil, errors.New("refused")} {
		request := framework.Request{Op: "multi", Path: "/lead/1", Operations: 2, Session: 1, Server: "zk1:2181", Began: time.Now()}
		code := "NOAUTH"
		if err == nil {
			code = "OK"
		}
		o.RequestEnd(acquiring, request, framework.RequestResult{Took: time.Millisecond, Code: code, Err: err})
	}
	o.Retried(acquiring, framework.Retry{Op: "create", Path: "/lead/1", Err: framework.ErrNoSession})
	o.AcquireEnd(acquiring, call, recipes.AcquireResult{Grant: grant, Waited: time.Second})
	o.AcquireEnd(o.AcquireStart(ctx, call), call, recipes.AcquireResult{Err: recipes.ErrLayout})
	o.Released(ctx, recipes.Release{Acquire: call, Grant: grant, Held: time.Second})
	loss := recipes.Loss{Acquire: call, Grant: grant, At: time.Now(), Reason: recipes.LostSession, Err: framework.ErrSessionLost}
	o.Lost(ctx, loss)
	o.LostReleased(ctx, loss)
	o.Overran(ctx, recipes.Overrun{Acquire: call, Grant: grant, By: time.Second})
	o.Revoked(ctx, recipes.Revocation{Acquire: call, Grant: grant})
	o.Presences.StateChanged(presence.StateChange{ID: 1, Path: "/a", Label: "/a", From: "pending", To: "standing", Session: 1, Timeout: time.Second})
	info := cache.Info{ID: 1, Path: "/a", Label: "/a"}
	o.Caches.StateChanged(cache.StateChange{Cache: info, To: "syncing"})
	for _, err := range []error{nil, errors.New("lost")} {
		o.Caches.Read(cache.Read{Cache: info, Reason: cache.ReadFirst, Began: time.Now(), Err: err})
	}
	o.Counters.Added(counter.Addition{Counter: counter.Info{Path: "/n", Label: "/n"}, Calls: 2, Failed: 1, Err: zk.ErrNoNode})
	o.Counters.Conflicted(counter.Conflict{Counter: counter.Info{Path: "/n", Label: "/n"}, InARow: 1})
	o.Barriers.Entered(barrier.Entry{Barrier: barrier.Info{Path: "/b", Label: "/b", Members: 2}})
	o.Batched(framework.Batch{Operations: 2})
	o.EphemeralsChanged(framework.EphemeralsChange{Client: 1, Percent: 50})
	o.Opened()
	o.StateChanged(framework.StateChange{From: framework.Connecting, To: framework.Connected})
	o.Abandoned(framework.Abandonment{Reason: framework.AbandonedSilent})
	o.Moved(framework.Move{From: "a", To: "b"})
	o.GuardianLost(errors.New("the daemon has ended"))
	o.Dropped(framework.Drop{Events: 1})
	caller.End()
}

// keys are the names of attributes.
type keys map[string]bool

func (k keys) add(all ...attribute.KeyValue) {
	for _, a := range all {
		k[string(a.Key)] = true
	}
}

// line returns the row of a table.
func (k keys) line(cells ...string) string {
	names := slices.Sorted(maps.Keys(k))
	for i := range names {
		names[i] = "`" + names[i] + "`"
	}
	cells[0] = "`" + cells[0] + "`"
	return "| " + strings.Join(append(cells, strings.Join(names, " ")), " | ") + " |\n"
}

// sorted returns the rows in one text.
func sorted(rows []string) string {
	slices.Sort(rows)
	return strings.Join(rows, "")
}

func spanRows(tel *telemetry) (ofSpans, ofEvents string) {
	var spanRows, eventRows []string
	spans, kinds, events := map[string]keys{}, map[string]string{}, map[string]keys{}
	for _, s := range tel.spans.GetSpans() {
		for _, e := range s.Events {
			events[e.Name] = keys{}
			events[e.Name].add(e.Attributes...)
		}
		name := regexp.MustCompile("^acquire .*").ReplaceAllString(s.Name, "acquire <recipe>")
		name = regexp.MustCompile("^multi zk1:2181$").ReplaceAllString(name, "<operation> <server>")
		if name == "caller" {
			continue
		}
		if spans[name] == nil {
			spans[name] = keys{}
		}
		spans[name].add(s.Attributes...)
		kinds[name] = s.SpanKind.String()
	}
	for name, attributes := range spans {
		spanRows = append(spanRows, attributes.line(name, kinds[name]))
	}
	for name, attributes := range events {
		eventRows = append(eventRows, attributes.line(name))
	}
	return sorted(spanRows), sorted(eventRows)
}

func metricRows(tel *telemetry) string {
	tel.t.Helper()
	var rows []string
	var all metricdata.ResourceMetrics
	if err := tel.reader.Collect(context.Background(), &all); err != nil {
		tel.t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			kind, attributes := describeData(m.Data)
			rows = append(rows, attributes.line(m.Name, kind, m.Unit))
			if m.Description == "" {
				tel.t.Errorf("%s has no description", m.Name)
			}
		}
	}
	return sorted(rows)
}

// describeData returns the kind of a metric, and the names of its attributes.
func describeData(data metricdata.Aggregation) (kind string, attributes keys) {
	attributes = keys{}
	switch data := data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			attributes.add(p.Attributes.ToSlice()...)
		}
		if data.IsMonotonic {
			return "counter", attributes
		}
		return "up-down counter", attributes
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			attributes.add(p.Attributes.ToSlice()...)
		}
		return "histogram", attributes
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			attributes.add(p.Attributes.ToSlice()...)
		}
		return "gauge", attributes
	case metricdata.Histogram[int64]:
		return "histogram", attributes
	}
	return fmt.Sprintf("%T", data), attributes
}

// The buckets of requests are those that the semantic conventions advise.
func TestRequestBuckets(t *testing.T) {
	tel := newTelemetry(t)
	emitAll(tel)
	requests, ok := tel.collected("db.client.operation.duration").(metricdata.Histogram[float64])
	if !ok {
		t.Fatal("no metric of requests")
	}
	if want := []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10}; !slices.Equal(requests.DataPoints[0].Bounds, want) {
		t.Errorf("bounds %v, want %v", requests.DataPoints[0].Bounds, want)
	}
}
