package framework

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/random"
)

// hold is an interest in the fate of the session: see Session.Hold.
type hold struct {
	lost     func(error)
	number   uint64 // counts the holds of the session
	released bool   // guarded by session.mu
}

// heartbeats is what checkClock knows of the heartbeats on the present
// connection.
type heartbeats struct {
	last     time.Time // when the last one began, or the connection
	underWay []*beat   // the oldest first
}

// latestWhole returns the latest heartbeat with two halves that is under way,
// nil if none is.
func (h *heartbeats) latestWhole() *beat {
	for _, b := range slices.Backward(h.underWay) {
		if b.whole {
			return b
		}
	}
	return nil
}

// underWaySince returns when that heartbeat began, the zero time if there is
// none.
func (h *heartbeats) underWaySince() time.Time {
	if b := h.latestWhole(); b != nil {
		return b.sent
	}
	return time.Time{}
}

// waits reports whether the first half of that heartbeat is not answered yet.
func (h *heartbeats) waits() bool {
	b := h.latestWhole()
	return b != nil && b.first.IsZero()
}

// beat is a heartbeat that is under way. Its fields are guarded by session.mu.
type beat struct {
	link     *link
	sent     time.Time // for the first time
	whole    bool      // it began with a first half
	first    time.Time // when the first half was answered; zero: it was not, as far as is known
	refused  bool      // by the server, and it was not sent again
	refusals int       // how often it was refused before
	retryAt  time.Time // when it is sent again; zero: not decided
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
		h.released = true
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
		s.mu.Lock()
		released := h.released // by one that was told before
		s.mu.Unlock()
		if !released {
			h.lost(why)
		}
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
// answers. It ends when the ensemble says so: while no server can be reached,
// nobody can say whether the ensemble would resume it.
//
// In both cases checkClock closes a connection that is silent: see
// silenceLocked.
//
// A heartbeat is two round trips, one after the other: the R0 and the R1 of
// proof.go. cadence.go says how often one is sent. While all are answered at
// once, that is every T/6, each proves the last but one, and a lease has about
// T/2 ahead of it or more. If it has clearly less, as after an idle time, a
// heartbeat is sent as soon as it can prove more.
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
	next := s.timeout / 3
	left := s.timeout - elapsed(s.proven, now)
	unproven := left <= s.margin && len(s.holds) > 0
	s.doubted = unproven || s.doubted && left <= s.margin
	if s.isHeldLocked() {
		next = s.timeout / 6
	}
	switch {
	case s.doubted:
		next = min(next, left)
	case len(s.holds) > 0:
		next = min(next, left-s.margin)
	}
	if left <= 0 && s.doubted || s.isStuckLocked(now) {
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
		if s.isHeldLocked() {
			next = min(next, s.beatLocked(now, left))
		}
		var due time.Duration
		due, stalled = s.silenceLocked(now, left)
		next = min(next, due)
	}
	s.nextCheck = now.Add(next)
	s.mu.Unlock()
	if unproven {
		s.loseHolds(ErrUnproven)
	}
	if stalled {
		s.core.tasks.Go(func() { _ = on.Close() })
		s.core.onAbandoned(s, on, AbandonedUnproven)
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
func (s *session) isStuckLocked(now time.Time) bool {
	if s.up || s.pausing || now.Sub(s.nextCheck) > s.timeout/3 {
		s.dialedAt = now
	}
	return now.Sub(s.dialedAt) >= s.timeout
}

// isHeldLocked reports whether anybody needs the heartbeat.
func (s *session) isHeldLocked() bool { return len(s.holds) > 0 || s.keepers > 0 }

// silenceLocked returns how much longer the connection may be silent, and
// whether it was for too long.
//
// A sync or a ping may be unanswered for T/3, and another request for 2/3 T
// without any byte: see (*proof).silence. While something is held, the
// connection is left earlier if only T/6 is left until the stop margin. Then
// there is time for another connection. But the member gets T/12, or the time
// of two round trips.
//
// A heartbeat that a member refuses again and again is treated as one that it
// does not answer.
func (s *session) silenceLocked(now time.Time, left time.Duration) (due time.Duration, silent bool) {
	due = s.timeout / 3
	judge := func(since time.Time, limit time.Duration) {
		silentFor := now.Sub(since)
		due = min(due, limit-silentFor)
		if len(s.holds) > 0 {
			// A request that may take longer gets a part of the time for another
			// connection.
			hurry := left - s.margin - (s.timeout-limit)/4 // T/6 or T/12
			least := max(s.timeout/12, 2*s.proof.trips.longest()) - silentFor
			due = min(due, max(hurry, least))
		}
	}
	if since, limit, ok := s.proof.silence(); ok {
		judge(since, limit)
	}
	if all := s.heartbeats.underWay; len(all) > 0 && all[0].refused {
		judge(all[0].sent, s.timeout/3)
	}
	return due, due <= 0
}

// beatLocked sends a heartbeat if one is due, and returns how long to wait
// until it must run again.
func (s *session) beatLocked(now time.Time, left time.Duration) time.Duration {
	h, p := &s.heartbeats, s.proof
	for _, b := range h.underWay {
		if b.refused {
			return s.retryBeatLocked(b, now) // it comes in place of the next one
		}
	}
	switch due := s.beatDueLocked(now, left); {
	case due > 0:
		return due
	case s.firstHalfsLocked() >= mostFirstHalfs:
		return p.interval(s.margin) // or when one is answered: see sendHeartbeat
	}
	s.beginBeatLocked(s.newBeatLocked(now))
	return s.beatDueLocked(now, left)
}

// newBeatLocked returns the heartbeat that begins now: a whole one, or an R1
// alone where the R0 was made by something else, Prove as a rule, and no whole
// heartbeat under way will send the R1.
func (s *session) newBeatLocked(now time.Time) *beat {
	if s.heartbeats.underWaySince().IsZero() && s.proof.isReported() {
		return &beat{link: s.link, sent: now, first: now}
	}
	return &beat{link: s.link, sent: now, whole: true}
}

// beatDueLocked returns how long to wait until a heartbeat must begin. While
// one is under way that begins at now, it is positive.
func (s *session) beatDueLocked(now time.Time, left time.Duration) time.Duration {
	h, p := &s.heartbeats, s.proof
	interval := p.interval(s.margin)
	due := h.last.Add(interval).Sub(now)
	soon, after, ok := p.reportable(now, h.underWaySince())
	if !ok {
		return due
	}
	if !soon.IsZero() {
		left = max(left, s.timeout-elapsed(soon, now))
	}
	// A little less than usual is normal, since answers take time. A heartbeat for
	// that alone would be too early to prove anything, and another one would be
	// needed. So where round trips are quick and the deadline is far away, one is
	// early for a clear reason only. It then begins as soon as it is of use, and
	// those that follow find their pace again. Elsewhere each one that can be of
	// use begins, and only a little is waited for.
	r := p.trips.longest()
	little := min(12*r, s.timeout/24)
	early := left - p.usuallyLeft(interval)
	quiet := r <= s.timeout/40 && left-due >= s.margin+s.timeout/4
	if !quiet {
		early += little
	}
	early = max(early, after)
	if len(h.underWay) > 0 {
		early = max(early, h.last.Add(p.shortestInterval()).Sub(now))
	}
	switch {
	case early < due && !quiet, early+little < due:
		return early
	case quiet:
		return p.worthwhile(now, due, min(100*r, max(little, p.grain)))
	case due < after && after <= due+little: // so that it reports the contact that it is for
		return after
	}
	return due
}

// firstHalfsLocked returns how many heartbeats wait for the answer to their
// first half.
func (s *session) firstHalfsLocked() (n int) {
	for _, b := range s.heartbeats.underWay {
		if b.first.IsZero() {
			n++
		}
	}
	return n
}

// beginBeatLocked sends a heartbeat for the first time.
func (s *session) beginBeatLocked(b *beat) {
	s.heartbeats.last = b.sent
	s.heartbeats.underWay = append(s.heartbeats.underWay, b)
	go s.sendHeartbeat(b, b.first)
}

// beginHoldingLocked plans the first heartbeat for what is held from now on:
// an interval from now, or earlier if checkClock finds a reason. A client that
// repeatedly holds something for a moment sends none: its other requests prove
// the session.
func (s *session) beginHoldingLocked(now time.Time) {
	if len(s.heartbeats.underWay) == 0 {
		s.heartbeats.last = now
	}
	interval := s.proof.interval(s.margin)
	left := s.timeout - elapsed(s.proven, now)
	if due := min(interval, left-s.proof.usuallyLeft(interval)); now.Add(due).Before(s.nextCheck) {
		s.wake() // the next check was planned for a session without holds
	}
}

// retryBeatLocked sends a refused heartbeat again when its pause is over, and
// returns how long it must still wait. The pauses have jitter. They grow from
// T/48, so that about four tries fit into T/3, which counts from the first of
// them: the connection to a member that refuses all of them is closed.
func (s *session) retryBeatLocked(b *beat, now time.Time) time.Duration {
	pause := s.timeout / 48 << min(b.refusals, 4)
	if b.retryAt.IsZero() {
		b.retryAt = now.Add(pause + random.N(pause+1))
	}
	if due := b.retryAt.Sub(now); due > 0 {
		return due
	}
	b.refused, b.retryAt = false, time.Time{}
	b.refusals++
	go s.sendHeartbeat(b, b.first)
	return pause
}

// sendHeartbeat makes two round trips to the leader, one after the other. The
// proof counts the answers as they arrive on the link; here it only matters
// that there are some. first is when the first one was answered, if it was.
func (s *session) sendHeartbeat(b *beat, first time.Time) {
	var err error
	if first.IsZero() {
		if _, err = s.conn.Sync("/"); err == nil {
			first = clock.Now()
			s.mu.Lock()
			b.first = first
			s.mu.Unlock()
			s.wake() // the next one may begin
		}
	}
	if err == nil {
		if s.core.cfg.proof == ProofWrite {
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

func (s *session) granted() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

// onHeartbeat runs when a heartbeat was answered or has failed.
func (s *session) onHeartbeat(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.heartbeats.underWay, e.beat)
	switch {
	case i < 0: // its connection has ended
	case zkerr.IsAnswer(e.err):
		e.beat.refused, e.beat.first = true, e.at // checkClock sends it again, or the second half of it
	default: // after the end of the connection the next one is sent
		s.heartbeats.underWay = slices.Delete(s.heartbeats.underWay, i, i+1)
	}
}
