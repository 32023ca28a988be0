package zkprom

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// Metrics counts for all clients that have its option. New returns
// one. It is safe for concurrent use.
type Metrics struct {
	config    config
	clients   *clientMetrics
	locks     *lockMetrics
	znodes    *znodeMetrics
	shared    *sharedMetrics
	collector prometheus.Collector
}

// New registers the metrics and returns them. It fails if metrics with these
// names are already registered, for example by another Metrics: see Registerer
// and Namespace.
func New(opts ...Option) (*Metrics, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, fmt.Errorf("zkprom: %w", err)
	}
	m := &Metrics{config: cfg, clients: newClientMetrics(cfg.namespace), locks: newLockMetrics(cfg), znodes: newZnodeMetrics(cfg), shared: newSharedMetrics(cfg)}
	m.collector = append(append(m.clients.all(), m.shared.all()...), m.locks, m.znodes)
	if err := cfg.registerer.Register(m.collector); err != nil {
		return nil, fmt.Errorf("zkprom: register the metrics: %w", err)
	}
	return m, nil
}

// Unregister removes the metrics from their registerer. Clients can keep their
// option.
func (m *Metrics) Unregister() { m.config.registerer.Unregister(m.collector) }

// Option returns an option of framework.New, which makes the client's events
// count. Several clients can share it: their metrics are added up.
func (m *Metrics) Option() framework.Option {
	o := m.observers()
	return framework.Together(framework.WithObserver(o.client), recipes.WithObserver(o.leases),
		presence.WithObserver(o.presences), cache.WithObserver(o.caches), counter.WithObserver(o.counters), barrier.WithObserver(o.barriers))
}

// observers has the functions that count, by the package of their events.
type observers struct {
	client    framework.Observer
	leases    recipes.Observer
	presences presence.Observer
	caches    cache.Observer
	counters  counter.Observer
	barriers  barrier.Observer
}

func (m *Metrics) observers() observers {
	return observers{
		client: framework.Observer{
			RequestEnd:        m.clients.requestEnd,
			Retried:           m.clients.retried,
			Batched:           m.clients.batched,
			EphemeralsChanged: m.clients.ephemeralsChanged,
			Opened:            m.clients.open.Inc,
			StateChanged:      m.clients.stateChanged,
			Abandoned:         m.clients.abandoned,
			Moved:             m.clients.moved,
			GuardianLost:      func(error) { m.clients.guardians.Inc() },
			Dropped:           m.clients.dropped,
		},
		leases: recipes.Observer{
			AcquireStart: m.locks.acquireStart,
			AcquireEnd:   m.locks.acquireEnd,
			Released:     m.locks.released,
			Lost:         m.locks.lost,
			Overran:      m.locks.overran,
			Revoked:      m.locks.revoked,
		},
		presences: presence.Observer{StateChanged: m.znodes.presenceChanged},
		caches:    cache.Observer{StateChanged: m.znodes.cacheChanged, Read: m.znodes.cacheRead},
		counters:  counter.Observer{Added: m.shared.added, Conflicted: m.shared.conflicted},
		barriers:  barrier.Observer{Entered: m.shared.entered, Left: m.shared.left},
	}
}

// collectors are registered together: all of them or none.
type collectors []prometheus.Collector

func (c collectors) Describe(out chan<- *prometheus.Desc) {
	for _, each := range c {
		each.Describe(out)
	}
}

func (c collectors) Collect(out chan<- prometheus.Metric) {
	for _, each := range c {
		each.Collect(out)
	}
}

// clientMetrics are about connections, sessions and requests.
type clientMetrics struct {
	open        prometheus.Gauge
	connected   prometheus.Gauge
	transitions *prometheus.CounterVec
	abandonment *prometheus.CounterVec
	moves       *prometheus.CounterVec
	guardians   prometheus.Counter
	drops       prometheus.Counter
	requests    *prometheus.HistogramVec
	retries     *prometheus.CounterVec
	batches     prometheus.Histogram
	ephemerals  prometheus.GaugeFunc

	mu   sync.Mutex
	used map[uint64]int // by client: percent of the limit of ephemeral paths, unless it is 0
}

