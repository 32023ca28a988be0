package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
)

// telemetry is where the service's spans and metrics go.
type telemetry struct {
	registry *prometheus.Registry
	prom     *zkprom.Metrics
	traces   *sdk.TracerProvider
	metrics  *metric.MeterProvider
}

// newTelemetry exports over OTLP to OTEL_EXPORTER_OTLP_ENDPOINT. If that is not
// set, spans are logged, and metrics are for Prometheus alone.
func newTelemetry(ctx context.Context, log *slog.Logger) (*telemetry, error) {
	registry := prometheus.NewRegistry()
	prom, err := zkprom.New(zkprom.Registerer(registry))
	if err != nil {
		return nil, err
	}
	// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win: the last detector does.
	service, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "observed")), resource.WithFromEnv())
	if err != nil {
		return nil, err
	}
	tel := &telemetry{registry: registry, prom: prom}
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		tel.traces = sdk.NewTracerProvider(sdk.WithSyncer(spanLog{log}), sdk.WithResource(service))
		tel.metrics = metric.NewMeterProvider()
		return tel, nil
	}
	spans, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	values, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, err
	}
	tel.traces = sdk.NewTracerProvider(sdk.WithBatcher(spans), sdk.WithResource(service))
	tel.metrics = metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(values)), metric.WithResource(service))
	return tel, nil
}

// options are those by which a client is observed: by both, and by the log.
func (t *telemetry) options(log *slog.Logger) []framework.Option {
	return []framework.Option{
		t.prom.Option(),
		zkotel.New(zkotel.TracerProvider(t.traces), zkotel.MeterProvider(t.metrics), zkotel.RequestSpans()),
		framework.WithSlog(log),
	}
}

// close exports what is left.
func (t *telemetry) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx))
}

// spanLog writes spans into the log.
type spanLog struct{ log *slog.Logger }

func (l spanLog) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	for _, span := range spans {
		args := []any{"span", span.Name(), "took", span.EndTime().Sub(span.StartTime()), "trace", span.SpanContext().TraceID()}
		for _, event := range span.Events() {
			args = append(args, "event", event.Name)
		}
		l.log.InfoContext(ctx, "span", args...)
	}
	return nil
}

func (l spanLog) Shutdown(context.Context) error { return nil }
