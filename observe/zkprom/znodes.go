package zkprom

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// znodeMetrics are about presences and caches.
type znodeMetrics struct {
	transitions *prometheus.CounterVec
	walks       *prometheus.HistogramVec
	changes     *prometheus.CounterVec
	// The gauges are made at each scrape.
	presences, missing                  *prometheus.Desc
	caches, stale, znodes, bytes, zxids *prometheus.Desc

	mu        sync.Mutex // guards what follows
	nodes     map[uint64]presenceNode
	mirrors   map[uint64]mirror
	nodeNames labelSet
	names     labelSet // of caches
}

// presenceNode is a presence.Node that is not closed.
type presenceNode struct {
	label, state string
	away         time.Time     // since when it has not been standing
	timeout      time.Duration // of its session
}

// mirror is a cache that is not closed.
type mirror struct {
	label, state string
	unsynced     time.Time // since when it has not been synced
	last         cache.Read
}

var (
	presenceStates = []string{"pending", "standing", "suspended", "taken", "removed"} // and closed
	cacheStates    = []string{"syncing", "synced", "stale", "failed"}                 // and closed
	cacheKinds     = []string{"added", "changed", "removed"}
	walkReasons    = []cache.ReadReason{cache.ReadFirst, cache.ReadReconnect, cache.ReadOverflow, cache.ReadSize}
)

func newZnodeMetrics(cfg config) *znodeMetrics {
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(cfg.namespace, "", name), help, labels, nil)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: cfg.namespace, Name: name, Help: help}, labels)
	}
	m := &znodeMetrics{
		transitions: counter("presence_transitions_total", "Changes of the states of presences, by the new state.", "presence", "to"),
		walks: prometheus.NewHistogramVec(histogram(cfg.namespace, "cache_walk_duration_seconds",
			"How long caches took to read their whole tree, by the reason. What has failed, and is repeated, is not in it.", acquireBuckets),
			[]string{"reason"}),
		changes:   counter("cache_changes_total", "Znodes that caches have added, changed or removed.", "cache", "kind"),
		presences: gauge("presences", "Presences that are not closed, by their state.", "presence", "state"),
		missing: gauge("presence_missing_timeouts",
			"For how many session timeouts the longest of the presences that should stand has not stood; 0 if all stand.", "presence"),
		caches:    gauge("caches", "Caches that are not closed, by their state.", "cache", "state"),
		stale:     gauge("cache_stale_seconds", "For how long the longest of the caches has not been synced; 0 if all are.", "cache"),
		znodes:    gauge("cache_znodes", "Znodes that caches show.", "cache"),
		bytes:     gauge("cache_memory_bytes", "Memory of the znodes that caches show.", "cache"),
		zxids:     gauge("cache_zxid", "The transaction up to which each of the caches shows every change; 0 before the first view.", "cache"),
		nodes:     make(map[uint64]presenceNode),
		mirrors:   make(map[uint64]mirror),
		nodeNames: newLabelSet(cfg.labelLimit),
		names:     newLabelSet(cfg.labelLimit),
	}
	for _, reason := range walkReasons {
		m.walks.WithLabelValues(string(reason)) // at 0: see newSeries
	}
	return m
}

// presenceChanged also makes the counters of a label, at 0.
func (m *znodeMetrics) presenceChanged(c presence.StateChange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	label := m.nodeNames.fit(valid(c.Label))
	if c.From == "" {
		for _, state := range append(presenceStates, "closed") {
			m.transitions.WithLabelValues(label, state)
		}
	} else {
		m.transitions.WithLabelValues(label, c.To).Inc()
	}
	if c.To == "closed" {
		delete(m.nodes, c.ID)
		return
	}
	m.nodes[c.ID] = presenceNode{label, c.To, c.Away, c.Timeout}
}

func (m *znodeMetrics) cacheChanged(c cache.StateChange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.To == "closed" {
		delete(m.mirrors, c.Cache.ID)
		return
	}
	k, known := m.mirrors[c.Cache.ID]
	if !known {
		k.label = m.names.fit(valid(c.Cache.Label))
		for _, kind := range cacheKinds {
			m.changes.WithLabelValues(k.label, kind)
		}
	}
	if !known || k.state == "synced" {
		k.unsynced = c.At
	}
	k.state = c.To
	m.mirrors[c.Cache.ID] = k
}

// cacheRead may be called after a cache was closed, for what has failed then.
func (m *znodeMetrics) cacheRead(r cache.Read) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, known := m.mirrors[r.Cache.ID]
	if !known || r.Err != nil {
		return
	}
	k.last = r
	m.mirrors[r.Cache.ID] = k
	if r.Reason.Walk() {
		m.walks.WithLabelValues(string(r.Reason)).Observe(r.Took.Seconds())
	}
	for i, n := range []int{r.Added, r.Changed, r.Removed} {
		m.changes.WithLabelValues(k.label, cacheKinds[i]).Add(float64(n))
	}
}

func (m *znodeMetrics) counted() collectors {
	return collectors{m.transitions, m.walks, m.changes}
}

// Describe sends the descriptions of the metrics.
func (m *znodeMetrics) Describe(out chan<- *prometheus.Desc) {
	m.counted().Describe(out)
	for _, each := range []*prometheus.Desc{m.presences, m.missing, m.caches, m.stale, m.znodes, m.bytes, m.zxids} {
		out <- each
	}
}

// Collect sends the metrics as they are now.
func (m *znodeMetrics) Collect(out chan<- prometheus.Metric) {
	m.counted().Collect(out)
	send := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	presences, caches := m.sums(time.Now())
	for label, sum := range presences {
		for _, state := range presenceStates {
			send(m.presences, sum.states[state], label, state)
		}
		send(m.missing, sum.longest, label)
	}
	for label, sum := range caches {
		for _, state := range cacheStates {
			send(m.caches, sum.states[state], label, state)
		}
		send(m.stale, sum.longest, label)
		send(m.znodes, sum.znodes, label)
		send(m.bytes, sum.bytes, label)
		send(m.zxids, sum.zxid, label)
	}
}

// sum is what a label counts together.
type sum struct {
	states              map[string]float64
	longest             float64 // for how long something is missing or stale
	znodes, bytes, zxid float64
}

// sums returns the sums of all labels that were ever used, so that a series
// does not end with the last that is counted in it.
func (m *znodeMetrics) sums(now time.Time) (presences, caches map[string]*sum) {
	m.mu.Lock()
	defer m.mu.Unlock()
	presences, caches = newSums(m.nodeNames), newSums(m.names)
	for _, n := range m.nodes {
		s := of(presences, n.label)
		s.states[n.state]++
		if n.state != "standing" && n.state != "removed" {
			s.longest = max(s.longest, now.Sub(n.away).Seconds()/n.timeout.Seconds())
		}
	}
	for _, k := range m.mirrors {
		s := of(caches, k.label)
		if zxid := float64(k.last.Zxid); len(s.states) == 0 || zxid < s.zxid {
			s.zxid = zxid
		}
		s.states[k.state]++
		if k.state != "synced" {
			s.longest = max(s.longest, now.Sub(k.unsynced).Seconds())
		}
		s.znodes += float64(k.last.Znodes)
		s.bytes += float64(k.last.Bytes)
	}
	return presences, caches
}

func newSums(labels labelSet) map[string]*sum {
	sums := make(map[string]*sum, len(labels.known))
	for label := range labels.known {
		of(sums, label)
	}
	return sums
}

func of(sums map[string]*sum, label string) *sum {
	if sums[label] == nil {
		sums[label] = &sum{states: make(map[string]float64)}
	}
	return sums[label]
}
