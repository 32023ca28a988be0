package framework

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/chance"
	"github.com/zkrecipes/zkrecipes/internal/clock"
)

// hold is an interest in the fate of the session: see Session.Hold.
type hold struct {
	lost   func(error)
	number uint64 // counts the holds of the session
}

// hold registers lost to be called once: a stop margin before the deadline, or
// when the session is over.
func (s *session) hold(lost func(error)) (release func(), err error) {
	h := &hold{lost: lost}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.whyUnprovenLocked(clock.Now()); err != nil {
		return nil, err
	}
	if s.holds == nil {
		s.holds = make(map[*hold]struct{})
	}
	s.holdsMade++
	h.number = s.holdsMade
	s.holds[h] = struct{}{}
	s.keepLocked()
	if s.proven.Add(s.timeout - s.margin).Before(s.nextCheck) {
		s.wake() // the next check was planned for a session without holds
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, ok := s.holds[h]; ok {
			delete(s.holds, h)
			s.keepers--
		}
	}, nil
}

// keep makes the heartbeat quick until release is called.
func (s *session) keep() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepLocked()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.keepers--
	})
}

// whyUnproven returns why nothing may be assumed held now, nil if it may.
func (s *session) whyUnproven() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whyUnprovenLocked(clock.Now())
}

// keepLocked wakes run when the first keeper comes.
func (s *session) keepLocked() {
	if s.keepers++; s.keepers == 1 {
		s.wake()
	}
}

