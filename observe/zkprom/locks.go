package zkprom

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// lockMetrics are about acquires and leases.
type lockMetrics struct {
	lockLabel func(string) string // nil: none

	acquires    *prometheus.HistogramVec
	holds       *prometheus.HistogramVec
	losses      *prometheus.CounterVec
	overruns    *prometheus.CounterVec
	revocations *prometheus.CounterVec
	terms       *prometheus.CounterVec
	// The gauges are made at each scrape, from the spans.
	waiting, held, oldestWait, oldestHold, leader, leading *prometheus.Desc

	mu        sync.Mutex // guards what follows, the spans of the series included
	series    map[seriesLabels]*series
	elections map[string]*election
	leases    map[leaseID]*span
	locks     labelSet
	names     labelSet // of elections
}

// seriesLabels are the labels that distinguish series.
type seriesLabels struct{ recipe, mode, lock string }

// series are the metrics of one recipe, mode and lock.
type series struct {
	labels        []string
	acquires      prometheus.ObserverVec // by outcome
	holds         prometheus.Observer
	losses        *prometheus.CounterVec // by reason
	overruns      prometheus.Counter
	revocations   prometheus.Counter
	waiting, held spans
}

// election is one for which this process is, or was, a candidate.
type election struct {
	terms []*span // those under way; more than one for a moment, or if elections share a label
	begun prometheus.Counter
}

// leaseID tells leases apart, except for those that were granted at the same
// instant in the same way.
type leaseID struct {
	acquire recipes.Acquire
	grant   recipes.Grant
}

// waitKey is the key of the span of a wait in a context.
type waitKey struct{ of *lockMetrics }

var lossReasons = []recipes.LossReason{
	recipes.LostUnproven, recipes.LostSession, recipes.LostConnection, recipes.LostDeleted,
	recipes.LostMaxHold, recipes.LostClosed, recipes.LostOtherwise,
}

func newLockMetrics(cfg config) *lockMetrics {
	labels := []string{"recipe", "mode"}
	if cfg.lockLabel != nil {
		labels = append(labels, "lock")
	}
	with := func(more string) []string { return append(labels[:len(labels):len(labels)], more) }
	gauge := func(name, help string, labels []string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(cfg.namespace, "", name), help, labels, nil)
	}
	counter := func(name, help string, labels []string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: cfg.namespace, Name: name, Help: help}, labels)
	}
	return &lockMetrics{
		lockLabel: cfg.lockLabel,
		acquires: prometheus.NewHistogramVec(histogram(cfg.namespace, "acquire_duration_seconds",
			"How long calls of Acquire and TryAcquire took, by how they were granted or why they were not.", acquireBuckets),
			with("outcome")),
		holds: prometheus.NewHistogramVec(histogram(cfg.namespace, "hold_duration_seconds",
			"For how long leases were held, until their release or loss.", holdBuckets), labels),
		losses:      counter("lost_total", "Leases that were lost before their release, by the reason.", with("reason")),
		overruns:    counter("overruns_total", "Work that went on after its lease could be granted to others.", labels),
		revocations: counter("revocations_total", "Requests to a holder to release its lease.", labels),
		terms:       counter("terms_total", "Terms that this process has begun as the leader of the election.", []string{"election"}),
		waiting:     gauge("waiting", "Calls of Acquire and TryAcquire that are under way.", labels),
		held:        gauge("held", "Leases that are held.", labels),
		oldestWait:  gauge("oldest_wait_seconds", "For how long the longest of the calls under way has waited; 0 if there is none.", labels),
		oldestHold:  gauge("oldest_hold_seconds", "For how long the oldest of the leases has been held; 0 if there is none.", labels),
		leader: gauge("leader", "1 while this process leads the election, 0 while it does not. It exists after the process has been a candidate.",
			[]string{"election"}),
		leading:   gauge("leading_seconds", "For how long this process has led the election; 0 while it does not lead.", []string{"election"}),
		series:    make(map[seriesLabels]*series),
		elections: make(map[string]*election),
		leases:    make(map[leaseID]*span),
		locks:     newLabelSet(cfg.labelLimit),
		names:     newLabelSet(cfg.labelLimit),
	}
}

// acquireStart begins a wait, and adds it to the context.
func (m *lockMetrics) acquireStart(ctx context.Context, a recipes.Acquire) context.Context {
	s := m.seriesOf(a)
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.Recipe == "election" {
		m.electionLocked(a)
	}
	return context.WithValue(ctx, waitKey{m}, s.waiting.begin(s))
}

