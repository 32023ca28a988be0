package recipes

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
)

// failures are the outcomes of calls of Acquire that failed. The first match is
// used: a context that ended because a client was closed is "canceled".
var failures = []struct {
	outcome string
	errs    []error
}{
	{"busy", []error{ErrBusy}},
	{"layout", []error{ErrLayout}},
	{"deadlock", []error{ErrDeadlock}},
	{"exhausted", []error{ErrExhausted}},
	{"timeout", []error{context.DeadlineExceeded}},
	{"canceled", []error{context.Canceled}},
	{"closed", []error{framework.ErrClosed}},
	{"no_auth", []error{zk.ErrNoAuth, zk.ErrAuthFailed}},
	{"session_lost", []error{framework.ErrSessionLost, zk.ErrSessionExpired}},
	{"unreachable", []error{framework.ErrNoSession, zk.ErrNoServer, zk.ErrConnectionClosed}},
}

// Outcome returns a short name for the result of a call of Acquire, to be used
// as a label of metrics. If the call was granted it is r.Grant.How. Otherwise
// it is "busy", "timeout", "canceled", "closed", "deadlock", "layout",
// "exhausted", "no_auth", "session_lost" or "unreachable", or "error" for any
// other error.
func Outcome(r AcquireResult) string {
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
	return "error"
}
