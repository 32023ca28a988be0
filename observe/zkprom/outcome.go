package zkprom

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// failures are the outcomes of calls of Acquire that were granted nothing. The
// first that fits is used: a context that ended because a client was closed is
// canceled.
var failures = []struct {
	outcome string
	errs    []error
}{
	{"busy", []error{recipes.ErrBusy}},
	{"layout", []error{recipes.ErrLayout}},
	{"deadlock", []error{recipes.ErrDeadlock}},
	{"exhausted", []error{recipes.ErrExhausted}},
	{"timeout", []error{context.DeadlineExceeded}},
	{"canceled", []error{context.Canceled}},
	{"closed", []error{framework.ErrClosed}},
	{"no_auth", []error{zk.ErrNoAuth, zk.ErrAuthFailed}},
	{"session_lost", []error{framework.ErrSessionLost, zk.ErrSessionExpired}},
	{"unreachable", []error{framework.ErrNoSession, zk.ErrNoServer, zk.ErrConnectionClosed}},
}

// outcome returns how a call of Acquire was granted, or why it was not. There
// are only a few values.
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
	return "error"
}
