package zkotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Two observers of one client, with providers of their own: the spans of each
// are those that it would make alone. None is a child of the other's.
func TestTwoObservers(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		second := newTelemetry(t)
		c := w.connect("a", w.observer(zkotel.RequestSpans()), second.observer(zkotel.RequestSpans()))
		ctx, caller := w.begin(t.Context(), "caller")
		lease, err := w.mutex(c).Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, tel := range []*telemetry{w.telemetry, second} {
			acquire := tel.span("acquire mutex")
			wantChild(t, acquire, caller.SpanContext())
			requests := tel.clients()
			if len(requests) == 0 {
				t.Error("no spans of requests")
			}
			for _, span := range requests {
				wantChild(t, span, acquire.SpanContext)
			}
			if n := tel.count("zkrecipes.acquire.duration"); n != 1 {
				t.Errorf("%d durations, want 1", n)
			}
			if n := tel.sum("zkrecipes.held"); n != 0 {
				t.Errorf("%d are held, want 0", n)
			}
		}
	})
}

// The observer goes along with others: their contexts reach it, and its spans
// reach them.
func TestBesideAnotherObserver(t *testing.T) {
	type key struct{}
	run(t, func(t *testing.T, w *world) {
		var seen trace.SpanContext
		before := recipes.Observer{AcquireStart: func(ctx context.Context, _ recipes.Acquire) context.Context {
			return context.WithValue(ctx, key{}, "before")
		}}
		after := recipes.Observer{AcquireEnd: func(ctx context.Context, _ recipes.Acquire, _ recipes.AcquireResult) {
			seen = trace.SpanContextFromContext(ctx)
			if ctx.Value(key{}) != "before" {
				t.Error("the value of the observer before is gone")
			}
		}}
		c := w.connect("a", recipes.WithObserver(before), w.observer(), recipes.WithObserver(after))
		if _, err := w.mutex(c).Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if span := w.span("acquire mutex"); seen.SpanID() != span.SpanContext.SpanID() {
			t.Errorf("the observer after sees the span %v, want %v", seen.SpanID(), span.SpanContext.SpanID())
		}
	})
}

// A caller whose trace is not sampled gets no spans, and no events. All is
// measured.
func TestNotSampled(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		out := newTelemetry(t, sdk.WithSampler(sdk.ParentBased(sdk.NeverSample())))
		c := w.connect("a", out.observer(zkotel.RequestSpans()))
		ctx, caller := out.begin(t.Context(), "caller")
		_ = recipes.Do(ctx, w.mutex(c), func(ctx context.Context, _ *recipes.Lease) error {
			w.expire(c)
			<-ctx.Done()
			return nil
		})
		caller.End()
		time.Sleep(time.Minute)
		if spans := out.spans.GetSpans(); len(spans) > 0 {
			t.Errorf("spans of a trace that is not sampled: %v", out.names())
		}
		if granted, lost := out.count("zkrecipes.acquire.duration"), out.sum("zkrecipes.lost"); granted != 1 || lost != 1 {
			t.Errorf("%d grants and %d losses, want 1 each", granted, lost)
		}
		if out.count("db.client.operation.duration") == 0 {
			t.Error("no requests were measured")
		}
	})
}

// Attributes are on all spans and metrics, and the label is where it was asked
// for.
func TestAttributes(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		tenant := attribute.String("tenant", "blue")
		c := w.connect("a", w.observer(
			zkotel.Attributes(tenant),
			zkotel.RequestSpans(),
			zkotel.LockLabel(func(path string) string { return "of " + path }),
		))
		ctx, caller := w.begin(t.Context(), "caller")
		lease, err := w.mutex(c).Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(ctx); err != nil {
			t.Fatal(err)
		}
		for _, span := range append(w.clients(), w.span("acquire mutex")) {
			if got := value(span.Attributes, tenant.Key); got != tenant.Value {
				t.Errorf("%s: tenant %v", span.Name, got.AsString())
			}
		}
		label := attribute.String("zkrecipes.label", "of /app/lock")
		if n := w.count("zkrecipes.hold.duration", tenant, label); n != 1 {
			t.Errorf("%d hold durations with tenant and label, want 1", n)
		}
		if n := w.sum("zkrecipes.connected", tenant); n != 1 {
			t.Errorf("%d connected clients with the tenant, want 1", n)
		}
		if n := w.count("db.client.operation.duration", tenant); n == 0 {
			t.Error("no request with the tenant")
		}
		caller.End()
	})
}

