// Package collectortest has a test of zkotel against the OpenTelemetry
// Collector, built from its Go modules. It is a module of its own, so that
// zkotel does not depend on the collector.
package collectortest
