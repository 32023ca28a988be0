package zkotel

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Outcomes that are no errors. A try asks whether the lock is busy, and a caller
// that cancels does not want it any longer.
const (
	busy     = "busy"
	canceled = "canceled"
)

// otherFailure is the outcome of a call that failed for another reason than those
// in failures.
const otherFailure = "error"

// failures are the outcomes of calls that were granted nothing. The first that fits
// is used. The names are those of package zkprom.
var failures = []struct {
	outcome string
	errs    []error
}{
	{busy, []error{recipes.ErrBusy}},
	{"layout", []error{recipes.ErrLayout}},
	{"deadlock", []error{recipes.ErrDeadlock}},
	{"exhausted", []error{recipes.ErrExhausted}},
	{"timeout", []error{context.DeadlineExceeded}},
	{canceled, []error{context.Canceled}},
	{"closed", []error{framework.ErrClosed}},
	{"no_auth", []error{zk.ErrNoAuth, zk.ErrAuthFailed}},
	{"session_lost", []error{framework.ErrSessionLost, zk.ErrSessionExpired}},
	{"unreachable", []error{framework.ErrNoSession, zk.ErrNoServer, zk.ErrConnectionClosed}},
}

// outcome returns how a call of Acquire was granted, or why it was not.
func outcome(r framework.AcquireResult) string {
	if r.Err == nil {
		return string(r.Grant.How)
	}
	for _, f := range failures {
		for _, err := range f.errs {
			if errors.Is(r.Err, err) {
				return f.outcome
			}
		}
	}
	return otherFailure
}

// errorType returns the class of an error, by the outcome of a call.
func errorType(outcome string) attribute.KeyValue {
	if outcome == otherFailure {
		return semconv.ErrorTypeOther
	}
	return semconv.ErrorTypeKey.String(outcome)
}

// codeType returns the class of an error, by the code of a request.
func codeType(code string) attribute.KeyValue {
	if code == "OTHER" {
		return semconv.ErrorTypeOther
	}
	return semconv.ErrorTypeKey.String(code)
}
