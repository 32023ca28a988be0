package zkprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Describe sends the descriptions of the metrics.
func (m *lockMetrics) Describe(out chan<- *prometheus.Desc) {
	m.counted().Describe(out)
	for _, each := range []*prometheus.Desc{m.waiting, m.held, m.oldestWait, m.oldestHold, m.leader, m.leading} {
		out <- each
	}
}

// Collect sends the metrics as they are now.
func (m *lockMetrics) Collect(out chan<- prometheus.Metric) {
	m.counted().Collect(out)
	for _, each := range m.gauges() {
		out <- each
	}
}

func (m *lockMetrics) counted() collectors {
	return collectors{m.acquires, m.holds, m.losses, m.overruns, m.revocations, m.terms}
}

// gauges returns all gauges as they are at one instant.
func (m *lockMetrics) gauges() (gauges []prometheus.Metric) {
	add := func(d *prometheus.Desc, value float64, labels ...string) {
		gauges = append(gauges, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, s := range m.series {
		add(m.waiting, float64(s.waiting.count), s.labels...)
		add(m.held, float64(s.held.count), s.labels...)
		add(m.oldestWait, s.waiting.age(now), s.labels...)
		add(m.oldestHold, s.held.age(now), s.labels...)
	}
	for name, e := range m.elections {
		leads, since := 0.0, 0.0
		if len(e.terms) > 0 {
			leads, since = 1, now.Sub(e.terms[0].began).Seconds()
		}
		add(m.leader, leads, name)
		add(m.leading, since, name)
	}
	return gauges
}
