// Package zkprom has Prometheus metrics of a zkrecipes client: how many callers
// wait for locks and for how long, which leases are held or lost, which process
// leads, which presences stand, what caches show, and what the ensemble
// answers.
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
// One Metrics counts any number of clients together. To distinguish clients,
// make a Metrics for each, with a registerer that adds a label:
//
//	r := prometheus.WrapRegistererWith(prometheus.Labels{"client": "orders"}, registry)
//	metrics, err := zkprom.New(zkprom.Registerer(r))
//
// # Labels
//
// The path of a lock is not a label by default, because locks.Keyed may have
// millions of locks. LockLabel adds a label. The labels of elections, presences
// and caches, which recipes.WithLabel sets, and otherwise their paths, are
// labels. Each of the four has at most LabelLimit values. The rest is counted
// under "(other)".
//
// # Exactness
//
// Waiting and held are exact, with two exceptions. Another goroutine counts
// losses, so a loss is counted a moment after the lease has ended. If the
// observer falls so far behind that losses are dropped, these leases stay
// counted as held: the metric of dropped events shows that.
package zkprom
