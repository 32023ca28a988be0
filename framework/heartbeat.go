package framework

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/chance"
	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
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
	now := clock.Now()
	if err := s.whyUnprovenLocked(now); err != nil {
		return nil, err
	}
	if s.holds == nil {
		s.holds = make(map[*hold]struct{})
	}
	s.holdsMade++
	h.number = s.holdsMade
	if !s.isHeldLocked() {
		s.beginHoldingLocked(now)
	}
	if left := s.timeout - elapsed(s.proven, now); now.Add(left - s.margin).Before(s.nextCheck) {
		s.wake() // the next check was planned without holds, maybe behind the stop margin
	}
	s.holds[h] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.holds, h)
	}, nil
}

// keep makes the session send heartbeats until release is called: see
// Session.Keep.
func (s *session) keep() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isHeldLocked() && s.proof != nil {
		s.beginHoldingLocked(clock.Now())
	}
	s.keepers++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.keepers--
	})
}

// whyUnproven returns nil if the session is Proven now, and otherwise the
// reason.
func (s *session) whyUnproven() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whyUnprovenLocked(clock.Now())
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
	s.mu.Unlock()
	for _, h := range holds {
		h.lost(why)
	}
}

// whyUnprovenLocked returns nil if the session is Proven at now, and otherwise
// the reason.
func (s *session) whyUnprovenLocked(now time.Time) error {
	switch {
	case s.err != nil:
		return s.err
	case s.core.isClosing():
		return ErrClosed
	case s.core.cfg.errorPolicy == ErrorPolicyConnection && !s.up:
		return ErrSuspended
	case s.proven.IsZero() || s.timeout-elapsed(s.proven, now) <= s.margin:
		return ErrUnproven
	}
	return nil
}

// checkClock does what is due at now, and returns how long to wait until it
// must run again. While something is held it
//
//   - reports the loss to the holds at the stop margin, and ends the session at
//     its deadline,
//   - sends the next heartbeat.
//
// A session that holds nothing sends no heartbeat, and its deadline may pass.
// The wire client's pings keep it alive, one every T/3, which any member
// answers. It ends when the ensemble says so, or when no server has answered
// anything for T. So its callers learn that no server can be reached.
//
// In both cases checkClock closes a connection on which a request, a ping
// included, is not answered for T/3.
//
// A heartbeat is two round trips, one after the other: the R0 and the R1 of
// proof.go. One is sent T/6 after the previous one. So it is F = T/3 after the
// last but one, and proves that. While all are answered at once, a lease has
// about T/2 ahead of it or more. If it has clearly less, as after an idle time,
// a heartbeat is sent as soon as it can prove more.
//
// A connection on which a heartbeat is not answered for T/3 is closed. It is
// closed earlier if only T/6 is left until the deadline, so that there is time
// for another connection; and after T/6 if F is longer than T/3
// (WithServerTick).
//
// A timer stands still while the machine is suspended, and the time that has
// passed must be noticed soon afterwards. So checkClock runs at least every T/6
// while something is held, and otherwise at least every T/3.
func (s *session) checkClock(now time.Time) time.Duration {
	const idle = time.Hour
	s.mu.Lock()
	if s.err != nil || s.proven.IsZero() {
		s.mu.Unlock()
		return idle
	}
	third, sixth := s.timeout/3, s.sixth()
	next := third
	left := s.timeout - elapsed(s.proven, now)
	unproven := left <= s.margin && len(s.holds) > 0
	s.doubted = unproven || s.doubted && left <= s.margin
	over := left <= 0 && s.doubted
	beating := s.isHeldLocked() || !s.heartbeat.sent.IsZero()
	if s.isHeldLocked() {
		next = sixth
	}
	switch {
	case s.doubted:
		next = min(next, left)
	case len(s.holds) > 0:
		next = min(next, left-s.margin)
	default:
		silent := s.timeout - elapsed(s.answered, now)
		over, next = silent <= 0, min(next, silent)
	}
	if over {
		s.mu.Unlock()
		s.sever()
		s.end(ErrUnproven)
		return idle
	}
	stalled := false
	on := s.link
	if s.up {
		if !s.useful && s.proof.answers > 1 { // the connect's is the first
			s.useful = true
			s.core.pace.reset()
		}
		var due time.Duration
		if due, stalled = s.awaitAnswersLocked(now); !stalled && beating {
			if !s.heartbeat.sent.IsZero() {
				on = s.heartbeat.link // not s.link: that may be the next one already
			}
			var beat time.Duration
			beat, stalled = s.beatLocked(now, left)
			due = min(due, beat)
		}
		next = min(next, due)
	}
	s.nextCheck = now.Add(next)
	s.mu.Unlock()
	if unproven {
		s.loseHolds(ErrUnproven)
	}
	if stalled {
		s.core.tasks.Go(func() { _ = on.Close() })
		s.core.onAbandoned(s, AbandonedUnproven)
		s.suspend() // onDisconnected follows, when the wire client has noticed
	}
	return next
}

