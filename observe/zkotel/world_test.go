package zkotel_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// telemetry is what an application has: providers whose spans and metrics a
// test can read.
type telemetry struct {
	t       *testing.T
	traces  *sdk.TracerProvider
	metrics *metric.MeterProvider
	spans   *tracetest.InMemoryExporter
	reader  *metric.ManualReader
}

func newTelemetry(t *testing.T, opts ...sdk.TracerProviderOption) *telemetry {
	spans, reader := tracetest.NewInMemoryExporter(), metric.NewManualReader()
	return &telemetry{
		t:       t,
		traces:  sdk.NewTracerProvider(append([]sdk.TracerProviderOption{sdk.WithSyncer(spans)}, opts...)...),
		metrics: metric.NewMeterProvider(metric.WithReader(reader)),
		spans:   spans,
		reader:  reader,
	}
}

// observer returns the option for a client that is observed.
func (tel *telemetry) observer(opts ...zkotel.Option) framework.Option {
	return zkotel.New(append([]zkotel.Option{
		zkotel.TracerProvider(tel.traces), zkotel.MeterProvider(tel.metrics),
	}, opts...)...)
}

// begin begins a span of the application.
func (tel *telemetry) begin(ctx context.Context, name string) (context.Context, trace.Span) {
	return tel.traces.Tracer("application").Start(ctx, name)
}

// ended returns the spans with this name that have ended.
func (tel *telemetry) ended(name string) []tracetest.SpanStub {
	synctest.Wait()
	return slices.DeleteFunc(tel.spans.GetSpans(), func(s tracetest.SpanStub) bool { return s.Name != name })
}

// span returns the only span with this name.
func (tel *telemetry) span(name string) tracetest.SpanStub {
	tel.t.Helper()
	all := tel.ended(name)
	if len(all) != 1 {
		tel.t.Fatalf("%d spans %q, want 1; there are %v", len(all), name, tel.names())
	}
	return all[0]
}

func (tel *telemetry) names() (names []string) {
	for _, s := range tel.spans.GetSpans() {
		names = append(names, s.Name)
	}
	return names
}

// metric returns the data of a metric, nil if it has none, when all events are
// told.
func (tel *telemetry) metric(name string) metricdata.Aggregation {
	tel.t.Helper()
	synctest.Wait()
	return tel.collected(name)
}

// collected is metric outside of a bubble.
func (tel *telemetry) collected(name string) metricdata.Aggregation {
	tel.t.Helper()
	var all metricdata.ResourceMetrics
	if err := tel.reader.Collect(context.Background(), &all); err != nil {
		tel.t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				return m.Data
			}
		}
	}
	return nil
}

// sum returns the sum of a counter over the points that have these attributes.
func (tel *telemetry) sum(name string, with ...attribute.KeyValue) (sum int64) {
	tel.t.Helper()
	if data, ok := tel.metric(name).(metricdata.Sum[int64]); ok {
		for _, p := range data.DataPoints {
			if has(p.Attributes, with) {
				sum += p.Value
			}
		}
	}
	return sum
}

// count returns how many values a histogram has of the points that have these
// attributes.
func (tel *telemetry) count(name string, with ...attribute.KeyValue) (count uint64) {
	tel.t.Helper()
	switch data := tel.metric(name).(type) {
	case metricdata.Histogram[float64]:
		return counted(data, with)
	case metricdata.Histogram[int64]:
		return counted(data, with)
	}
	return 0
}

// age returns the value of a gauge, in seconds; -1 if it has none with these
// attributes.
func (tel *telemetry) age(name string, with ...attribute.KeyValue) float64 {
	tel.t.Helper()
	found := -1.0
	if data, ok := tel.metric(name).(metricdata.Gauge[float64]); ok {
		for _, p := range data.DataPoints {
			if has(p.Attributes, with) {
				found = max(found, p.Value)
			}
		}
	}
	return found
}

func counted[N int64 | float64](data metricdata.Histogram[N], with []attribute.KeyValue) (count uint64) {
	for _, p := range data.DataPoints {
		if has(p.Attributes, with) {
			count += p.Count
		}
	}
	return count
}

func has(set attribute.Set, all []attribute.KeyValue) bool {
	return !slices.ContainsFunc(all, func(want attribute.KeyValue) bool {
		got, ok := set.Value(want.Key)
		return !ok || got != want.Value
	})
}

// value returns an attribute, or the empty value.
func value(all []attribute.KeyValue, key attribute.Key) attribute.Value {
	set := attribute.NewSet(all...)
	v, _ := set.Value(key)
	return v
}

// wantChild checks that a span is a child of another one.
func wantChild(t *testing.T, child tracetest.SpanStub, parent trace.SpanContext) {
	t.Helper()
	if child.Parent.SpanID() != parent.SpanID() || child.SpanContext.TraceID() != parent.TraceID() {
		t.Errorf("span %q has the parent %v in the trace %v, want %v in %v",
			child.Name, child.Parent.SpanID(), child.SpanContext.TraceID(), parent.SpanID(), parent.TraceID())
	}
}

// world is an ensemble in virtual time and an application beside it.
type world struct {
	*telemetry
	ens *testutil.Embedded
}

// run plays a scenario in virtual time.
func run(t *testing.T, scenario func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithLogger(func(string, ...any) {}))
		scenario(t, &world{newTelemetry(t), ens})
	})
}

// connect returns a client, whose network is the one of its name.
func (w *world) connect(name string, opts ...framework.Option) *framework.Client {
	w.t.Helper()
	c, err := framework.New(w.ens.Servers(), append([]framework.Option{framework.WithDialer(w.ens.ClientNet(name).Dial)}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (w *world) mutex(c *framework.Client, opts ...locks.Option) *locks.Mutex {
	w.t.Helper()
	return w.mutexAt(c, "/app/lock", opts...)
}

func (w *world) mutexAt(c *framework.Client, path string, opts ...locks.Option) *locks.Mutex {
	w.t.Helper()
	m, err := locks.NewMutex(c, path, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// expire ends the session of a client.
func (w *world) expire(c *framework.Client) {
	w.t.Helper()
	s, err := c.Session()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.ens.ExpireSession(s.ID()); err != nil {
		w.t.Fatal(err)
	}
}

// bound is how long a test waits in virtual time for what must happen.
const bound = 10 * time.Minute

// await returns what a channel gives.
func await[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(bound):
		t.Fatalf("not in %v: %s", bound, what)
		panic("unreachable")
	}
}
