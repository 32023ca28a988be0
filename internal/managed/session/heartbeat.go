package session

import (
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/proof"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// Hold registers lost to be called once: a stop margin before the deadline, or
// when the session is over.
func (s *Session) Hold(lost func(error)) (release func(), err error) {
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
	if left, _ := s.evidence.Left(now); now.Add(left - s.evidence.Margin()).Before(s.nextCheck) {
		s.wake() // the next check was planned without holds, maybe behind the stop margin
	}
	s.holds[h] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		h.released = true
		delete(s.holds, h)
	}, nil
}

// Keep makes the session send heartbeats until release is called.
func (s *Session) Keep() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isHeldLocked() && s.evidence.IsKnown() {
		s.beginHoldingLocked(clock.Now())
	}
	s.keepers++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.keepers--
	})
}

// WhyUnproven returns nil if the session is Proven now, and otherwise the
// reason.
func (s *Session) WhyUnproven() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whyUnprovenLocked(clock.Now())
}

// whyUnprovenLocked returns nil if the session is Proven at now, and otherwise
// the reason.
func (s *Session) whyUnprovenLocked(now time.Time) error {
	switch {
	case s.err != nil:
		return s.err
	case s.isClosing():
		return zkerr.Closed
	case s.cfg.LoseSuspended && !s.up:
		return zkerr.Suspended
	case !s.evidence.Suffices(now):
		return zkerr.Unproven
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
// answers. It ends when the ensemble says so: while no server can be reached,
// nobody can say whether the ensemble would resume it.
//
// In both cases checkClock closes a connection that is silent: see
// proof.Evidence.Silence.
//
// A heartbeat is two round trips, one after the other. Package proof says how
// often one is sent. While all are answered immediately, that is every T/6,
// each proves the last but one, and a lease has about T/2 ahead of it or more.
// If it has clearly less, as after an idle time, a heartbeat is sent as soon as
// it can prove more.
//
// A timer stands still while the machine is suspended, and the time that has
// passed must be noticed soon afterwards. So checkClock runs at least every T/6
// while something is held, and otherwise at least every T/3.
func (s *Session) checkClock(now time.Time) time.Duration {
	const idle = time.Hour
	s.mu.Lock()
	left, proven := s.evidence.Left(now)
	if s.err != nil || !proven {
		s.mu.Unlock()
		return idle
	}
	timeout, margin := s.evidence.Timeout(), s.evidence.Margin()
	next := timeout / 3
	unproven := left <= margin && len(s.holds) > 0
	s.doubted = unproven || s.doubted && left <= margin
	if s.isHeldLocked() {
		next = timeout / 6
	}
	switch {
	case s.doubted:
		next = min(next, left)
	case len(s.holds) > 0:
		next = min(next, left-margin)
	}
	if left <= 0 && s.doubted || s.isStuckLocked(now) {
		s.mu.Unlock()
		s.Sever()
		s.End(zkerr.Unproven)
		return idle
	}
	stalled := false
	on := s.link
	if s.up {
		if !s.useful && s.evidence.IsUseful() {
			s.useful = true
			s.servers.NoteProven()
		}
		if s.isHeldLocked() {
			next = min(next, s.beatLocked(now))
		}
		var due time.Duration
		due, stalled = s.evidence.Silence(now, len(s.holds) > 0)
		next = min(next, due)
	}
	s.nextCheck = now.Add(next)
	s.mu.Unlock()
	if unproven {
		s.loseHolds(zkerr.Unproven)
	}
	if stalled {
		s.tasks.Go(func() { _ = on.Close() })
		s.told.Abandoned(on, Unproven)
		s.suspend(on) // onDisconnected follows, when the wire client has noticed
	}
	return next
}

// isStuckLocked reports whether the wire client has been without a connection
// for T and has not even tried to make one. It waits for something that the
// user supplied, a dialer or a connection, which does not end. It will not
// resume the session. A longer time without a check means that the process, or
// its clock, has stood still or has jumped: then the wire client gets its time
// again.
func (s *Session) isStuckLocked(now time.Time) bool {
	timeout := s.evidence.Timeout()
	if s.up || s.pausing || now.Sub(s.nextCheck) > timeout/3 {
		s.dialedAt = now
	}
	return now.Sub(s.dialedAt) >= timeout
}

// isHeldLocked reports whether anybody needs the heartbeat.
func (s *Session) isHeldLocked() bool { return len(s.holds) > 0 || s.keepers > 0 }

// beatLocked sends a heartbeat if one is due, and returns how long to wait
// until it must run again.
func (s *Session) beatLocked(now time.Time) time.Duration {
	b, wait := s.evidence.Beat(now)
	s.sendLocked(b)
	return wait
}

// sendLocked sends a heartbeat, if b is not nil.
func (s *Session) sendLocked(b *proof.Beat) {
	if b != nil {
		go s.sendHeartbeat(b, b.First())
	}
}

// beginHoldingLocked plans the first heartbeat for what is held from now on. A
// client that repeatedly holds something for a moment sends none: its other
// requests prove the session.
func (s *Session) beginHoldingLocked(now time.Time) {
	if now.Add(s.evidence.BeginHolding(now)).Before(s.nextCheck) {
		s.wake() // the next check was planned for a session without holds
	}
}

// sendHeartbeat makes two round trips to the leader, one after the other. The
// proof counts the answers as they arrive on the link; here it only matters
// that there are some. first is when the first one was answered, if it was.
func (s *Session) sendHeartbeat(b *proof.Beat, first time.Time) {
	var err error
	if first.IsZero() {
		if _, err = s.conn.Sync("/"); err == nil {
			first = clock.Now()
			s.mu.Lock()
			b.Answered(first)
			s.mu.Unlock()
			s.wake() // the next one may begin
		}
	}
	if err == nil {
		if s.cfg.Rules.Writes {
			var result []zk.MultiResponse
			result, err = s.conn.Multi(&zk.CheckVersionRequest{Path: "/", Version: -1})
			if len(result) > 0 {
				err = nil // a check that fails has also made the round trip
			}
		} else {
			_, err = s.conn.Sync("/")
		}
	}
	if errors.Is(err, zk.ErrSessionExpired) {
		s.onExpired(errExpired)
	}
	s.events.put(event{kind: heartbeatDone, err: err, beat: b, at: first})
}

// onHeartbeat runs when a heartbeat was answered or has failed.
func (s *Session) onHeartbeat(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evidence.End(e.beat, zkerr.IsAnswer(e.err), e.at)
}
