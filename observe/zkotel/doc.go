// Package zkotel has OpenTelemetry spans and metrics for a client of package
// framework: each Acquire, each lease, presences, caches, each request to the
// ensemble, and the client's state. Pass one option to the client:
//
//	client, err := framework.New(servers, framework.WithObserver(zkotel.New()))
//
// The README lists all spans, events and metrics with their attributes.
//
// # Spans
//
// A call of Acquire or TryAcquire is a span named after the recipe, such as
// "acquire mutex". It is a child of the span in the caller's context, or a root
// span. It ends before the lease is returned. Work under recipes.Do, or a term
// under leader.Election.Run, has the caller's context and not the span's, so
// its spans are siblings of the acquire span. A candidate's acquire span lasts
// until it leads.
//
// The span of a call that was not granted has the error as its attribute
// zkrecipes.failure. Its status is an error with two exceptions: a TryAcquire
// that finds the lock busy, and a call whose context was canceled. A deadline
// that has passed is an error.
//
// Later events of a lease are added to the span of the context that it was
// acquired with, if that span has not ended: lease.lost, lease.overran,
// lease.revoked. The event lease.lost has the time of the loss, but is added
// when the lost lease is released. Do and Run release it.
//
// With RequestSpans each request is a CLIENT span, except requests that the
// client makes for itself. If several calls share a request, its span is a
// child of the first call's span.
//
// A cache that reads its whole tree makes a root span, "walk cache", and a
// presence makes one, "announce presence", of the time until its znode stands.
//
// # Metrics
//
// Requests are measured by the semantic conventions for database clients:
// db.client.operation.duration, with db.system.name "zookeeper". If a server
// has sent an error, db.response.status_code is ZooKeeper's name for it, such
// as NONODE. error.type is that name, or the reason why there is no answer,
// such as CONNECTIONLOSS. NONODE, NODEEXISTS, BADVERSION and NOTEMPTY are
// answers about the tree and no errors: without error.type, and the span's
// status stays unset. If exists finds no znode, there is no status code either.
//
// The other metrics are named zkrecipes.*, like those of package zkprom. The
// up-down counters, such as zkrecipes.held, are exact as long as
// zkrecipes.events.dropped is 0. Locks, elections, presences and caches have at
// most 1000 labels each. What comes after those is counted as "(other)".
//
// # Cost
//
// Spans begin and end on the goroutine that acquires. With a batching span
// processor, as applications use, that takes some microseconds:
// BenchmarkAcquire measures it. A processor that exports at once makes each
// Acquire wait for the export.
package zkotel
