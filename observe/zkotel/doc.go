// Package zkotel makes OpenTelemetry spans and metrics of what a client of package
// framework does: of each Acquire, each lease, each request to the ensemble and
// the client's state. One option does it:
//
//	client, err := framework.New(servers, framework.WithObserver(zkotel.New()))
//
// The README lists all spans, events and metrics with their attributes.
//
// # Spans
//
// A call of Acquire or TryAcquire is a span "acquire mutex", or with the name of
// another recipe: a child of the span in the caller's context, or a root span. It
// ends before the lease is returned. Work under recipes.Do, or a term under
// leader.Election.Run, has the caller's context and not the span's, so its spans
// are siblings of the acquire span. A candidate's acquire span lasts until it leads.
//
// The span of a call that was not granted has the error as its attribute
// zkrecipes.failure. Its status is an error with two exceptions: a TryAcquire that
// finds the lock busy, and a call whose context was canceled. A deadline that has
// passed is an error.
//
// What happens to a lease later is an event on the span of the context that it was
// acquired with, if that span has not ended: lease.lost, lease.overran,
// lease.revoked. The event of a loss is added when the lost lease is released, as
// Do and Run do, and has the time of the loss.
//
// With RequestSpans each request is a CLIENT span, except those that the client
// makes for itself. Requests that several calls share, as the multi of a batch, are
// children of the first one's span.
//
// # Metrics
//
// Requests are measured by the semantic conventions for database clients:
// db.client.operation.duration, with db.system.name "zookeeper". ZooKeeper's name
// of an error, as NONODE, is the db.response.status_code if a server has sent it.
// The error.type is that name, or says why there is no answer, as CONNECTIONLOSS.
// That a znode does not exist is no failure of exists.
//
// The rest is named zkrecipes.*, as the metrics of package zkprom are. What is
// added on one event and taken away on another one, as zkrecipes.held, is exact as
// long as zkrecipes.events.dropped is 0.
//
// # Cost
//
// Spans begin and end on the goroutine that acquires. With a batching span
// processor, as applications use, that takes some microseconds: BenchmarkAcquire
// measures it. A processor that exports at once makes each Acquire wait for the
// export.
package zkotel
