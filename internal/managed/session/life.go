package session

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/proof"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// life is what is known of a session: whether it is over, until when it is
// proven to be alive, and who holds it. Its methods do not wait.
type life struct {
	loseSuspended bool            // holds are lost with the connection
	closing       <-chan struct{} // closed: the client begins to close
	wakeup        chan struct{}   // a token: check the clock again

	over chan struct{} // closed: over

	mu         sync.Mutex     // guards what follows
	err        error          // why it is over
	endedAt    time.Time      // when it was over
	expired    bool           // a server said that it is gone
	dialedAt   time.Time      // when the wire client last began to dial, or had dialed
	pausing    bool           // it waits until the next attempt may be made
	link       *link.Link     // the connection that evidence is of: the latest that was confirmed
	evidence   proof.Evidence // until when it is alive
	useful     bool           // the connection has brought answers, and the pace of the dials was reset for it
	doubted    bool           // holds were lost by the clock, and nothing was proven since
	up         bool           // connected and authenticated
	online     proof.Online
	unseenEnds int // of connections, that run has not heard of yet
	held       holdings
	news       chan struct{} // nil: nobody in Prove waits; closed: more was proven, or the connection has ended
	nextCheck  time.Time     // when run checks the clock again
}

// holdings are what needs the heartbeat of a session. They are guarded by
// life.mu.
type holdings struct {
	holds   map[*hold]struct{}
	made    uint64
	keepers int // others, which are not told of a loss
}

// hold is an interest in the fate of the session: see Hold.
type hold struct {
	lost     func(error)
	number   uint64 // counts the holds of the session
	released bool   // guarded by life.mu
}

// add adds a hold.
func (h *holdings) add(lost func(error)) *hold {
	if h.holds == nil {
		h.holds = make(map[*hold]struct{})
	}
	h.made++
	added := &hold{lost: lost, number: h.made}
	h.holds[added] = struct{}{}
	return added
}

// take removes all holds and returns them, the oldest first.
func (h *holdings) take() []*hold {
	holds := slices.SortedFunc(maps.Keys(h.holds), func(a, b *hold) int { return cmp.Compare(a.number, b.number) })
	h.holds = nil
	return holds
}

// IsReady reports whether a request may be given to the wire client now. The
// connection may have ended although the state does not say so yet: the wire
// client reports that before it fails what was under way, and run handles the
// report later. A retry in between must not enter the wire client's queue,
// which the next connection sends: if none comes, the retry would wait for the
// end of the session, whatever its budget.
func (s *life) IsReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isReadyLocked()
}

func (s *life) isReadyLocked() bool { return s.err == nil && s.up && s.unseenEnds == 0 }

// Err returns why the session is over, nil while it is not.
func (s *life) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Over returns a channel that is closed when the session is over.
func (s *life) Over() <-chan struct{} { return s.over }

// IsUp reports whether there is a connection that is ready for requests, as far
// as Run knows.
func (s *life) IsUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}

// present returns the connection that is ready for requests, nil without one.
func (s *life) present() *link.Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isReadyLocked() {
		return nil
	}
	return s.link
}

// Timeout returns the session timeout that the ensemble has granted: the least
// one, and before a server has answered the requested one.
func (s *life) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.evidence.Timeout()
}

// Deadline returns the instant before which the ensemble cannot have expired
// the session, as far as is proven. Once the session is over it is no later
// than the end.
func (s *life) Deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	deadline := s.evidence.Deadline()
	switch {
	case !s.evidence.IsKnown():
		return time.Time{}
	case s.err != nil && s.endedAt.Before(deadline):
		return s.endedAt
	}
	return deadline
}

// WhyUnproven returns nil if the session is Proven now, and otherwise the
// reason.
func (s *life) WhyUnproven() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whyUnprovenLocked(clock.Now())
}

// whyUnprovenLocked returns nil if the session is Proven at now, and otherwise
// the reason.
func (s *life) whyUnprovenLocked(now time.Time) error {
	switch {
	case s.err != nil:
		return s.err
	case s.isClosing():
		return zkerr.Closed
	case s.loseSuspended && !s.up:
		return zkerr.Suspended
	case !s.evidence.Suffices(now):
		return zkerr.Unproven
	}
	return nil
}

