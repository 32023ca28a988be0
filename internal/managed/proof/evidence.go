package proof

import (
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Evidence is what is proven of one session. Its owner guards it. The zero
// Evidence is that of a session which never was.
type Evidence struct {
	rules      Rules
	proven     time.Time  // the send time of the latest contact that is proven; zero: none is
	proof      proof      // of the latest connection
	heartbeats heartbeats // on the connection, while it can be used
	gains      gains      // of the latest proofs
}

// Rules are what options set.
type Rules struct {
	Margin func(timeout time.Duration) time.Duration // the stop margin
	Tick   time.Duration                             // of the servers; 0: not known
	Writes bool                                      // framework.ProofWrite: the quorum must be proven, by a write
}

// New returns the evidence of a session that no server has confirmed yet.
func New(timeout time.Duration, rules Rules) Evidence {
	return Evidence{rules: rules, proof: proof{timeout: timeout, margin: rules.Margin(timeout)}}
}

// Connect notes a connect that was sent at sent and answered at answered with a
// timeout, which is no longer than the one before. isNew says that it has begun
// the session. The leader validates a connect, so it is proven by itself; under
// Rules.Writes a connect that resumes a session is not.
func (e *Evidence) Connect(timeout time.Duration, isNew bool, sent, answered time.Time) {
	e.proof = newProof(timeout, e.rules.Margin(timeout), e.rules.Tick, e.rules.Writes)
	e.proof.trips.add(answered.Sub(sent), answered)
	switch {
	case e.rules.Writes && !isNew:
		e.proof.connect(sent)
	case sent.After(e.proven):
		e.proven = sent
	}
}

// Send notes that a request is about to be sent. check says that it is a multi
// that only checks the root, as the second half of a heartbeat under
// Rules.Writes.
func (e *Evidence) Send(xid int32, op wire.Op, check bool, at time.Time) {
	if check {
		e.proof.sendCheck(xid, at)
	} else {
		e.proof.send(xid, op, at)
	}
}

// Answer notes an answer, and reports whether more is proven now.
func (e *Evidence) Answer(xid int32, failed bool, at time.Time) (more bool) {
	proven, ok := e.proof.answer(xid, failed, at)
	if !ok || !proven.After(e.proven) {
		return false
	}
	e.proven = proven
	e.gains.add(e.left(at))
	return true
}

// Receive notes that n bytes have arrived. inPart says that the latest answer
// is not complete.
func (e *Evidence) Receive(n int, inPart bool, at time.Time) { e.proof.receive(n, inPart, at) }

// IsKnown reports whether a server has answered a connect.
func (e *Evidence) IsKnown() bool { return e.proof.answers > 0 }

// Unanswered returns how many requests are not answered yet.
func (e *Evidence) Unanswered() int { return len(e.proof.pending) }

// IsUseful reports whether the connection has brought an answer apart from that
// to the connect.
func (e *Evidence) IsUseful() bool { return e.proof.answers > 1 }

// Timeout returns T: the least that was granted in this session, and before
// that what is asked for.
func (e *Evidence) Timeout() time.Duration { return e.proof.timeout }

// Margin returns the stop margin.
func (e *Evidence) Margin() time.Duration { return e.proof.margin }

// Deadline returns the instant before which no member can have expired the
// session.
func (e *Evidence) Deadline() time.Time { return e.proven.Add(e.Timeout()) }

// Left returns the time until the deadline, and whether there is one: nothing
// is proven before the first connect.
func (e *Evidence) Left(now time.Time) (left time.Duration, ok bool) {
	return e.Timeout() - clock.Elapsed(e.proven, now), !e.proven.IsZero()
}

func (e *Evidence) left(now time.Time) time.Duration {
	left, _ := e.Left(now)
	return left
}

// Suffices reports whether the deadline is further away than the stop margin.
func (e *Evidence) Suffices(now time.Time) bool {
	left, ok := e.Left(now)
	return ok && left > e.Margin()
}

// Up notes that the connection can be used, and returns the heartbeat to send,
// if one is: under Rules.Writes a connect is not proven before a write, so a
// session that is held makes one immediately. It needs no first half.
func (e *Evidence) Up(now time.Time, held bool) (send *Beat) {
	e.heartbeats = heartbeats{last: now}
	if e.rules.Writes && held {
		send = &Beat{sent: now, first: now}
		e.heartbeats.begin(send)
	}
	return send
}

// Down notes that there is no connection that can be used.
func (e *Evidence) Down() { e.heartbeats = heartbeats{} }

// BeginHolding returns how long to wait at most until Beat must be called for
// what is held from now on: an interval, or less if less is left than usual. A
// connect must have been answered.
func (e *Evidence) BeginHolding(now time.Time) (wait time.Duration) {
	return e.heartbeats.planFirst(&e.proof, now, e.left(now)).in
}

// Beat returns the heartbeat to send now, nil if none is due, and how long to
// wait until Beat must be called again. The caller sends the first half unless
// First says that it was answered, then the second half, and calls End.
func (e *Evidence) Beat(now time.Time) (send *Beat, wait time.Duration) {
	send, again := e.heartbeats.next(&e.proof, now, e.left(now))
	return send, again.in
}

// End notes that a heartbeat was answered or has failed. refused says that the
// server has refused it: then Beat returns it again, after a pause. first is
// when its first half was answered, if it was.
func (e *Evidence) End(b *Beat, refused bool, first time.Time) { e.heartbeats.end(b, refused, first) }

// Silence returns how much longer the connection may be silent, and whether it
// was for too long.
func (e *Evidence) Silence(now time.Time, held bool) (rest time.Duration, silent bool) {
	since, refused := e.heartbeats.refusedSince()
	rest = e.proof.patience(now, e.left(now), held, since, refused).in
	return rest, rest <= 0
}

// HasRoom reports whether a connection can be given up for another one although
// something is held: if half of T is left, or as much as proofs leave where
// they leave less.
func (e *Evidence) HasRoom(now time.Time) bool {
	return e.left(now) >= min(e.Timeout()/2, e.gains.usual(e.Timeout()))
}

// Lasts reports whether a lease that begins now would last. held says that
// something is held already, and heartbeats are sent.
func (e *Evidence) Lasts(now time.Time, held bool) bool {
	last := now
	if held {
		last = e.heartbeats.last
	}
	next := last.Add(e.proof.interval())
	return e.proof.lasts(now, e.left(now), e.heartbeats.underWaySince(), e.heartbeats.waits(), next).in >= 0
}

// CanLast reports whether any lease can last with these settings.
func (e *Evidence) CanLast() bool { return e.proof.longestTrip() > 0 }

// Unprovable returns the error of a proof that has taken so long. 0: the
// settings alone make it impossible.
func (e *Evidence) Unprovable(now time.Time, waited time.Duration) Unprovable {
	trip := e.proof.trips.longest()
	if since, _, ok := e.proof.silence(); ok {
		trip = max(trip, now.Sub(since))
	}
	return Unprovable{
		waited: waited, timeout: e.Timeout(), margin: e.Margin(), tick: e.rules.Tick,
		trip: trip, longest: e.proof.longestTrip(),
	}
}

// Unprovable says why a session could not be proven.
type Unprovable struct {
	waited                time.Duration
	timeout, margin, tick time.Duration
	trip, longest         time.Duration // a round trip to the leader, and what it may take
}

func (u Unprovable) Error() string {
	if u.waited == 0 {
		return fmt.Sprintf("no lease can last: a session timeout of %v was granted, too short for a stop margin of %v and server ticks of %v",
			u.timeout, u.margin, u.tick)
	}
	const rounded = time.Millisecond
	return fmt.Sprintf("session not proven alive in %v: a round trip to the leader takes %v; with a session timeout of %v and a stop margin of %v it may take %v",
		u.waited.Round(rounded), u.trip.Round(rounded), u.timeout, u.margin, u.longest.Round(rounded))
}
