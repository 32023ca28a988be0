package framework

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// hold is a lease's interest in the session.
type hold struct {
	lost   func(error)
	number uint64 // in the order in which they began
}

// hold registers lost to be called, once, when what is held may no longer be
// assumed held: a stop margin before the deadline, or when the session is over.
func (s *session) hold(lost func(error)) (release func(), err error) {
	h := &hold{lost: lost}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.doubtLocked(time.Now()); err != nil {
		return nil, err
	}
	if s.holds == nil {
		s.holds = make(map[*hold]struct{})
	}
	s.numbered++
	h.number = s.numbered
	s.holds[h] = struct{}{}
	s.keepLocked()
	if s.proven.Add(s.timeout - s.margin).Before(s.alarm) {
		s.wake() // there was nothing to be lost at the stop margin before
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, ok := s.holds[h]; ok {
			delete(s.holds, h)
			s.kept--
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
		s.kept--
	})
}

// doubt is doubtLocked now.
func (s *session) doubt() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doubtLocked(time.Now())
}

// keepLocked wakes run when the quick heartbeat begins to be needed.
func (s *session) keepLocked() {
	if s.kept++; s.kept == 1 {
		s.wake()
	}
}

func (s *session) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// loseHolds tells every hold, the oldest first. Those who come later are refused
// by doubt. Nothing that the user supplied may run here: what comes before a hold
// in this loop delays the news of its loss.
func (s *session) loseHolds(why error) {
	s.mu.Lock()
	holds := slices.SortedFunc(maps.Keys(s.holds), func(a, b *hold) int { return cmp.Compare(a.number, b.number) })
	s.holds = nil
	s.kept -= len(holds)
	s.mu.Unlock()
	for _, h := range holds {
		h.lost(why)
	}
}

// doubtLocked is the reason why nothing may be assumed held at now, nil if
// there is none.
func (s *session) doubtLocked(now time.Time) error {
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

// look does what is due at now, and returns how long nothing more will be:
// giving up the holds at the stop margin, the session at its deadline, a
// connection whose heartbeat is not answered, and sending the next heartbeat.
//
// Heartbeats are paced from the answer of the one before, so that two of them
// lie F = T/3 apart when they are sent every T/6, and the second proves the
// first: a lease then always has T/2 ahead of it in quiet times. While nothing
// is kept one every T/3 does, with T/3 ahead. Either way a connection is left
// at T/2 after its last answered heartbeat, while there is time for another.
// Where F was made longer they come every T/6 at all times, and a connection is
// left at T/3.
//
// While something is kept it is called every T/6 at least: the timer that calls
// it stands still while the machine is suspended, and what has passed meanwhile
// must be seen soon after.
func (s *session) look(now time.Time) time.Duration {
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
	every, patience := third, sixth
	if s.kept > 0 {
		every, patience = sixth, third
		next = min(next, sixth)
	}
	if s.proof.wait > third {
		every, patience = sixth, sixth
	}
	stalled := false
	switch {
	case !s.up:
	case s.beat.sent.IsZero():
		due := s.beat.last.Add(every).Sub(now)
		if due <= 0 {
			s.beat.sent, s.beat.of = now, s.link
			go s.sendBeat(s.link)
			due = patience
		}
		next = min(next, due)
	default:
		due := s.beat.sent.Add(patience).Sub(now)
		if stalled = due <= 0; stalled {
			due = patience
		} else if s.beat.throttled {
			due = min(due, s.retryBeatLocked(now, patience))
		}
		next = min(next, due)
	}
	s.alarm = now.Add(next)
	on := s.beat.of // not s.link: that may be the next one already
	s.mu.Unlock()
	if unproven {
		s.loseHolds(ErrUnproven)
	}
	if stalled {
		s.core.tasks.Go(func() { _ = on.Close() })
		s.core.abandoned(s, "no proof of the leader in time")
		s.suspend() // sink follows, when the wire client has noticed
	}
	return next
}

// retryBeatLocked sends a throttled heartbeat again when its pause is over, and
// returns how long it must still wait. The pauses are short and jittered, so that
// several tries fit into the patience, which counts from the first of them: a
// member that throttles all of them is left.
func (s *session) retryBeatLocked(now time.Time, patience time.Duration) time.Duration {
	if s.beat.again.IsZero() {
		s.beat.again = now.Add(patience/8 + rand.N(patience/8+1))
	}
	if due := s.beat.again.Sub(now); due > 0 {
		return due
	}
	s.beat.throttled, s.beat.again = false, time.Time{}
	go s.sendBeat(s.beat.of)
	return patience
}

// sendBeat makes one round trip to the leader. It is the proof that counts the
// answer; here only its coming matters.
func (s *session) sendBeat(of *link) {
	var err error
	if s.core.cfg.proof == ProofWrite {
		_, err = s.conn.Multi(&zk.CheckVersionRequest{Path: "/", Version: -1})
	} else {
		_, err = s.conn.Sync("/")
	}
	s.events.put(event{kind: beaten, err: err, of: of})
}

func (s *session) beaten(e event) {
	if isThrottled(e.err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.beat.throttled = s.beat.of == e.of
		return // look sends it again
	}
	if e.err != nil && judge(e.err) != final {
		return // the connection ended, or is about to be given up
	} // a refusal has made the round trip, too
	s.core.pace.reset()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beat.of == e.of {
		s.beat = beat{last: time.Now()}
	}
}
