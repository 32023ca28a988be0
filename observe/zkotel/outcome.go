package zkotel

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Outcomes that are no errors. A try asks whether the lock is busy, and a
// caller that cancels no longer wants it.
const (
	busy     = "busy"
	canceled = "canceled"
)

// otherFailure is the outcome of a call that failed for a reason that has no
// name.
const otherFailure = "error"

// errorType returns the class of an error, by the outcome of a call.
func errorType(outcome string) attribute.KeyValue {
	if outcome == otherFailure {
		return semconv.ErrorTypeOther
	}
	return semconv.ErrorTypeKey.String(outcome)
}

// answerCodes are codes of requests that have failed, but are no errors. They
// are answers about the tree: a znode was not there, was there already, had
// another version, or had children. Recipes make requests to learn that, and of
// a user's request only the caller knows what was expected. The dashboard of
// zkprom has the same codes.
var answerCodes = map[string]bool{"NONODE": true, "NODEEXISTS": true, "BADVERSION": true, "NOTEMPTY": true}

// codeType returns the class of an error, by the code of a request.
func codeType(code string) attribute.KeyValue {
	if code == "OTHER" {
		return semconv.ErrorTypeOther
	}
	return semconv.ErrorTypeKey.String(code)
}
