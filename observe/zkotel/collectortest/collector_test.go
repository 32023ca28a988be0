package collectortest

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

// collector is an OpenTelemetry Collector: it receives OTLP over gRPC and over
// HTTP, and its pipelines end in an exporter that keeps what it gets. It
// listens at sockets in a directory of the test, since a free port may be
// another's a moment later.
type collector struct {
	grpc, http string // the sockets that it listens at
	kept       *kept
}

const config = `yaml:
receivers:
  otlp:
    protocols:
      grpc: {endpoint: %q, transport: unix}
      http: {endpoint: %q, transport: unix}
exporters:
  keep:
service:
  telemetry:
    metrics: {level: none}
    logs: {level: error}
  pipelines:
    traces: {receivers: [otlp], exporters: [keep]}
    metrics: {receivers: [otlp], exporters: [keep]}
`

// startCollector returns a collector that receives, until the test ends.
func startCollector(t *testing.T) *collector {
	t.Helper()
	dir := t.TempDir()
	c := &collector{filepath.Join(dir, "grpc"), filepath.Join(dir, "http"), &kept{}}
	col, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo:               component.NewDefaultBuildInfo(),
		Factories:               func() (otelcol.Factories, error) { return factories(c.kept) },
		DisableGracefulShutdown: true,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs:              []string{fmt.Sprintf(config, c.grpc, c.http)},
			ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- col.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		col.Shutdown()
		if err := <-ended; err != nil {
			t.Errorf("the collector has ended: %v", err)
		}
	})
	for col.GetState() != otelcol.StateRunning {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the collector has not started: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return c
}

func factories(k *kept) (f otelcol.Factories, err error) {
	f.Telemetry = otelconftelemetry.NewFactory()
	if f.Receivers, err = otelcol.MakeFactoryMap(otlpreceiver.NewFactory()); err != nil {
		return f, err
	}
	f.Exporters, err = otelcol.MakeFactoryMap(k.factory())
	return f, err
}

// kept is what the collector has received.
type kept struct {
	mu      sync.Mutex
	traces  []ptrace.Traces
	metrics []pmetric.Metrics
}

// factory makes the exporter that keeps what it gets.
func (k *kept) factory() exporter.Factory {
	defaults := func() component.Config { return &struct{}{} }
	return exporter.NewFactory(component.MustNewType("keep"), defaults,
		exporter.WithTraces(func(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) {
			consume, err := consumer.NewTraces(func(_ context.Context, traces ptrace.Traces) error {
				k.mu.Lock()
				defer k.mu.Unlock()
				k.traces = append(k.traces, traces)
				return nil
			})
			return keepTraces{consume, component.StartFunc(nil), component.ShutdownFunc(nil)}, err
		}, component.StabilityLevelStable),
		exporter.WithMetrics(func(context.Context, exporter.Settings, component.Config) (exporter.Metrics, error) {
			consume, err := consumer.NewMetrics(func(_ context.Context, metrics pmetric.Metrics) error {
				k.mu.Lock()
				defer k.mu.Unlock()
				k.metrics = append(k.metrics, metrics)
				return nil
			})
			return keepMetrics{consume, component.StartFunc(nil), component.ShutdownFunc(nil)}, err
		}, component.StabilityLevelStable),
	)
}

type keepTraces struct {
	consumer.Traces
	component.StartFunc
	component.ShutdownFunc
}

type keepMetrics struct {
	consumer.Metrics
	component.StartFunc
	component.ShutdownFunc
}

// spans returns all spans, by name.
func (k *kept) spans() map[string][]ptrace.Span {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[string][]ptrace.Span{}
	for _, traces := range k.traces {
		for _, resource := range traces.ResourceSpans().All() {
			for _, scope := range resource.ScopeSpans().All() {
				for _, span := range scope.Spans().All() {
					all[span.Name()] = append(all[span.Name()], span)
				}
			}
		}
	}
	return all
}

// byName returns the last value of each metric, by name, and the names of the
// scopes and services that they are of.
func (k *kept) byName() (metrics map[string]pmetric.Metric, scopes, services map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	metrics, scopes, services = map[string]pmetric.Metric{}, map[string]bool{}, map[string]bool{}
	for _, each := range k.metrics {
		for _, resource := range each.ResourceMetrics().All() {
			if service, ok := resource.Resource().Attributes().Get("service.name"); ok {
				services[service.AsString()] = true
			}
			for _, scope := range resource.ScopeMetrics().All() {
				scopes[scope.Scope().Name()] = true
				for _, m := range scope.Metrics().All() {
					metrics[m.Name()] = m
				}
			}
		}
	}
	return metrics, scopes, services
}