func (s *life) isClosing() bool { return closed.Is(s.closing) }

// Hold registers lost to be called once: a stop margin before the deadline, or
// when the session is over.
func (s *life) Hold(lost func(error)) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	if err := s.whyUnprovenLocked(now); err != nil {
		return nil, err
	}
	if !s.isHeldLocked() {
		s.beginHoldingLocked(now)
	}
	if left, _ := s.evidence.Left(now); now.Add(left - s.evidence.Margin()).Before(s.nextCheck) {
		s.wake() // the next check was planned without holds, maybe behind the stop margin
	}
	h := s.held.add(lost)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		h.released = true
		delete(s.held.holds, h)
	}, nil
}

// Keep makes the session send heartbeats until release is called.
func (s *life) Keep() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isHeldLocked() && s.evidence.IsKnown() {
		s.beginHoldingLocked(clock.Now())
	}
	s.held.keepers++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held.keepers--
	})
}

// isHeldLocked reports whether anybody needs the heartbeat.
func (s *life) isHeldLocked() bool { return len(s.held.holds) > 0 || s.held.keepers > 0 }

// beginHoldingLocked plans the first heartbeat for what is held from now on. A
// client that repeatedly holds something for a moment sends none: its other
// requests prove the session.
func (s *life) beginHoldingLocked(now time.Time) {
	if now.Add(s.evidence.BeginHolding(now)).Before(s.nextCheck) {
		s.wake() // the next check was planned for a session without holds
	}
}

// loseHolds tells every hold that it is lost, the oldest first. Later holds are
// refused by whyUnprovenLocked. Nothing that may block runs here: each call
// delays the news for all holds behind it.
func (s *life) loseHolds(why error) {
	s.mu.Lock()
	holds := s.held.take()
	s.mu.Unlock()
	for _, h := range holds {
		s.mu.Lock()
		released := h.released // by one that was told before
		s.mu.Unlock()
		if !released {
			h.lost(why)
		}
	}
}

func (s *life) wake() {
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

func (s *life) onlineFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.online.For(time.Now(), s.evidence.Timeout())
}

// isProvenToLast reports whether the session is Proven, and a hold that begins
// now would last. It fails if none can ever last.
func (s *life) isProvenToLast() (bool, error) {
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
func (s *life) isFarAhead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, _ := s.evidence.Left(clock.Now())
	return left >= s.evidence.Timeout()/3
}

func (s *life) unprovable(waited time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unprovableLocked(waited)
}

func (s *life) unprovableLocked(waited time.Duration) unprovable {
	return unprovable{s.evidence.Unprovable(clock.Now(), waited)}
}

// awaitNews returns a channel that is closed when more is proven or the
// connection ends, and whether there is one.
func (s *life) awaitNews() (news <-chan struct{}, up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.news == nil {
		s.news = make(chan struct{})
	}
	return s.news, s.up
}

// tellProversLocked wakes up those that wait in prove.
func (s *life) tellProversLocked() {
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
}

// isStuckLocked reports whether the wire client has been without a connection
// for T and has not even tried to make one. It waits for something that the
// user supplied, a dialer or a connection, which does not end. It will not
// resume the session. A longer time without a check means that the process, or
// its clock, has stood still or has jumped: then the wire client gets its time
// again.
func (s *life) isStuckLocked(now time.Time) bool {
	timeout := s.evidence.Timeout()
	if s.up || s.pausing || now.Sub(s.nextCheck) > timeout/3 {
		s.dialedAt = now
	}
	return now.Sub(s.dialedAt) >= timeout
}

// mayMoveLocked reports whether the session can be without a connection for a
// moment, and lose nothing that is held: nothing is, or there is time. With
// Config.LoseSuspended that moment alone would cost what is held.
func (s *life) mayMoveLocked(now time.Time) bool {
	switch {
	case len(s.held.holds) == 0:
		return true
	case s.loseSuspended:
		return false
	}
	return s.evidence.HasRoom(now)
}
