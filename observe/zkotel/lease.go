package zkotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/framework"
)

// The events on the span of the context that a lease was acquired with.
const (
	lostEvent    = "lease.lost"
	overranEvent = "lease.overran"
	revokedEvent = "lease.revoked"
)

// hold counts a lease that begins or ends.
func (o *observer) hold(ctx context.Context, a framework.Acquire, lock metric.MeasurementOption, change int64) {
	o.held.Add(ctx, change, lock)
	if a.Recipe == electionRecipe {
		o.leading.Add(ctx, change, o.set(electionKey.String(valid(a.Label))))
	}
}

// electionRecipe is what framework.Acquire.Recipe says of an election.
const electionRecipe = "election"

func (o *observer) released(ctx context.Context, r framework.Release) {
	lock := o.lock(r.Acquire)
	o.hold(ctx, r.Acquire, lock, -1)
	o.holdDuration.Record(ctx, r.Held.Seconds(), lock)
}

func (o *observer) lost(ctx context.Context, l framework.Loss) {
	lock := o.lock(l.Acquire)
	o.hold(ctx, l.Acquire, lock, -1)
	o.holdDuration.Record(ctx, l.Held.Seconds(), lock)
	o.losses.Add(ctx, 1, o.lock(l.Acquire, reasonKey.String(string(l.Reason))))
}

// lostReleased adds the event at the release, when the caller of Do or Run has not
// ended its span yet, with the time of the loss.
func (o *observer) lostReleased(ctx context.Context, l framework.Loss) {
	more := []attribute.KeyValue{reasonKey.String(string(l.Reason)), seconds(heldKey, l.Held)}
	if l.Err != nil {
		more = append(more, failureKey.String(valid(l.Err.Error())))
	}
	addEvent(ctx, l.At, lostEvent, l.Acquire, l.Grant, more...)
}

func (o *observer) overran(ctx context.Context, over framework.Overrun) {
	o.overruns.Add(ctx, 1, o.lock(over.Acquire))
	addEvent(ctx, time.Now(), overranEvent, over.Acquire, over.Grant, seconds(byKey, over.By))
}

func (o *observer) revoked(ctx context.Context, r framework.Revocation) {
	o.revocations.Add(ctx, 1, o.lock(r.Acquire))
	addEvent(ctx, time.Now(), revokedEvent, r.Acquire, r.Grant)
}

// addEvent adds an event to the span of ctx, if it has one that has not ended.
func addEvent(ctx context.Context, at time.Time, name string, a framework.Acquire, g framework.Grant, more ...attribute.KeyValue) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent(name, trace.WithTimestamp(at), trace.WithAttributes(leaseAttributes(a, g, more...)...))
	}
}
