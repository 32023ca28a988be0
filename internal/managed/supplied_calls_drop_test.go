package managed

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
)

// Dropped is told of all events that were dropped, also if a function ends its
// goroutine.
func TestDropsAreToldAfterAnObserverExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := make(chan struct{})
		dropped := 0
		o := observing(Observer{
			Retried: func(_ context.Context, r ops.Retry) {
				<-blocked
				if errors.Is(r.Err, io.EOF) {
					runtime.Goexit()
				}
			},
			Dropped: func(events int) { dropped += events },
		})
		for range requestEvents + 10 {
			o.client.Retried(t.Context(), ops.Retry{Err: io.EOF})
		}
		close(blocked)
		o.flush(time.After(time.Second))
		synctest.Wait()
		if dropped != 10 {
			t.Errorf("%d dropped, want 10", dropped)
		}
	})
}