// Without options the global providers are used.
func TestGlobalProviders(t *testing.T) {
	traces, metrics := otel.GetTracerProvider(), otel.GetMeterProvider()
	t.Cleanup(func() {
		otel.SetTracerProvider(traces)
		otel.SetMeterProvider(metrics)
	})
	tel := newTelemetry(t)
	otel.SetTracerProvider(tel.traces)
	otel.SetMeterProvider(tel.metrics)
	o := zkotel.NewObservers(nil, zkotel.TracerProvider(nil), zkotel.MeterProvider(nil))

	call := recipes.Acquire{Recipe: "mutex", Mode: "exclusive", Path: "/app/lock", Label: "/app/lock", Permits: 1}
	ctx := o.AcquireStart(t.Context(), call)
	o.AcquireEnd(ctx, call, recipes.AcquireResult{Grant: recipes.Grant{How: recipes.GrantedByEnsemble}})
	if names := tel.names(); len(names) != 1 || names[0] != "acquire mutex" {
		t.Errorf("spans: %v", names)
	}
	var all metricdata.ResourceMetrics
	if err := tel.reader.Collect(t.Context(), &all); err != nil || len(all.ScopeMetrics) != 1 {
		t.Errorf("metrics: %v, %v", all.ScopeMetrics, err)
	}
}

// A label function that panics harms no count.
func TestALabelThatPanics(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.connect("a", w.observer(zkotel.LockLabel(func(string) string { panic("label") })))
		if _, err := w.mutex(c).Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := w.sum("zkrecipes.held", attribute.String("zkrecipes.label", "(panic)")); n != 1 {
			t.Errorf("%d are held, want 1", n)
		}
		w.span("acquire mutex")
	})
}

// A text that is not UTF-8 can be exported. It made the export of all spans and
// metrics fail that were to be sent together with it.
func TestTextsThatAreNotUTF8(t *testing.T) {
	tel := newTelemetry(t)
	o := zkotel.NewObservers(zkotel.TracerProvider(tel.traces), zkotel.MeterProvider(tel.metrics), zkotel.RequestSpans(),
		zkotel.LockLabel(func(path string) string { return path }))
	call := recipes.Acquire{Recipe: "election", Mode: "exclusive", Path: "/app/lock", Label: "\xff", Permits: 1}
	bad := errors.New("\xff")
	for _, err := range []error{nil, bad} {
		ctx := o.AcquireStart(t.Context(), call)
		o.RequestEnd(ctx, framework.Request{Op: "create", Path: "/app/lock"}, framework.RequestResult{Code: "OTHER", Err: bad})
		o.AcquireEnd(ctx, call, recipes.AcquireResult{Err: err})
	}
	ctx, caller := tel.begin(t.Context(), "caller")
	o.Lost(ctx, recipes.Loss{Acquire: call, Err: bad})
	o.LostReleased(ctx, recipes.Loss{Acquire: call, Err: bad})
	caller.End()
	var all metricdata.ResourceMetrics
	if err := tel.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	spans, text := tel.spans.GetSpans(), fmt.Sprint(all)
	for _, span := range spans {
		text += span.Status.Description
		for _, event := range span.Events {
			span.Attributes = append(span.Attributes, event.Attributes...)
		}
		for _, attribute := range span.Attributes {
			text += attribute.Value.AsString()
		}
	}
	if n := strings.Count(text, "\uFFFD"); len(spans) != 5 || !utf8.ValidString(text) || n < 8 {
		t.Errorf("%d spans, with %d texts replaced: %q", len(spans), n, text)
	}
}

// panics is a span processor that panics.
type panics struct{ start, end bool }

func (p panics) OnStart(context.Context, sdk.ReadWriteSpan) {
	if p.start {
		panic("start")
	}
}

func (p panics) OnEnd(sdk.ReadOnlySpan) {
	if p.end {
		panic("end")
	}
}

func (panics) Shutdown(context.Context) error   { return nil }
func (panics) ForceFlush(context.Context) error { return nil }

// A span processor that panics harms no caller and no count.
func TestAProcessorThatPanics(t *testing.T) {
	for name, processor := range map[string]panics{"start": {start: true}, "end": {end: true}} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				tel := newTelemetry(t, sdk.WithSpanProcessor(processor))
				m := w.mutex(w.connect("a", tel.observer(zkotel.RequestSpans())))
				err := recipes.Do(t.Context(), m, func(context.Context, *recipes.Lease) error {
					if waiting, held := tel.sum("zkrecipes.waiting"), tel.sum("zkrecipes.held"); waiting != 0 || held != 1 {
						t.Errorf("%d wait and %d are held, want 0 and 1", waiting, held)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if held, durations := tel.sum("zkrecipes.held"), tel.count("zkrecipes.acquire.duration"); held != 0 || durations != 1 {
					t.Errorf("%d are held and %d calls have ended, want 0 and 1", held, durations)
				}
			})
		})
	}
}
