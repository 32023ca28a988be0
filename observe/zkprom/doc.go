// Package zkprom counts and times what a zkrecipes client does, as Prometheus
// metrics: who waits for locks and for how long, what is held, what was lost,
// which process leads, and what the ensemble answers.
//
//	metrics, err := zkprom.New()
//	...
//	client, err := framework.New(servers, framework.WithObserver(metrics.Observer()))
//
// The README of this module has a table of the metrics. The file alerts.yml has
// alert rules, and dashboard.json a dashboard for Grafana.
//
// # Several clients
//
// One Metrics counts any number of clients together: call Observer once for
// each of them. To tell clients apart, make a Metrics for each, with a
// registerer that adds a label:
//
//	r := prometheus.WrapRegistererWith(prometheus.Labels{"client": "orders"}, registry)
//	metrics, err := zkprom.New(zkprom.Registerer(r))
//
// # Labels
//
// The path of a lock is no label, because locks.Keyed may have millions of
// them: LockLabel adds one. The names of elections are a label of one metric.
// Both kinds have at most LabelLimit values. What has no place is counted under
// "(other)".
//
// # Exactness
//
// Waiting and held are exact at every scrape, with one exception: if the
// observer falls so far behind that losses are dropped, these leases stay
// counted as held. The metric of dropped events shows that.
//
// A loss is told by another goroutine, so it is counted a moment after the
// lease has ended.
package zkprom
