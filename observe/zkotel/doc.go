// Package zkotel has OpenTelemetry spans and metrics for a client of package
// framework: each Acquire, each lease, presences, caches, counters, barriers,
// each request to the ensemble, and the client's state. Pass it to the client:
//
//	client, err := framework.New(servers, zkotel.New())
//
// The README lists all spans, events and metrics with their attributes.
//
// # Spans
//
// The span of Acquire or TryAcquire ends before the lease is returned. A
// candidate's lasts until it leads. If the call was not granted, the status is
// an error with two exceptions: a TryAcquire that finds the lock busy, and a
// call whose context was canceled. A deadline that has passed is an error.
//
// Later events of a lease are added to the span of the context that it was
// acquired with, if that span has not ended. The event lease.lost has the time
// of the loss, but is added when the lost lease is released. Do and Run release
// it.
//
// With RequestSpans each request is a CLIENT span, except requests that the
// client makes for itself. If several calls share a request, its span is a
// child of the first call's span.
//
// # Metrics
//
// Requests follow the semantic conventions for database clients. error.type is
// ZooKeeper's name of the error, or the reason why there is no answer, such as
// CONNECTIONLOSS. If exists finds no znode, there is no status code.
//
// The other metrics are those of package zkprom. Locks, elections, presences,
// caches, counters and barriers have at most 1000 labels each. What comes after
// those is counted as "(other)".
//
// # Cost
//
// Spans begin and end on the goroutine that acquires. With a batching span
// processor, as applications use, that takes some microseconds:
// BenchmarkAcquire measures it. A processor that exports at once makes each
// Acquire wait for the export.
package zkotel