func (s *session) wake() {
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// loseHolds tells every hold that it is lost, the oldest first. Later holds are
// refused by whyUnprovenLocked. Nothing that may block runs here: each call
// delays the news for all holds behind it.
func (s *session) loseHolds(why error) {
	s.mu.Lock()
	holds := slices.SortedFunc(maps.Keys(s.holds), func(a, b *hold) int { return cmp.Compare(a.number, b.number) })
	s.holds = nil
	s.keepers -= len(holds)
	s.mu.Unlock()
	for _, h := range holds {
		h.lost(why)
	}
}

// whyUnprovenLocked returns why nothing may be assumed held at now, nil if it
// may.
func (s *session) whyUnprovenLocked(now time.Time) error {
	switch {
	case s.err != nil:
		return s.err
	case s.core.isClosing():
		return ErrClosed
	case s.core.cfg.errorPolicy == ErrorPolicyConnection && !s.up:
		return fmt.Errorf("%w: suspended", ErrSessionLost)
	case s.proven.IsZero() || s.timeout-elapsed(s.proven, now) <= s.margin:
		return ErrUnproven
	}
	return nil
}

// checkClock does what is due at now, and returns for how long nothing else is
// due. It
//
//   - tells the holds at the stop margin,
//   - ends the session at its deadline,
//   - closes a connection whose heartbeat is not answered,
//   - sends the next heartbeat.
//
// A heartbeat is two round trips, one after the other: an R0 and an R1, as
// proof.go has them. While there are keepers one is sent T/6 after the previous
// one. Each is then F = T/3 after the last but one, and proves it, so that a
// lease always has T/2 ahead of it in quiet times. Without keepers one heartbeat
// every T/3 does, with T/3 ahead. In both cases a connection is closed T/2 after
// its last answered heartbeat, while there is time for another connection. Where
// F is longer than T/3 (WithServerTick), heartbeats are sent every T/6 at all
// times, and a connection is closed after T/3.
//
// While there are keepers it runs at least every T/6. A timer stands still
// while the machine is suspended, so the time that has passed must be noticed
// soon afterwards.
func (s *session) checkClock(now time.Time) time.Duration {
	const idle = time.Hour
	s.mu.Lock()
	if s.err != nil || s.proven.IsZero() {
		s.mu.Unlock()
		return idle
	}
	left := s.timeout - elapsed(s.proven, now)
	if left <= 0 {
		s.mu.Unlock()
		s.sever()
		s.end(ErrUnproven)
		return idle
	}
	next := left
	unproven := left <= s.margin && len(s.holds) > 0
	if left > s.margin {
		next = left - s.margin
	}
	third, sixth := s.timeout/3, (s.timeout/3+1)/2 // rounded up: two make F
	interval, patience := third, sixth
	if s.keepers > 0 {
		interval, patience = sixth, third
		next = min(next, sixth)
	}
	if s.proof.wait > third {
		interval, patience = sixth, sixth
	}
	stalled := false
	switch {
	case !s.up:
	case s.heartbeat.sent.IsZero():
		due := s.heartbeat.last.Add(interval).Sub(now)
		if due <= 0 {
			s.heartbeat.sent, s.heartbeat.link = now, s.link
			go s.sendHeartbeat(s.link, s.heartbeat.first)
			due = patience
		}
		next = min(next, due)
	default:
		due := s.heartbeat.sent.Add(patience).Sub(now)
		if stalled = due <= 0; stalled {
			due = patience
		} else if s.heartbeat.throttled {
			due = min(due, s.retryHeartbeatLocked(now, patience))
		}
		next = min(next, due)
	}
	s.nextCheck = now.Add(next)
	sentOn := s.heartbeat.link // not s.link: that may be the next one already
	s.mu.Unlock()
	if unproven {
		s.loseHolds(ErrUnproven)
	}
	if stalled {
		s.core.tasks.Go(func() { _ = sentOn.Close() })
		s.core.onAbandoned(s, "no proof of the leader in time")
		s.suspend() // onDisconnected follows, when the wire client has noticed
	}
	return next
}

// retryHeartbeatLocked sends a throttled heartbeat again when its pause is
// over, and returns how long it must still wait. The pauses are short and have
// jitter, so that several tries fit into the patience, which counts from the
// first of them: the connection to a member that throttles all of them is
// closed.
func (s *session) retryHeartbeatLocked(now time.Time, patience time.Duration) time.Duration {
	if s.heartbeat.retryAt.IsZero() {
		s.heartbeat.retryAt = now.Add(patience/8 + chance.N(patience/8+1))
	}
	if due := s.heartbeat.retryAt.Sub(now); due > 0 {
		return due
	}
	s.heartbeat.throttled, s.heartbeat.retryAt = false, time.Time{}
	go s.sendHeartbeat(s.heartbeat.link, s.heartbeat.first)
	return patience
}

// sendHeartbeat makes two round trips to the leader, one after the other. The
// proof counts the answers as they arrive on the link; here it only matters that
// there are some. first is when the first one was answered, if it was.
func (s *session) sendHeartbeat(on *link, first time.Time) {
	var err error
	if first.IsZero() {
		if _, err = s.conn.Sync("/"); err == nil {
			first = clock.Now()
		}
	}
	if err == nil {
		if s.core.cfg.proof == ProofWrite {
			_, err = s.conn.Multi(&zk.CheckVersionRequest{Path: "/", Version: -1})
		} else {
			_, err = s.conn.Sync("/")
		}
	}
	s.events.put(event{kind: heartbeatDone, err: err, link: on, at: first})
}

// makeRoundTrip makes a round trip that can be R0 or R1 of a proof.
func (s *session) makeRoundTrip(ctx context.Context) error {
	w := scope{core: s.core, in: s}
	if s.core.cfg.proof != ProofWrite {
		return w.sync(ctx, "/")
	}
	_, err := w.multi(ctx, []any{&zk.CheckVersionRequest{Path: "/", Version: -1}})
	if s.Err() == nil && ctx.Err() == nil && (errors.Is(err, zk.ErrNoAuth) || MaybeApplied(err)) {
		return nil // a refusal has made the round trip, too; after a lost answer another one is made
	}
	return err
}

// onHeartbeat runs when a heartbeat was answered or has failed.
func (s *session) onHeartbeat(e event) {
	if isThrottled(e.err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.heartbeat.link == e.link {
			s.heartbeat.throttled, s.heartbeat.first = true, e.at
		}
		return // checkClock sends it again, or the second half of it
	}
	if e.err != nil && classify(e.err) != final {
		return // the connection has ended, or is about to be closed
	} // a refusal has made the round trip, too
	s.core.pace.reset()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heartbeat.link == e.link {
		if e.at.IsZero() {
			e.at = clock.Now()
		}
		s.heartbeat = heartbeat{last: e.at}
	}
}
