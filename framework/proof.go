package framework

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// What proves that the ensemble still keeps this session alive.
//
// Goal: an instant D such that no member can have expired the session before D.
// It must follow from what was seen on the wire, and from no clock but the rate
// of our own.
//
// The obvious answer, "the last answered ping plus the timeout", is wrong. A
// follower answers pings and reads by itself for up to syncLimit ticks after it
// was cut off from the leader, which can be longer than the session's timeout.
// In that time the leader, which hears nothing of the session, expires it, and
// the next contender gets the lock.
//
// What is true of the servers: the leader expires a session no sooner than its
// timeout T after the last touch that reached the leader. A follower collects
// touches and passes them to the leader each half tick. The leader validates
// each connect. A sync or a write makes the round trip to the leader, on the
// same first-in-first-out channel that carries the touches. So a contact C
// proves its own send time if
//
//   - C is a connect that was answered with a session, unless the quorum must
//     be proven as well and the session is not new (see ProofWrite), or
//   - C was answered, and a request R that makes the round trip was sent at
//     least F after C's *answer*, on the same connection, and answered without
//     error. By then the follower has passed C's touch to the leader.
//
// A leader that has lost its quorum, and has not noticed, accepts sessions and
// answers syncs. With ProofWrite neither proves anything by itself. Only a
// write is an R, and a connect is a C that the first write proves: its touch
// went straight to the leader.
//
// F must be longer than a touch waits at a member until the leader asks for it,
// which it does each half of its tick, and longer by more than that question may
// be late: the round trip may overtake it. F is T/3. That is long enough if T is
// at least two ticks, which servers demand by default: it leaves T/12 for a late
// question then, and T/3 minus half a tick in general. Four cases need more, by
// WithServerTick:
//
//   - minSessionTimeout was set to less than two ticks.
//   - The member is an observer that follows an observer master (since 3.6).
//     The touch is then sampled twice, by the observer and by its master, each
//     half a tick: F must be a whole tick, and longer by more than both
//     questions may be late. A sync passes through both, behind what they have
//     sampled.
//   - The members have different ticks. The leader's determines how long a
//     touch waits, while another member's may have determined the shortest T.
//   - The leader's questions take longer to a member than F leaves them, while
//     the connection between the two may end before the answer arrives.
//
// models/deadline.pml has this argument in a form that a machine has checked.
//
// The deadline is the latest proven send time plus T.

// contact is a request that was answered.
type contact struct {
	sent, answered time.Time
}

// sentRequest is a request that is not answered yet.
type sentRequest struct {
	at        time.Time
	roundTrip bool // is executed or confirmed by the leader
}

// proof follows one connection. It reads no clock: its methods take the time.
type proof struct {
	wait     time.Duration // F
	grain    time.Duration // of contacts closer together than this only the first is kept
	kind     Proof
	pending  map[int32]sentRequest
	contacts []contact // answered, oldest first; those that are no longer needed are dropped
}

func newProof(timeout, tick time.Duration, kind Proof) *proof {
	return &proof{
		wait:    max(timeout/3, tick),
		grain:   timeout / 64,
		kind:    kind,
		pending: make(map[int32]sentRequest),
	}
}

// connect notes a connect that was sent at sent and was answered. The leader
// has had its touch, so it can be proven without waiting for F.
func (p *proof) connect(sent time.Time) {
	p.contacts = append(p.contacts, contact{sent: sent, answered: sent.Add(-p.wait)})
}

// send notes that a request is sent. All pings have the same number and are
// answered in order: a ping that is sent while another one is under way does
// not count.
func (p *proof) send(xid int32, op wire.Op, at time.Time) {
	if _, underWay := p.pending[xid]; !underWay {
		p.pending[xid] = sentRequest{at: at, roundTrip: p.makesRoundTrip(op)}
	}
}

// answer notes the answer to xid. If it proves a contact, it returns the send
// time of the latest contact that it proves.
func (p *proof) answer(xid int32, failed bool, at time.Time) (proven time.Time, ok bool) {
	r, known := p.pending[xid]
	if !known {
		return time.Time{}, false
	}
	delete(p.pending, xid)
	if r.roundTrip && !failed {
		n := 0
		for n < len(p.contacts) && r.at.Sub(p.contacts[n].answered) >= p.wait {
			n++
		}
		if n > 0 {
			proven, ok = p.contacts[n-1].sent, true
			p.contacts = append(p.contacts[:0], p.contacts[n-1:]...)
		}
	}
	if n := len(p.contacts); n == 0 || r.at.Sub(p.contacts[n-1].sent) >= p.grain {
		p.contacts = append(p.contacts, contact{sent: r.at, answered: at})
	}
	return proven, ok
}

func (p *proof) makesRoundTrip(op wire.Op) bool {
	switch op {
	case wire.OpCreate, wire.OpDelete, wire.OpSetData, wire.OpSetACL, wire.OpMulti, wire.OpCreateContainer, wire.OpCreateTTL:
		return true
	case wire.OpSync:
		return p.kind == ProofSync
	}
	return false
}

// elapsed returns the time from one reading of the clock to another: by the
// monotonic clock or the wall clock, whichever says more. The monotonic one
// stands still while a machine is suspended, and the wall clock may be set
// back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