// isHeldLocked reports whether anybody needs the heartbeat.
func (s *session) isHeldLocked() bool { return len(s.holds) > 0 || s.keepers > 0 }

// sixth is T/6, rounded up: two of them make F.
func (s *session) sixth() time.Duration { return (s.timeout/3 + 1) / 2 }

// usuallyLeftLocked is how far ahead the deadline is right before a heartbeat
// moves it on: T/2, unless F is longer than T/3.
func (s *session) usuallyLeftLocked() time.Duration {
	return s.timeout - s.proof.wait - s.sixth()
}

// awaitAnswersLocked returns how much longer the oldest request may stay
// unanswered, and whether it is unanswered for too long.
func (s *session) awaitAnswersLocked(now time.Time) (due time.Duration, stalled bool) {
	patience := s.timeout / 3
	oldest, ok := s.proof.oldest()
	if !ok {
		return patience, false
	}
	if due = patience - now.Sub(oldest); due <= 0 {
		return patience, true
	}
	return due, false
}

// beatLocked sends a heartbeat if one is due. It returns how long to wait until
// it must run again, and whether a heartbeat is unanswered for too long.
func (s *session) beatLocked(now time.Time, left time.Duration) (due time.Duration, stalled bool) {
	patience := s.timeout / 3
	if s.proof.wait > patience {
		patience = s.sixth()
	}
	if s.heartbeat.sent.IsZero() {
		due = s.heartbeat.last.Add(s.sixth()).Sub(now)
		if provable, ok := s.proof.provable(now); ok {
			// A little less than usual is normal, since answers take time. A heartbeat
			// for that alone would be too early to prove anything, and another one
			// would be needed.
			early := max(provable, left-s.usuallyLeftLocked())
			if early+min(6*s.heartbeat.took, s.timeout/24) < due {
				due = early
			}
		}
		if due > 0 {
			return due, false
		}
		s.heartbeat.sent, s.heartbeat.link = now, s.link
		go s.sendHeartbeat(s.link, s.heartbeat.first)
	}
	// Not so long that no time is left for another connection, but long enough
	// for an answer.
	patience = min(patience, max(now.Sub(s.heartbeat.sent)+left-s.timeout/6, s.timeout/12))
	if due = s.heartbeat.sent.Add(patience).Sub(now); due <= 0 {
		return patience, true
	}
	if s.heartbeat.throttled {
		due = min(due, s.retryHeartbeatLocked(now, patience))
	}
	return due, false
}

// beginHoldingLocked plans the first heartbeat for what is held from now on:
// T/6 from now, or earlier if checkClock finds a reason. A client that
// repeatedly holds something for a moment sends none: its other requests prove
// the session.
func (s *session) beginHoldingLocked(now time.Time) {
	if s.heartbeat.sent.IsZero() {
		s.heartbeat.last = now
	}
	left := s.timeout - elapsed(s.proven, now)
	if due := min(s.sixth(), left-s.usuallyLeftLocked()); now.Add(due).Before(s.nextCheck) {
		s.wake() // the next check was planned for a session without holds
	}
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
		err := s.makeRoundTrip(ctx)
		s.mu.Lock()
		s.proving = nil
		s.mu.Unlock()
		close(mine)
		return err
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

// ahead returns the time until the deadline.
func (s *session) ahead() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout - elapsed(s.proven, clock.Now())
}

func (s *session) granted() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

// untilProvable returns how long Prove waits before its next pair of round
// trips.
func (s *session) untilProvable() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proof == nil {
		return s.sixth()
	}
	after, ok := s.proof.provable(clock.Now())
	if !ok || after <= 0 {
		return s.sixth()
	}
	return min(after, s.sixth())
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heartbeat.link == e.link {
		if e.at.IsZero() {
			e.at = clock.Now()
		}
		s.heartbeat = heartbeat{last: e.at, took: e.at.Sub(s.heartbeat.sent)}
	}
}
