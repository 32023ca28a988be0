package standing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	life "github.com/zkrecipes/zkrecipes/internal/managed/session"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// Ends says what ends a wait, and with which errors. nil: that does not end it.
type Ends struct{ ByContext, ByLink, BySession error }

// Check begins a wait for each of these, in virtual time, and lets that happen.
func (e Ends) Check(t *testing.T, name string, begin func() (s *life.Session, on *link.Link, wait func(context.Context) error)) {
	t.Helper()
	for by, want := range map[string]error{"its context": e.ByContext, "the connection": e.ByLink, "the session": e.BySession} {
		if want == nil {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			s, on, wait := begin()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			errs := make(chan error, 1)
			go func() { errs <- wait(ctx) }()
			if synctest.Wait(); len(errs) > 0 {
				t.Fatalf("%s: it does not wait: %v", name, <-errs)
			}
			switch by {
			case "its context":
				cancel()
			case "the connection":
				on.End()
			case "the session":
				s.End(zkerr.SessionLost)
			}
			if synctest.Wait(); len(errs) == 0 {
				t.Errorf("%s: %s has ended, and it goes on", name, by)
			} else if err := <-errs; !errors.Is(err, want) {
				t.Errorf("%s: after the end of %s %v, want %v", name, by, err, want)
			}
			s.End(zkerr.SessionLost) // and all that is left
			on.End()
			time.Sleep(time.Hour)
		})
	}
}
