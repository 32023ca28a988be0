package managed_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// An observer's function that ended its goroutine, as t.FailNow does, ended the
// delivery of all events.
func TestAnObserverThatExits(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		requests := make(chan string, 100)
		c, _ := connect(t, ens, framework.WithObserver(framework.Observer{
			StateChanged: func(framework.StateChange) { runtime.Goexit() },
			RequestEnd: func(_ context.Context, r framework.Request, _ framework.RequestResult) {
				requests <- r.Op
			},
		}))
		if _, _, err := c.Exists(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
		bubble.Await(t, "the request to be observed", requests)
	})
}
