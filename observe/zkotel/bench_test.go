package zkotel_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// BenchmarkAcquire is an Acquire and its Release of a mutex that lingers, so
// without a request: what the observer adds is most visible there.
func BenchmarkAcquire(b *testing.B) {
	traces := sdk.NewTracerProvider(sdk.WithBatcher(tracetest.NewNoopExporter()))
	metrics := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
	for _, bb := range []struct {
		name string
		opts []framework.Option
	}{
		{"unobserved", nil},
		{"metrics", []framework.Option{zkotel.New(
			zkotel.TracerProvider(tracenoop.NewTracerProvider()), zkotel.MeterProvider(metrics))}},
		{"spans", []framework.Option{zkotel.New(
			zkotel.TracerProvider(traces), zkotel.MeterProvider(noop.NewMeterProvider()))}},
		{"both", []framework.Option{zkotel.New(
			zkotel.TracerProvider(traces), zkotel.MeterProvider(metrics))}},
	} {
		b.Run(bb.name, func(b *testing.B) { benchmarkAcquire(b, bb.opts) })
	}
}

func benchmarkAcquire(b *testing.B, opts []framework.Option) {
	ens := testutil.Start(b)
	c, err := framework.New(ens.Servers(), opts...)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	m, err := locks.NewMutex(c, "/lock", recipes.WithLinger(time.Minute))
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		lease, err := m.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