func (m *lockMetrics) acquireEnd(ctx context.Context, a recipes.Acquire, r recipes.AcquireResult) {
	wait, ok := ctx.Value(waitKey{m}).(*span)
	if !ok {
		return // its start was not reported
	}
	s := wait.series
	m.mu.Lock()
	s.waiting.end(wait)
	if r.Err == nil {
		m.holdLocked(s, a, r.Grant)
	}
	m.mu.Unlock()
	s.acquires.WithLabelValues(recipes.Outcome(r)).Observe(r.Waited.Seconds())
}

func (m *lockMetrics) holdLocked(s *series, a recipes.Acquire, g recipes.Grant) {
	hold, id := s.held.begin(s), leaseID{a, g}
	hold.indiscernible = m.leases[id]
	m.leases[id] = hold
	if a.Recipe == "election" {
		hold.election = m.electionLocked(a)
		hold.election.terms = append(hold.election.terms, hold)
		hold.election.begun.Inc()
	}
}

// endHold returns the series that the lease was counted in.
func (m *lockMetrics) endHold(a recipes.Acquire, g recipes.Grant, held time.Duration) *series {
	s := m.takeHold(leaseID{a, g})
	if s == nil {
		s = m.seriesOf(a) // its grant was not reported
	}
	s.holds.Observe(held.Seconds())
	return s
}

func (m *lockMetrics) takeHold(id leaseID) *series {
	m.mu.Lock()
	defer m.mu.Unlock()
	hold := m.leases[id]
	switch {
	case hold == nil:
		return nil
	case hold.indiscernible == nil:
		delete(m.leases, id)
	default:
		m.leases[id] = hold.indiscernible
	}
	hold.series.held.end(hold)
	if hold.election != nil {
		hold.election.terms = slices.DeleteFunc(hold.election.terms, func(term *span) bool { return term == hold })
	}
	return hold.series
}

func (m *lockMetrics) released(_ context.Context, r recipes.Release) {
	m.endHold(r.Acquire, r.Grant, r.Held)
}

func (m *lockMetrics) lost(_ context.Context, l recipes.Loss) {
	m.endHold(l.Acquire, l.Grant, l.Held).losses.WithLabelValues(string(l.Reason)).Inc()
}

func (m *lockMetrics) overran(_ context.Context, o recipes.Overrun) {
	m.seriesOf(o.Acquire).overruns.Inc()
}

func (m *lockMetrics) revoked(_ context.Context, r recipes.Revocation) {
	m.seriesOf(r.Acquire).revocations.Inc()
}

// seriesOf returns where an acquire is counted. It calls the user's LockLabel,
// so the caller holds no lock.
func (m *lockMetrics) seriesOf(a recipes.Acquire) *series {
	l := seriesLabels{recipe: a.Recipe, mode: a.Mode}
	if m.lockLabel != nil {
		l.lock = lockLabelOf(m.lockLabel, a.Label)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lockLabel != nil {
		l.lock = m.locks.fit(l.lock)
	}
	s := m.series[l]
	if s == nil {
		s = m.newSeries(l)
		m.series[l] = s
	}
	return s
}

// newSeries also makes the counters, at 0: Prometheus sees no increase in a
// counter that begins at 1.
func (m *lockMetrics) newSeries(l seriesLabels) *series {
	labels := prometheus.Labels{"recipe": l.recipe, "mode": l.mode}
	values := []string{l.recipe, l.mode}
	if m.lockLabel != nil {
		labels["lock"] = l.lock
		values = append(values, l.lock)
	}
	s := &series{
		labels:      values,
		acquires:    m.acquires.MustCurryWith(labels),
		holds:       m.holds.With(labels),
		losses:      m.losses.MustCurryWith(labels),
		overruns:    m.overruns.With(labels),
		revocations: m.revocations.With(labels),
	}
	for _, reason := range lossReasons {
		s.losses.WithLabelValues(string(reason))
	}
	return s
}

func (m *lockMetrics) electionLocked(a recipes.Acquire) *election {
	name := m.names.fit(valid(a.Label))
	e := m.elections[name]
	if e == nil {
		e = &election{begun: m.terms.WithLabelValues(name)} // at 0, as in newSeries
		m.elections[name] = e
	}
	return e
}
