package session

import (
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/proof"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

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
	unproven := left <= margin && len(s.held.holds) > 0
	s.doubted = unproven || s.doubted && left <= margin
	if s.isHeldLocked() {
		next = timeout / 6
	}
	switch {
	case s.doubted:
		next = min(next, left)
	case len(s.held.holds) > 0:
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
		due, stalled = s.evidence.Silence(now, len(s.held.holds) > 0)
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
