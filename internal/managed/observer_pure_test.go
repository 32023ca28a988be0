package managed

import (
	"context"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
)

// An observer that wants neither the start nor the end of a request gets none.
func TestAnObserverOfNoRequests(t *testing.T) {
	o := Observed[Observer]{By: &Observer{Retried: func(context.Context, ops.Retry) {}}}
	if startRequest(t.Context(), o, ops.Request{}) != nil {
		t.Error("it gets the end of a request")
	}
}
