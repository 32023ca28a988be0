package zkotel

import (
	"context"
	"net"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/framework"
)

// systemName is the db.system.name. The semantic conventions have no name for
// ZooKeeper, and allow a custom one.
const systemName = "zookeeper"

// clientCodes are the codes that say why there is no answer of the ensemble.
var clientCodes = map[string]bool{
	"CONNECTIONLOSS": true, "NOSERVER": true, "CLOSED": true, "UNPROVEN": true,
	"TIMEOUT": true, "CANCELED": true, "OTHER": true,
}

// requestEnd records a request that has ended, perhaps a while ago.
func (o *observer) requestEnd(ctx context.Context, r framework.Request, result framework.RequestResult) {
	all := append(requestAttributes(r, result), o.attributes...)
	parent := ctx
	if own := o.own(ctx); own != nil {
		parent = trace.ContextWithSpan(ctx, own.span)
	}
	o.operations.Inst().Record(parent, result.Took.Seconds(), metric.WithAttributeSet(attribute.NewSet(all...)))
	if !o.requestSpans || !trace.SpanContextFromContext(parent).IsValid() {
		return
	}
	all = append(all, pathKey.String(r.Path), sessionKey.String(sessionText(r.Session)))
	if r.Operations > 1 {
		all = append(all, semconv.DBOperationBatchSize(r.Operations))
	}
	_, span := o.tracer.Start(parent, r.Op+" "+r.Server, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(r.Began), trace.WithAttributes(all...))
	if result.Err != nil && !answerCodes[result.Code] {
		span.SetStatus(codes.Error, valid(result.Err.Error()))
	}
	span.End(trace.WithTimestamp(r.Began.Add(result.Took)))
}

// requestAttributes are those of the metric and of the span.
func requestAttributes(r framework.Request, result framework.RequestResult) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 16)
	all = append(all, semconv.DBSystemNameKey.String(systemName), semconv.DBOperationName(r.Op))
	if host, port, err := net.SplitHostPort(r.Server); err == nil {
		all = append(all, semconv.ServerAddress(host))
		if n, err := strconv.Atoi(port); err == nil {
			all = append(all, semconv.ServerPort(n))
		}
	}
	if result.Err == nil {
		return all
	}
	if !clientCodes[result.Code] {
		all = append(all, semconv.DBResponseStatusCode(result.Code))
	}
	if answerCodes[result.Code] {
		return all
	}
	return append(all, codeType(result.Code))
}

func (o *observer) retried(ctx context.Context, r framework.Retry) {
	o.retries.Add(ctx, 1, o.set(semconv.DBOperationName(r.Op), codeType(framework.ErrorCode(r.Err))))
}

func (o *observer) batched(b framework.Batch) {
	o.batches.Record(context.Background(), int64(b.Operations), o.set())
}
