// Package zkprom has Prometheus metrics of a zkrecipes client: how many callers
// wait for locks and for how long, which leases are held or lost, which process
// leads, which presences stand, what caches show, what is added to counters,
// who enters barriers, and what the ensemble answers.
//
//	metrics, err := zkprom.New()
//	...
//	client, err := framework.New(servers, metrics.Option())
//
// The README of this module has a table of the metrics, and says what their
// labels mean. The file alerts.yml has alert rules, and dashboard.json a
// dashboard for Grafana.
//
// One Metrics counts any number of clients together. To distinguish clients,
// make a Metrics for each, with a registerer that adds a label:
//
//	r := prometheus.WrapRegistererWith(prometheus.Labels{"client": "orders"}, registry)
//	metrics, err := zkprom.New(zkprom.Registerer(r))
package zkprom
