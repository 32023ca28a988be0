package framework

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// What proves that the ensemble still counts on this session.
//
// Goal: an instant D such that no member can have expired the session before D,
// from what was seen on the wire alone, with no trust in anybody's clock but in
// its rate.
//
// The obvious answer, "the last answered ping plus the time-out", is wrong. A
// follower answers pings and reads by itself for up to syncLimit ticks after it
// was cut off from the leader, and that can be longer than the session's
// time-out; meanwhile the leader, which hears nothing of the session, expires it
// and lets the next in line pass.
//
// What is true of the server: the leader expires a session no sooner than its
// time-out T after the last touch that reached *it*. A follower collects touches
// and hands them to the leader each half tick. Connects are validated at the
// leader. A sync or a write makes the round trip to the leader, on the same
// first-in-first-out channel that carries the touches. Hence a contact C proves
// its own send time when
//
//   - C is a connect that was answered with a session, unless the quorum is to be
//     proven too and the session is not new (see ProofWrite), or
//   - C was answered, and a request R that makes the round trip, sent no sooner
//     than F after C's *answer*, was answered without error on the same
//     connection: by then the follower had handed C's touch on.
//
// A leader that has lost its quorum and does not know it takes sessions back and
// answers syncs. With ProofWrite neither proves anything by itself: only a write
// is an R, and a connect is a C that the first one proves, for its touch went
// straight to the leader.
//
// F must be longer than a touch waits at a member until the leader asks for it, which
// it does each half of its tick. F is T/3, which is more than that wherever T is two
// ticks or more, as the server demands by default. Three cases need more, by
// WithServerTick:
//
//   - minSessionTimeout was set to less than two ticks.
//   - The member is an observer that follows an observer master (since 3.6). The
//     touch is sampled twice then, by the observer and by its master, each half a
//     tick: F must be a whole tick. A sync passes through both, behind what they
//     have sampled.
//   - The members' ticks differ: the leader's sets how long a touch waits, another
//     member's may have set the least T.
//
// The deadline is the latest proven send time plus T.

// contact is a request that was answered.
type contact struct {
	sent, answered time.Time
}

// sending is a request that was not answered yet.
type sending struct {
	at        time.Time
	roundTrip bool // is executed or confirmed by the leader
}

// proof follows one connection. It is pure: the times are given to it.
type proof struct {
	wait     time.Duration // F
	grain    time.Duration // contacts closer together than this are not told apart
	kind     Proof
	sendings map[int32]sending
	contacts []contact // answered, oldest first, none older than needed
}

func newProof(timeout, tick time.Duration, kind Proof) *proof {
	return &proof{
		wait:     max(timeout/3, tick),
		grain:    timeout / 64,
		kind:     kind,
		sendings: make(map[int32]sending),
	}
}

// connect notes a connect that left at sent and was answered: a touch that the
// leader has had, so that no F need pass before it can be proven.
func (p *proof) connect(sent time.Time) {
	p.contacts = append(p.contacts, contact{sent: sent, answered: sent.Add(-p.wait)})
}

// send notes that a request leaves now. All pings have the same number, and are
// answered in order: one that leaves while another is under way does not count.
func (p *proof) send(xid int32, op wire.Op, at time.Time) {
	if _, underWay := p.sendings[xid]; !underWay {
		p.sendings[xid] = sending{at: at, roundTrip: p.makesRoundTrip(op)}
	}
}

// answer notes the answer to xid. When it proves a contact it returns the send
// time of the latest one that it proves.
func (p *proof) answer(xid int32, failed bool, at time.Time) (proven time.Time, ok bool) {
	r, known := p.sendings[xid]
	if !known {
		return time.Time{}, false
	}
	delete(p.sendings, xid)
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

// elapsed is the time from one reading of the clock to another, by the
// monotonic or the wall clock, whichever says more: the monotonic one stands
// still while a machine is suspended, and the wall clock may be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
