package zkotel_test

import (
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// What is kept of a label lasts as long as the program. So each of the four has
// a bounded number of values, also if everything that had one is closed.
func TestLabelsAreBounded(t *testing.T) {
	tel := newTelemetry(t)
	reader := metric.NewManualReader()
	tel.metrics, tel.reader = metric.NewMeterProvider(metric.WithReader(reader), metric.WithCardinalityLimit(0)), reader
	o := zkotel.NewObservers(zkotel.TracerProvider(tel.traces), zkotel.MeterProvider(tel.metrics), zkotel.LockLabel(func(path string) string { return path }))
	const limit, others = 1000, 5
	for i := range uint64(limit + others) {
		label := fmt.Sprint(i)
		o.Presences.StateChanged(presence.StateChange{ID: i, Label: label, To: "pending"})
		o.Caches.StateChanged(cache.StateChange{Cache: cache.Info{ID: i, Label: label}, To: "syncing"})
		if i%2 == 0 {
			o.Presences.StateChanged(presence.StateChange{ID: i, Label: label, From: "pending", To: "closed"})
			o.Caches.StateChanged(cache.StateChange{Cache: cache.Info{ID: i, Label: label}, From: "syncing", To: "closed"})
		}
		a := recipes.Acquire{Recipe: "election", Label: label}
		o.AcquireEnd(o.AcquireStart(t.Context(), a), a, recipes.AcquireResult{Err: t.Context().Err()})
	}
	for name, key := range map[string]attribute.Key{
		"zkrecipes.presences": "zkrecipes.presence", "zkrecipes.caches": "zkrecipes.cache", "zkrecipes.leading": "zkrecipes.election", "zkrecipes.oldest_wait": "zkrecipes.label",
	} {
		values := map[string]float64{}
		for _, p := range tel.collected(name).(metricdata.Gauge[float64]).DataPoints {
			value, _ := p.Attributes.Value(key)
			values[value.AsString()] += p.Value
		}
		if len(values) != limit+1 {
			t.Errorf("%s has %d values of %s", name, len(values), key)
		}
		if key == "zkrecipes.presence" && values["(other)"] != others/2 {
			t.Errorf("%v others are counted", values["(other)"])
		}
	}
}
