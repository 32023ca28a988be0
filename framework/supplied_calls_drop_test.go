package framework

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// Dropped is told of all events that were dropped, also if a function ends its
// goroutine.
func TestDropsAreToldAfterAnObserverExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := make(chan struct{})
		dropped := 0
		o := newObservers([]Observer{{
			Retried: func(_ context.Context, r Retry) {
				<-blocked
				if errors.Is(r.Err, errExited) {
					runtime.Goexit()
				}
			},
			Dropped: func(d Drop) { dropped += d.Events },
		}}, zap.NewNop())
		for range requestEvents + 10 {
			o.retried(t.Context(), Retry{Err: errExited})
		}
		close(blocked)
		o.flush(time.After(time.Second))
		synctest.Wait()
		if dropped != 10 {
			t.Errorf("%d dropped, want 10", dropped)
		}
	})
}
