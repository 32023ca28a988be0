package zkprom

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
)

// sharedMetrics are about counters and barriers.
type sharedMetrics struct {
	additions, conflicts, rounds *prometheus.CounterVec

	mu       sync.Mutex // guards what follows
	counters labelSet
	barriers labelSet
}

// The results of additions, and of rounds.
const (
	added, failed, unsure = "added", "failed", "unsure"
	entered, left         = "entered", "left" // or failed
)

func newSharedMetrics(cfg config) *sharedMetrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: cfg.namespace, Name: name, Help: help}, labels)
	}
	return &sharedMetrics{
		additions: vec("additions_total",
			"Calls that add to a counter or set it: added, failed, or unsure, which may have been added.", "counter", "result"),
		conflicts: vec("addition_conflicts_total", "Writes of a counter that were tried again, because another process was quicker.", "counter"),
		rounds:    vec("barrier_rounds_total", "Calls of Enter and Leave of a double barrier: entered, left, or failed.", "barrier", "result"),
		counters:  newLabelSet(cfg.labelLimit),
		barriers:  newLabelSet(cfg.labelLimit),
	}
}

func (m *sharedMetrics) all() collectors { return collectors{m.additions, m.conflicts, m.rounds} }

// counter returns the label of a counter, and makes its metrics, at 0.
func (m *sharedMetrics) counter(of counter.Info) (label string) {
	m.mu.Lock()
	label = m.counters.fit(valid(of.Label))
	m.mu.Unlock()
	for _, result := range []string{added, failed, unsure} {
		m.additions.WithLabelValues(label, result)
	}
	m.conflicts.WithLabelValues(label)
	return label
}

func (m *sharedMetrics) added(a counter.Addition) {
	label, how := m.counter(a.Counter), failed
	if framework.MaybeApplied(a.Err) {
		how = unsure
	}
	m.additions.WithLabelValues(label, added).Add(float64(a.Calls - a.Failed))
	m.additions.WithLabelValues(label, how).Add(float64(a.Failed))
}

func (m *sharedMetrics) conflicted(c counter.Conflict) {
	m.conflicts.WithLabelValues(m.counter(c.Counter)).Inc()
}

func (m *sharedMetrics) round(of barrier.Info, result string, err error) {
	m.mu.Lock()
	label := m.barriers.fit(valid(of.Label))
	m.mu.Unlock()
	for _, result := range []string{entered, left, failed} {
		m.rounds.WithLabelValues(label, result)
	}
	if err != nil {
		result = failed
	}
	m.rounds.WithLabelValues(label, result).Inc()
}

func (m *sharedMetrics) entered(e barrier.Entry) { m.round(e.Barrier, entered, e.Err) }

func (m *sharedMetrics) left(e barrier.Exit) { m.round(e.Barrier, left, e.Err) }
