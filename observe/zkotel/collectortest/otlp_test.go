package collectortest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// An application takes a lock twice, the second time until its session ends.
// What the collector has received over OTLP is what has happened: spans and
// their parents, attributes, the event of the loss, metrics and their units.
func TestCollector(t *testing.T) {
	col := startCollector(t)
	token, session := work(t, col)

	spans := col.kept.spans()
	if n := len(spans["acquire mutex"]); n != 2 {
		t.Fatalf("%d spans of the two acquires: %v", n, spans)
	}
	if len(spans["caller"]) != 1 {
		t.Fatalf("%d spans of the caller", len(spans["caller"]))
	}
	caller := spans["caller"][0]
	for _, span := range spans["acquire mutex"] {
		if span.ParentSpanID() != caller.SpanID() || span.TraceID() != caller.TraceID() || span.Kind() != ptrace.SpanKindInternal {
			t.Errorf("the acquire has the parent %v and the kind %v, want %v, internal", span.ParentSpanID(), span.Kind(), caller.SpanID())
		}
	}
	wantText(t, spans["acquire mutex"][0].Attributes(), "zkrecipes.token", token)
	wantText(t, spans["acquire mutex"][0].Attributes(), "zkrecipes.session", session)
	wantRequests(t, spans, spans["acquire mutex"])

	lost := lossOf(t, caller)
	if lost.Timestamp() > caller.EndTimestamp() || lost.Timestamp() < caller.StartTimestamp() {
		t.Errorf("lost at %v, want a time within the caller's span", lost.Timestamp())
	}
	wantText(t, lost.Attributes(), "zkrecipes.reason", "session")
	wantMetrics(t, col.kept)
}

// lossOf returns the only event of a loss on a span.
func lossOf(t *testing.T, span ptrace.Span) (found ptrace.SpanEvent) {
	t.Helper()
	n := 0
	for _, event := range span.Events().All() {
		if event.Name() == "lease.lost" {
			found = event
			n++
		}
	}
	if n != 1 {
		t.Fatalf("%d events of the loss, want 1", n)
	}
	return found
}

// work does what the test is about, and returns the token of the first lease
// and the session's id.
func work(t *testing.T, col *collector) (token, session string) {
	t.Helper()
	traces, metrics := providers(t, col)
	ens := testutil.Start(t)
	client, err := framework.New(ens.Servers(), framework.WithSessionTimeout(40*time.Second), zkotel.New(
		zkotel.TracerProvider(traces), zkotel.MeterProvider(metrics), zkotel.RequestSpans(),
	))
	if err != nil {
		t.Fatal(err)
	}
	mutex, err := locks.NewMutex(client, "/locks/report")
	if err != nil {
		t.Fatal(err)
	}
	ctx, caller := traces.Tracer("application").Start(t.Context(), "caller")
	err = recipes.Do(ctx, mutex, func(_ context.Context, l *recipes.Lease) error {
		token = l.Token().String()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = recipes.Do(ctx, mutex, func(ctx context.Context, _ *recipes.Lease) error {
		s, err := client.Session()
		if err != nil {
			return err
		}
		session = fmt.Sprintf("0x%x", uint64(s.ID()))
		if err := ens.ExpireSession(s.ID()); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, recipes.ErrNotHeld) {
		t.Fatalf("Do under a lease that is lost: %v", err)
	}
	caller.End()
	if err := client.Close(); err != nil { // the observer has heard of everything
		t.Fatal(err)
	}
	if err := errors.Join(traces.ForceFlush(t.Context()), metrics.ForceFlush(t.Context())); err != nil {
		t.Fatal(err)
	}
	return token, session
}

// providers returns providers that export spans over gRPC and metrics over
// HTTP.
func providers(t *testing.T, col *collector) (*trace.TracerProvider, *metric.MeterProvider) {
	t.Helper()
	spans, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint("unix://"+col.grpc), otlptracegrpc.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", col.http)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	values, err := otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpoint("collector"), otlpmetrichttp.WithInsecure(),
		otlpmetrichttp.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	service := resource.NewSchemaless(attribute.String("service.name", "report"))
	traces := trace.NewTracerProvider(trace.WithBatcher(spans), trace.WithResource(service))
	metrics := metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(values)), metric.WithResource(service))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(traces.Shutdown(ctx), metrics.Shutdown(ctx)); err != nil {
			t.Error(err)
		}
	})
	return traces, metrics
}

