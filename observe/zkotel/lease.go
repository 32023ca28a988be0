package zkotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// The events on the span of the context that a lease was acquired with.
const (
	lostEvent    = "lease.lost"
	overranEvent = "lease.overran"
	revokedEvent = "lease.revoked"
)

// holdBegins counts a lease that begins.
func (o *observer) holdBegins(ctx context.Context, a recipes.Acquire, g recipes.Grant, lock attribute.Set) {
	election := o.election(a)
	o.ages.beginHold(leaseID{a, g}, lock, election)
	o.held.Add(ctx, 1, metric.WithAttributeSet(lock))
	if election != nil {
		o.leading.Add(ctx, 1, metric.WithAttributeSet(*election))
		o.terms.Add(ctx, 1, metric.WithAttributeSet(*election))
	}
}

// holdEnds counts a lease that ends.
func (o *observer) holdEnds(ctx context.Context, a recipes.Acquire, g recipes.Grant, held time.Duration) {
	lock := metric.WithAttributeSet(o.lock(a))
	o.ages.endHold(leaseID{a, g})
	o.held.Add(ctx, -1, lock)
	o.holdDuration.Record(ctx, held.Seconds(), lock)
	if election := o.election(a); election != nil {
		o.leading.Add(ctx, -1, metric.WithAttributeSet(*election))
	}
}

// electionRecipe is what recipes.Acquire.Recipe says of an election.
const electionRecipe = "election"

func (o *observer) released(ctx context.Context, r recipes.Release) {
	o.holdEnds(ctx, r.Acquire, r.Grant, r.Held)
}

func (o *observer) lost(ctx context.Context, l recipes.Loss) {
	o.holdEnds(ctx, l.Acquire, l.Grant, l.Held)
	o.losses.Add(ctx, 1, metric.WithAttributeSet(o.lock(l.Acquire, reasonKey.String(string(l.Reason)))))
}

// lostReleased adds the event at the release, when the caller of Do or Run has
// not ended its span yet, with the time of the loss.
func (o *observer) lostReleased(ctx context.Context, l recipes.Loss) {
	more := []attribute.KeyValue{reasonKey.String(string(l.Reason)), seconds(heldKey, l.Held)}
	if l.Err != nil {
		more = append(more, failureKey.String(valid(l.Err.Error())))
	}
	addEvent(ctx, l.At, lostEvent, l.Acquire, l.Grant, more...)
}

func (o *observer) overran(ctx context.Context, over recipes.Overrun) {
	o.overruns.Add(ctx, 1, metric.WithAttributeSet(o.lock(over.Acquire)))
	addEvent(ctx, time.Now(), overranEvent, over.Acquire, over.Grant, seconds(byKey, over.By))
}

func (o *observer) revoked(ctx context.Context, r recipes.Revocation) {
	o.revocations.Add(ctx, 1, metric.WithAttributeSet(o.lock(r.Acquire)))
	addEvent(ctx, time.Now(), revokedEvent, r.Acquire, r.Grant)
}

// addEvent adds an event to the span of ctx, if it has one that has not ended.
func addEvent(ctx context.Context, at time.Time, name string, a recipes.Acquire, g recipes.Grant, more ...attribute.KeyValue) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent(name, trace.WithTimestamp(at), trace.WithAttributes(leaseAttributes(a, g, more...)...))
	}
}
