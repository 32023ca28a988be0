package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// Who waits for another's round trip waits until its own context or the session
// ends, and makes none itself.
func TestWhatEndsTheWaitForARoundTrip(t *testing.T) {
	for want, end := range map[error]func(s *Session, cancel func()){
		context.Canceled:  func(_ *Session, cancel func()) { cancel() },
		zkerr.SessionLost: func(s *Session, _ func()) { s.End(zkerr.SessionLost) },
		nil:               func(s *Session, _ func()) { close(s.trip.underWay) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := standing()
			s.trip.underWay = make(chan struct{}) // by another goroutine
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			errs := make(chan error, 1)
			go func() {
				errs <- s.shareRoundTrip(ctx, func(context.Context) error { t.Error("it makes one"); return nil })
			}()
			if synctest.Wait(); len(errs) > 0 {
				t.Fatalf("it does not wait: %v", <-errs)
			}
			end(s, cancel)
			if err := <-errs; !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
}
