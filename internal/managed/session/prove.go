package session

import (
	"context"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/proof"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// proveFor is how many session timeouts Prove may take, without the time of an
// outage: see proof.Online. A contender that is first in line and cannot be
// proven keeps all others waiting, since its connections keep its session
// alive. In an outage they do not, and the retry policy decides.
const proveFor = 3

// Prove makes round trips until the session is proven, and calls claim. If
// claim fails it continues. roundTrip makes one that can be R0 or R1 of a
// proof.
func (s *Session) Prove(ctx context.Context, roundTrip func(context.Context) error, claim func() error) error {
	if enough, err := s.isProvenToLast(); err != nil || enough && s.isFarAhead() && claim() == nil {
		return err
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	began, most := s.onlineFor(), proveFor*s.Timeout()
	var check *time.Timer
	check = time.AfterFunc(most, func() {
		rest := most - (s.onlineFor() - began)
		if rest <= 0 {
			cancel()
		}
		if within.Err() == nil { // Stop may have come already, too early for a Reset
			check.Reset(max(rest, most/64))
		}
	})
	defer check.Stop()
	err := s.proveWithin(within, roundTrip, claim)
	if err == nil || ctx.Err() != nil || within.Err() == nil {
		return err
	}
	return s.unprovable(s.onlineFor() - began)
}

func (s *Session) proveWithin(ctx context.Context, roundTrip func(context.Context) error, claim func() error) error {
	for try := range 3 {
		enough, err := s.isProvenToLast()
		switch {
		case err != nil:
			return err
		case enough && (try == 2 || s.isFarAhead()) && claim() == nil:
			return nil
		case try == 2:
			continue
		}
		if err := s.shareRoundTrip(ctx, roundTrip); err != nil && s.WhyUnproven() != nil {
			return err
		}
	}
	// The round trips have shown that the leader is there. Now heartbeats make
	// contact, and prove it when it is old enough.
	defer s.Keep()()
	for {
		news, up := s.awaitNews()
		if enough, err := s.isProvenToLast(); err != nil || enough && claim() == nil {
			return err
		}
		if !up {
			if err := s.shareRoundTrip(ctx, roundTrip); err != nil {
				return err
			}
			continue
		}
		select {
		case <-news:
		case <-s.over:
			return s.Err()
		case <-ctx.Done():
			return ctxerr.Of(ctx)
		}
	}
}

// unprovable is a proof.Unprovable that wraps zkerr.Unproven.
type unprovable struct{ proof.Unprovable }

func (unprovable) Unwrap() error { return zkerr.Unproven }

// shareRoundTrip calls roundTrip, or waits until another goroutine's call has
// ended. It fails only if its own call fails, or if the wait ends early.
func (s *Session) shareRoundTrip(ctx context.Context, roundTrip func(context.Context) error) error {
	others, end := s.trip.begin()
	if others == nil {
		defer end() // even if user code ends the goroutine
		return roundTrip(ctx)
	}
	select {
	case <-others:
		return nil
	case <-s.over:
		return s.Err()
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	}
}

// sharedTrip lets one goroutine at a time make a round trip, for all.
type sharedTrip struct {
	mu       sync.Mutex    // guards underWay
	underWay chan struct{} // nil: none is; closed: it was made
}

// begin returns a channel that is closed when the trip of another goroutine has
// ended. If there is none it returns nil, and the caller makes one until end.
func (t *sharedTrip) begin() (others <-chan struct{}, end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.underWay != nil {
		return t.underWay, nil
	}
	mine := make(chan struct{})
	t.underWay = mine
	return nil, func() {
		t.mu.Lock()
		t.underWay = nil
		t.mu.Unlock()
		close(mine)
	}
}
