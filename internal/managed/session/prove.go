package session

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/clock"
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

func (s *Session) onlineFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.online.For(time.Now(), s.evidence.Timeout())
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

// isProvenToLast reports whether the session is Proven, and a hold that begins
// now would last. It fails if none can ever last.
func (s *Session) isProvenToLast() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false, s.err
	}
	now := clock.Now()
	if s.whyUnprovenLocked(now) != nil {
		return false, nil
	}
	if !s.evidence.CanLast() {
		return false, s.unprovableLocked(0)
	}
	return s.evidence.Lasts(now, s.isHeldLocked()), nil
}

// isFarAhead reports whether the deadline is so far away that it is not worth a
// request to move it.
func (s *Session) isFarAhead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, _ := s.evidence.Left(clock.Now())
	return left >= s.evidence.Timeout()/3
}

// awaitNews returns a channel that is closed when more is proven or the
// connection ends, and whether there is one.
func (s *Session) awaitNews() (news <-chan struct{}, up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.news == nil {
		s.news = make(chan struct{})
	}
	return s.news, s.up
}

// unprovable is a proof.Unprovable that wraps zkerr.Unproven.
type unprovable struct{ proof.Unprovable }

func (unprovable) Unwrap() error { return zkerr.Unproven }

func (s *Session) unprovable(waited time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unprovableLocked(waited)
}

func (s *Session) unprovableLocked(waited time.Duration) unprovable {
	return unprovable{s.evidence.Unprovable(clock.Now(), waited)}
}

// shareRoundTrip calls roundTrip, or waits until another goroutine's call has
// ended. It fails only if its own call fails, or if the wait ends early.
func (s *Session) shareRoundTrip(ctx context.Context, roundTrip func(context.Context) error) error {
	s.mu.Lock()
	others := s.proving
	if others == nil {
		s.proving = make(chan struct{})
	}
	mine := s.proving
	s.mu.Unlock()
	if others == nil {
		defer func() { // even if user code ends the goroutine
			s.mu.Lock()
			s.proving = nil
			s.mu.Unlock()
			close(mine)
		}()
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
