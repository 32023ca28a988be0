package zkotel_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The spans of a request of an application that takes a lock. The application
// has its providers as usual. Here they keep the spans for the example.
func Example() {
	ens, err := testutil.New()
	check(err)
	defer ens.Close()
	spans := tracetest.NewInMemoryExporter()
	traces := sdk.NewTracerProvider(sdk.WithSyncer(spans))

	client, err := framework.New(ens.Servers(), zkotel.New(zkotel.TracerProvider(traces)))
	check(err)
	defer client.Close()
	mutex, err := locks.NewMutex(client, "/locks/report")
	check(err)

	tracer := traces.Tracer("application")
	ctx, request := tracer.Start(context.Background(), "POST /report")
	err = recipes.Do(ctx, mutex, func(ctx context.Context, _ *recipes.Lease) error {
		_, work := tracer.Start(ctx, "write report")
		defer work.End()
		return nil
	})
	check(err)
	request.End()

	for _, span := range spans.GetSpans() {
		fmt.Printf("%s, below the request: %t\n", span.Name, span.Parent.SpanID() == request.SpanContext().SpanID())
	}
	// Output:
	// acquire mutex, below the request: true
	// write report, below the request: true
	// POST /report, below the request: false
}

// Two clients of one process, told apart by an attribute.
func ExampleAttributes() {
	ens, err := testutil.New()
	check(err)
	defer ens.Close()
	reader := metric.NewManualReader()
	metrics := metric.NewMeterProvider(metric.WithReader(reader))
	for _, tenant := range []string{"blue", "green"} {
		client, err := framework.New(ens.Servers(), zkotel.New(
			zkotel.MeterProvider(metrics),
			zkotel.Attributes(attribute.String("tenant", tenant)),
		))
		check(err)
		defer client.Close()
		mutex, err := locks.NewMutex(client, "/locks/"+tenant)
		check(err)
		_, err = mutex.Acquire(context.Background())
		check(err)
	}

	var all metricdata.ResourceMetrics
	check(reader.Collect(context.Background(), &all))
	for _, m := range all.ScopeMetrics[0].Metrics {
		if held, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "zkrecipes.held" {
			for _, point := range held.DataPoints {
				tenant, _ := point.Attributes.Value("tenant")
				fmt.Println(tenant.AsString(), "holds", point.Value)
			}
		}
	}
	// Unordered output:
	// blue holds 1
	// green holds 1
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
