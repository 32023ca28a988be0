package framework

import (
	"context"
	"testing"
)

// An observer that wants neither the start nor the end of a request gets none.
func TestAnObserverOfNoRequests(t *testing.T) {
	o := &observer{Observer: Observer{Retried: func(context.Context, Retry) {}}}
	if o.startRequest(t.Context(), Request{}) != nil {
		t.Error("it gets the end of a request")
	}
}
