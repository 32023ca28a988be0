package zkotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// acquisition is what the context of a call of Acquire has between its start
// and its end.
type acquisition struct {
	of     *observer
	span   trace.Span
	lock   attribute.Set // the lock's attributes
	wait   *lasting
	caller trace.Span   // of the context that the caller gave
	outer  *acquisition // of another observer of the same call
}

type acquisitionKey struct{}

func acquisitionOf(ctx context.Context) *acquisition {
	a, _ := ctx.Value(acquisitionKey{}).(*acquisition)
	return a
}

// own returns what o has begun in ctx, nil if that is nothing.
func (o *observer) own(ctx context.Context) *acquisition {
	a := acquisitionOf(ctx)
	for a != nil && a.of != o {
		a = a.outer
	}
	return a
}

// acquireStart begins a span as a child of the caller's. So do further
// observers: the span of one is not the parent of another one's.
func (o *observer) acquireStart(ctx context.Context, a recipes.Acquire) context.Context {
	lock, election := o.lock(a), o.election(a)
	o.waiting.Add(ctx, 1, metric.WithAttributeSet(lock))
	if election != nil { // at 0, so that a backend sees the first change
		o.leading.Add(ctx, 0, metric.WithAttributeSet(*election))
		o.terms.Add(ctx, 0, metric.WithAttributeSet(*election))
	}
	outer, caller := acquisitionOf(ctx), trace.SpanFromContext(ctx)
	parent := ctx
	if outer != nil {
		caller = outer.caller
		parent = trace.ContextWithSpan(ctx, caller)
	}
	begun, span := o.tracer.Start(parent, "acquire "+a.Recipe,
		trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(append(callAttributes(a), o.attributes...)...))
	wait := o.ages.beginWait(lock, election) // last: if the tracer panics, nothing would end it
	return context.WithValue(begun, acquisitionKey{}, &acquisition{o, span, lock, wait, caller, outer})
}

// acquireEnd counts first: a span processor of the user may panic, here or at
// the start, and then there is no span.
func (o *observer) acquireEnd(ctx context.Context, a recipes.Acquire, r recipes.AcquireResult) {
	begun, end := o.own(ctx), recipes.Outcome(r)
	if begun == nil {
		begun = &acquisition{span: noop.Span{}, lock: o.lock(a)}
	}
	o.ages.endWait(begun.wait)
	o.waiting.Add(ctx, -1, metric.WithAttributeSet(begun.lock))
	o.acquireDuration.Record(ctx, r.Waited.Seconds(), metric.WithAttributeSet(o.lock(a, outcomeKey.String(end))))
	if r.Err == nil {
		o.holdBegins(ctx, a, r.Grant, begun.lock)
	}
	describe(begun.span, r, end)
	begun.span.End()
}

// describe says on a span how its call has ended.
func describe(span trace.Span, r recipes.AcquireResult, end string) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(outcomeKey.String(end), seconds(waitedKey, r.Waited))
	if r.Err == nil {
		span.SetAttributes(grantAttributes(r.Grant)...)
		return
	}
	failure := valid(r.Err.Error())
	span.SetAttributes(failureKey.String(failure))
	if end == busy || end == canceled {
		return
	}
	span.SetStatus(codes.Error, failure)
	span.SetAttributes(errorType(end))
}
