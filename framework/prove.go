package framework

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/proof"
)

// proveFor is how many session timeouts Prove may take, without the time of an
// outage: see proof.Online. A contender that is first in line and cannot be
// proven keeps all others waiting, since its connections keep its session
// alive. In an outage they do not, and the retry policy decides.
const proveFor = 3

// prove makes round trips until the session is proven, and calls claim. If
// claim fails it goes on.
func (s *session) prove(ctx context.Context, claim func() error) error {
	if enough, err := s.isProvenToLast(); err != nil || enough && s.isFarAhead() && claim() == nil {
		return err
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	began, most := s.onlineFor(), proveFor*s.granted()
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
	err := s.proveWithin(within, claim)
	if err == nil || ctx.Err() != nil || within.Err() == nil {
		return err
	}
	return s.unprovable(s.onlineFor() - began)
}

func (s *session) onlineFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.online.For(time.Now(), s.evidence.Timeout())
}

func (s *session) proveWithin(ctx context.Context, claim func() error) error {
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
		if err := s.shareRoundTrip(ctx); err != nil && s.whyUnproven() != nil {
			return err
		}
	}
	// The round trips have shown that the leader is there. Now heartbeats make
	// contact, and prove it when it is old enough.
	defer s.keep()()
	for {
		news, up := s.awaitNews()
		if enough, err := s.isProvenToLast(); err != nil || enough && claim() == nil {
			return err
		}
		if !up {
			if err := s.shareRoundTrip(ctx); err != nil {
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
func (s *session) isProvenToLast() (bool, error) {
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
func (s *session) isFarAhead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, _ := s.evidence.Left(clock.Now())
	return left >= s.evidence.Timeout()/3
}

// awaitNews returns a channel that is closed when more is proven or the
// connection ends, and whether there is one.
func (s *session) awaitNews() (news <-chan struct{}, up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.news == nil {
		s.news = make(chan struct{})
	}
	return s.news, s.up
}

// tellProversLocked wakes up those that wait in prove.
func (s *session) tellProversLocked() {
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
}

// unprovable is a proof.Unprovable that wraps ErrUnproven.
type unprovable struct{ proof.Unprovable }

func (unprovable) Unwrap() error { return ErrUnproven }

func (s *session) unprovable(waited time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unprovableLocked(waited)
}

func (s *session) unprovableLocked(waited time.Duration) unprovable {
	return unprovable{s.evidence.Unprovable(clock.Now(), waited)}
}

// makeRoundTrip makes a round trip that can be R0 or R1 of a proof.
func (s *session) makeRoundTrip(ctx context.Context) error {
	w := scope{core: s.core, in: s}
	if s.core.cfg.proof != ProofWrite {
		return w.sync(ctx, "/")
	}
	_, err := w.multi(ctx, []any{&zk.CheckVersionRequest{Path: "/", Version: -1}})
	if s.Err() == nil && ctx.Err() == nil && (errors.Is(err, zk.ErrNoAuth) || MaybeApplied(err)) {
		return nil // a refusal has also made the round trip; after a lost answer another one is made
	}
	return err
}

// shareRoundTrip calls makeRoundTrip, or waits until another goroutine's call
// has ended. It fails only if its own call fails, or if the wait ends early.
func (s *session) shareRoundTrip(ctx context.Context) error {
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
		return s.makeRoundTrip(ctx)
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
