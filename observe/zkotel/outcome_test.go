package zkotel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Each way in which a call can end has its outcome, and those that are errors
// have it as their type.
func TestOutcomes(t *testing.T) {
	for _, tt := range []struct {
		outcome   string
		how       recipes.How
		err       error
		errorType string // empty: no error
	}{
		{"ensemble", recipes.GrantedByEnsemble, nil, ""},
		{"handoff", recipes.GrantedByHandoff, nil, ""},
		{"linger", recipes.GrantedByLinger, nil, ""},
		{"share", recipes.GrantedByShare, nil, ""},
		{"reentry", recipes.GrantedByReentry, nil, ""},
		{"busy", "", recipes.ErrBusy, ""},
		{"canceled", "", context.Canceled, ""},
		{"timeout", "", context.DeadlineExceeded, "timeout"},
		{"layout", "", recipes.ErrLayout, "layout"},
		{"deadlock", "", recipes.ErrDeadlock, "deadlock"},
		{"exhausted", "", recipes.ErrExhausted, "exhausted"},
		{"closed", "", framework.ErrClosed, "closed"},
		{"no_auth", "", zk.ErrNoAuth, "no_auth"},
		{"session_lost", "", framework.ErrSessionLost, "session_lost"},
		{"unreachable", "", zk.ErrNoServer, "unreachable"},
		{"error", "", errors.New("refused"), "_OTHER"},
	} {
		t.Run(tt.outcome, func(t *testing.T) {
			tel := newTelemetry(t)
			o := zkotel.NewObservers(zkotel.TracerProvider(tel.traces), zkotel.MeterProvider(tel.metrics))
			call := recipes.Acquire{Recipe: "mutex", Mode: "exclusive", Path: "/lock", Label: "/lock", Permits: 1}
			result := recipes.AcquireResult{Grant: recipes.Grant{How: tt.how}}
			if tt.err != nil {
				result = recipes.AcquireResult{Err: fmt.Errorf("recipes: acquire /lock: %w", tt.err)}
			}
			o.AcquireEnd(o.AcquireStart(t.Context(), call), call, result)

			span := tel.spans.GetSpans()[0]
			if got := value(span.Attributes, "zkrecipes.outcome").AsString(); got != tt.outcome {
				t.Errorf("outcome %q", got)
			}
			if got := value(span.Attributes, "error.type").AsString(); got != tt.errorType {
				t.Errorf("error type %q, want %q", got, tt.errorType)
			}
			if isError := span.Status.Code == codes.Error; isError != (tt.errorType != "") {
				t.Errorf("status %v", span.Status)
			}
			durations, ok := tel.collected("zkrecipes.acquire.duration").(metricdata.Histogram[float64])
			if !ok || counted(durations, []attribute.KeyValue{attribute.String("zkrecipes.outcome", tt.outcome)}) != 1 {
				t.Errorf("durations: %v, want one with this outcome", durations)
			}
		})
	}
}
