package zkotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.43.0/dbconv"
)

// Bucket boundaries. Those of requests are what the semantic conventions
// advise. The others are zkprom's.
var (
	requestBuckets = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10}
	acquireBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	holdBuckets    = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}
	batchBuckets   = []float64{2, 4, 8, 16, 32, 64, 128, 256}
)

// instruments are the metrics.
type instruments struct {
	operations dbconv.ClientOperationDuration

	acquireDuration metric.Float64Histogram
	waiting         metric.Int64UpDownCounter
	held            metric.Int64UpDownCounter
	holdDuration    metric.Float64Histogram
	losses          metric.Int64Counter
	overruns        metric.Int64Counter
	revocations     metric.Int64Counter
	leading         metric.Int64UpDownCounter
	terms           metric.Int64Counter

	presenceTransitions metric.Int64Counter
	walkDuration        metric.Float64Histogram
	cacheChanges        metric.Int64Counter

	additions metric.Int64Counter
	conflicts metric.Int64Counter
	rounds    metric.Int64Counter

	retries      metric.Int64Counter
	batches      metric.Int64Histogram
	abandonments metric.Int64Counter
	moves        metric.Int64Counter
	guardians    metric.Int64Counter
	transitions  metric.Int64Counter
	clients      metric.Int64UpDownCounter
	connected    metric.Int64UpDownCounter
	drops        metric.Int64Counter
}

// newInstruments makes all instruments. If the provider refuses one, the global
// error handler gets the error, and that metric is missing.
func newInstruments(meter metric.Meter) instruments {
	m := maker{meter}
	operations, err := dbconv.NewClientOperationDuration(meter, metric.WithExplicitBucketBoundaries(requestBuckets...))
	handle(err)
	return instruments{
		operations: operations,

		acquireDuration: m.seconds("zkrecipes.acquire.duration", "How long calls of Acquire and TryAcquire took.", acquireBuckets),
		waiting:         m.level("zkrecipes.waiting", "{call}", "Calls of Acquire and TryAcquire that have not returned."),
		held:            m.level("zkrecipes.held", "{lease}", "Leases that are held."),
		holdDuration:    m.seconds("zkrecipes.hold.duration", "How long leases were held.", holdBuckets),
		losses:          m.count("zkrecipes.lost", "{lease}", "Leases that were lost."),
		overruns:        m.count("zkrecipes.overruns", "{overrun}", "Work that has ended after its lease's deadline."),
		revocations:     m.count("zkrecipes.revocations", "{revocation}", "Requests to holders to release."),
		leading:         m.level("zkrecipes.leader", "{term}", "Elections that this process leads: 1 or 0 for each."),
		terms:           m.count("zkrecipes.terms", "{term}", "Terms that this process has begun as the leader of the election."),

		presenceTransitions: m.count("zkrecipes.presence.transitions", "{transition}", "Changes of the states of presences."),
		walkDuration:        m.seconds("zkrecipes.cache.walk.duration", "How long caches took to read their whole tree.", acquireBuckets),
		cacheChanges:        m.count("zkrecipes.cache.changes", "{znode}", "Znodes that caches have added, changed or removed."),

		additions: m.count("zkrecipes.additions", "{call}", "Calls that add to a counter or set it: added, failed, or unsure, which may have been added."),
		conflicts: m.count("zkrecipes.addition.conflicts", "{write}", "Writes of a counter that were tried again, because another process was quicker."),
		rounds:    m.count("zkrecipes.barrier.rounds", "{call}", "Calls of Enter and Leave of a double barrier: entered, left, or failed."),

		retries:      m.count("zkrecipes.request.retries", "{retry}", "Operations that were tried again."),
		batches:      m.batch("zkrecipes.batch.operations", "{operation}", "Writes of contenders that have shared a request."),
		abandonments: m.count("zkrecipes.connections.abandoned", "{connection}", "Connections that the client gave up."),
		moves:        m.count("zkrecipes.server.moves", "{move}", "Moves to another server because the list has changed, and tries that have failed."),
		guardians:    m.count("zkrecipes.guardians.lost", "{guardian}", "Guardians that ended or hung: if the process dies, its sessions end by their timeout."),
		transitions:  m.count("zkrecipes.session.transitions", "{transition}", "Changes of the client's state."),
		clients:      m.level("zkrecipes.clients", "{client}", "Clients that are not closed."),
		connected:    m.level("zkrecipes.connected", "{client}", "Clients that are connected."),
		drops:        m.count("zkrecipes.events.dropped", "{event}", "Events that are missing in the other metrics."),
	}
}

// maker makes instruments.
type maker struct{ meter metric.Meter }

func (m maker) seconds(name, what string, buckets []float64) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what),
		metric.WithExplicitBucketBoundaries(buckets...))
	handle(err)
	return h
}

func (m maker) batch(name, unit, what string) metric.Int64Histogram {
	h, err := m.meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(what),
		metric.WithExplicitBucketBoundaries(batchBuckets...))
	handle(err)
	return h
}

func (m maker) level(name, unit, what string) metric.Int64UpDownCounter {
	c, err := m.meter.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
	handle(err)
	return c
}

func (m maker) count(name, unit, what string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
	handle(err)
	return c
}

func (m maker) age(name, what string) metric.Float64ObservableGauge { return m.gauge(name, "s", what) }

func (m maker) gauge(name, unit, what string) metric.Float64ObservableGauge {
	g, err := m.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
	handle(err)
	return g
}

func handle(err error) {
	if err != nil {
		otel.Handle(err)
	}
}