func newClientMetrics(namespace string) *clientMetrics {
	m := &clientMetrics{
		used: make(map[uint64]int),
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "clients",
			Help: "Clients that are not closed.",
		}),
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "connected",
			Help: "Clients that have a session and a connection.",
		}),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "session_transitions_total",
			Help: "Changes of the clients' states, by the new state: connected, suspended, lost or closed.",
		}, []string{"to"}),
		abandonment: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "connections_abandoned_total",
			Help: "Connections that a client gave up: the server was silent, the session unproven, or the wire client stuck.",
		}, []string{"reason"}),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "server_moves_total",
			Help: "Moves of clients to another server because their list has changed, and tries that have failed: moved or failed.",
		}, []string{"result"}),
		guardians: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "guardians_lost_total",
			Help: "Guardians of clients that ended or hung: if the process dies, its sessions end by their timeout.",
		}),
		drops: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "events_dropped_total",
			Help: "Events that were not counted, because too many waited.",
		}),
		requests: prometheus.NewHistogramVec(histogram(namespace, "request_duration_seconds",
			"How long requests to the ensemble took, by operation and by ZooKeeper's result code.", requestBuckets),
			[]string{"op", "code"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "request_retries_total",
			Help: "Operations that were tried again after an error, by operation.",
		}, []string{"op"}),
		batches: prometheus.NewHistogram(histogram(namespace, "batch_operations",
			"How many creates and deletes of contenders shared a request.", batchBuckets)),
	}
	m.ephemerals = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "ephemeral_paths_ratio",
		Help: "How much of its limit the fullest client uses for the paths of its ephemeral znodes: from 0 to 1.",
	}, m.fullest)
	for _, to := range []framework.State{framework.Connected, framework.Suspended, framework.Lost, framework.Closed} {
		m.transitions.WithLabelValues(stateLabel(to))
	}
	for _, reason := range []framework.AbandonReason{framework.AbandonedSilent, framework.AbandonedUnproven, framework.AbandonedStuck} {
		m.abandonment.WithLabelValues(string(reason))
	}
	for _, result := range []string{moveMade, moveFailed} {
		m.moves.WithLabelValues(result)
	}
	return m
}

func (m *clientMetrics) all() collectors {
	return collectors{m.open, m.connected, m.transitions, m.abandonment, m.moves, m.guardians, m.drops, m.requests, m.retries, m.batches, m.ephemerals}
}

func stateLabel(s framework.State) string { return strings.ToLower(s.String()) }

func (m *clientMetrics) stateChanged(c framework.StateChange) {
	m.transitions.WithLabelValues(stateLabel(c.To)).Inc()
	if c.From == framework.Connected {
		m.connected.Dec()
	}
	switch c.To {
	case framework.Connected:
		m.connected.Inc()
	case framework.Closed:
		m.open.Dec()
	}
}

// The results of moves.
const (
	moveMade   = "moved"
	moveFailed = "failed"
)

func (m *clientMetrics) moved(move framework.Move) {
	result := moveMade
	if move.Err != nil {
		result = moveFailed
	}
	m.moves.WithLabelValues(result).Inc()
}

func (m *clientMetrics) abandoned(a framework.Abandonment) {
	m.abandonment.WithLabelValues(string(a.Reason)).Inc()
}

func (m *clientMetrics) ephemeralsChanged(c framework.EphemeralsChange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used[c.Client] = c.Percent; c.Percent == 0 {
		delete(m.used, c.Client)
	}
}

func (m *clientMetrics) fullest() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	most := 0
	for _, percent := range m.used {
		most = max(most, percent)
	}
	return float64(most) / 100
}

func (m *clientMetrics) dropped(d framework.Drop) { m.drops.Add(float64(d.Events)) }

func (m *clientMetrics) requestEnd(_ context.Context, r framework.Request, result framework.RequestResult) {
	m.requests.WithLabelValues(r.Op, result.Code).Observe(result.Took.Seconds())
}

func (m *clientMetrics) retried(_ context.Context, r framework.Retry) {
	m.retries.WithLabelValues(r.Op).Inc()
}

func (m *clientMetrics) batched(b framework.Batch) { m.batches.Observe(float64(b.Operations)) }