// wantRequests checks the spans of the creates of the lock's znodes.
func wantRequests(t *testing.T, spans map[string][]ptrace.Span, acquires []ptrace.Span) {
	t.Helper()
	parents := map[pcommon.SpanID]bool{}
	for _, span := range acquires {
		parents[span.SpanID()] = true
	}
	below := 0
	for _, all := range spans {
		for _, span := range all {
			if span.Kind() != ptrace.SpanKindClient {
				continue
			}
			wantText(t, span.Attributes(), "db.system.name", "zookeeper")
			if span.StartTimestamp() >= span.EndTimestamp() {
				t.Errorf("%s ends before it begins", span.Name())
			}
			if parents[span.ParentSpanID()] {
				below++
			}
		}
	}
	if below < 4 { // a create and a list each
		t.Errorf("%d requests below the acquires, want 4 or more", below)
	}
}

func wantText(t *testing.T, all pcommon.Map, key, want string) {
	t.Helper()
	got, ok := all.Get(key)
	if !ok || got.AsString() != want {
		t.Errorf("%s is %q, want %q", key, got.AsString(), want)
	}
}

func wantMetrics(t *testing.T, kept *kept) {
	t.Helper()
	metrics, scopes, services := kept.byName()
	if !scopes["github.com/zkrecipes/zkrecipes/observe/zkotel"] || !services["report"] {
		t.Errorf("metrics of the scopes %v and the services %v", scopes, services)
	}
	for name, want := range map[string]struct {
		unit  string
		count uint64 // of a histogram; at least
	}{
		"db.client.operation.duration": {"s", 4},
		"zkrecipes.acquire.duration":   {"s", 2},
		"zkrecipes.hold.duration":      {"s", 2},
	} {
		m, ok := metrics[name]
		if !ok || m.Type() != pmetric.MetricTypeHistogram || m.Unit() != want.unit {
			t.Errorf("%s is a %v in %q, want a histogram in %q", name, m.Type(), m.Unit(), want.unit)
			continue
		}
		count := uint64(0)
		for _, p := range m.Histogram().DataPoints().All() {
			count += p.Count()
		}
		if count < want.count {
			t.Errorf("%s has %d values, want %d", name, count, want.count)
		}
	}
	for _, name := range []string{"zkrecipes.oldest_wait", "zkrecipes.oldest_hold"} {
		m, ok := metrics[name]
		if !ok || m.Type() != pmetric.MetricTypeGauge || m.Unit() != "s" {
			t.Errorf("%s is a %v in %q, want a gauge in seconds", name, m.Type(), m.Unit())
			continue
		}
		for _, p := range m.Gauge().DataPoints().All() {
			if p.DoubleValue() != 0 {
				t.Errorf("%s is %v at the end", name, p.DoubleValue())
			}
		}
	}
	for name, want := range map[string]struct {
		value    int64
		monotone bool
	}{
		"zkrecipes.waiting":   {0, false},
		"zkrecipes.held":      {0, false},
		"zkrecipes.connected": {0, false},
		"zkrecipes.clients":   {0, false},
		"zkrecipes.lost":      {1, true},
	} {
		m, ok := metrics[name]
		if !ok || m.Type() != pmetric.MetricTypeSum || m.Sum().IsMonotonic() != want.monotone {
			t.Errorf("%s is a %v", name, m.Type())
			continue
		}
		sum := int64(0)
		for _, p := range m.Sum().DataPoints().All() {
			sum += p.IntValue()
		}
		if sum != want.value {
			t.Errorf("%s is %d, want %d", name, sum, want.value)
		}
	}
}
