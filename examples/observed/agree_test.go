package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Both observers have the same names for how calls of Acquire end, so that a
// dashboard for one can be made into one for the other.
func TestOutcomesAgree(t *testing.T) {
	registry, reader := prometheus.NewRegistry(), metric.NewManualReader()
	prom, err := zkprom.New(zkprom.Registerer(registry))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []framework.Observer{
		prom.Observer(),
		zkotel.New(zkotel.MeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))),
	} {
		for _, err := range []error{
			nil, recipes.ErrBusy, recipes.ErrLayout, recipes.ErrDeadlock, recipes.ErrExhausted, recipes.ErrNotHeld,
			context.Canceled, context.DeadlineExceeded, framework.ErrClosed, framework.ErrSessionLost, framework.ErrUnproven,
			framework.ErrNoSession, zk.ErrNoAuth, zk.ErrAuthFailed, zk.ErrSessionExpired, zk.ErrNoServer, zk.ErrConnectionClosed,
			errors.New("refused"),
		} {
			call := framework.Acquire{Recipe: "mutex", Mode: "exclusive", Path: "/lock", Label: "/lock", Permits: 1}
			result := framework.AcquireResult{Err: err}
			if err == nil {
				result.Grant = framework.Grant{How: framework.GrantedByShare, Token: "1", Session: 1, Znode: "/lock/1"}
			}
			o.AcquireEnd(o.AcquireStart(t.Context(), call), call, result)
		}
	}
	ofProm, ofOtel := promOutcomes(t, registry), otelOutcomes(t, reader)
	if len(ofProm) < 10 || !maps.Equal(ofProm, ofOtel) {
		t.Errorf("how often each outcome was counted\nby zkprom: %v\nby zkotel: %v", ofProm, ofOtel)
	}
}

func promOutcomes(t *testing.T, from prometheus.Gatherer) map[string]uint64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]uint64{}
	for _, family := range families {
		if family.GetName() != "zkrecipes_acquire_duration_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "outcome" {
					outcomes[label.GetValue()] += m.GetHistogram().GetSampleCount()
				}
			}
		}
	}
	return outcomes
}

func otelOutcomes(t *testing.T, from metric.Reader) map[string]uint64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := from.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]uint64{}
	at := slices.IndexFunc(all.ScopeMetrics[0].Metrics, func(m metricdata.Metrics) bool { return m.Name == "zkrecipes.acquire.duration" })
	for _, p := range all.ScopeMetrics[0].Metrics[at].Data.(metricdata.Histogram[float64]).DataPoints {
		outcome, _ := p.Attributes.Value("zkrecipes.outcome")
		outcomes[outcome.AsString()] += p.Count
	}
	return outcomes
}
