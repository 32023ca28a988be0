package proof

import (
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file computes until when the ensemble is proven to keep a session alive.
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
// touches. Each half tick the leader asks for them: it sends a question (a
// ping), and the follower answers with a report. A question travels from the
// leader to the follower in the same first-in-first-out channel as the answers
// to syncs and writes, and a report travels back in the same channel as the
// requests that the follower forwards. The leader validates each connect. A
// sync or a write makes the round trip to the leader. Credentials are no
// contact: a server answers them without a touch. So a contact C proves its own
// send time if
//
//   - C is a connect that was answered with a session, unless the quorum must
//     be proven also, and the session is not new (see framework.ProofWrite), or
//   - C was answered, and two requests that make the round trip were answered
//     without error, on the same connection: R0 was sent at least F after C's
//     *answer*, and R1 after R0's answer.
//
// For between C and R0 the leader has sent a question. R0's answer comes behind
// it, so the follower has sent a report with C's touch before R0's answer. R1
// goes to the leader behind that report. So if R1 is answered, then the leader
// has had the touch.
//
// One round trip is not enough. If the question is late, R0 overtakes the
// report. It is answered all the same, and the connection between the two
// members may end before the report arrives.
//
// A leader that has lost its quorum, and has not noticed, accepts sessions and
// answers syncs. With ProofWrite neither proves anything by itself. R1 must be
// a write then, and a connect is a C that the first write proves: its touch
// went straight to the leader. R0 may be a sync, since it only has to bring the
// question with it.
//
// F must be longer than the time from C to the next question, which the leader
// sends each half of its tick. F is T/3. That is long enough if T is at least
// two ticks, which servers demand by default: it leaves T/12 for a leader that
// sends its question late, and T/3 minus half a tick in general. It does not
// matter how long the question is on its way. If WithServerTick says how long a
// tick is, F may be shorter: half a tick and T/12, but a tick and T/40 at
// least. Three cases need WithServerTick, since F must be longer than T/3:
//
//   - minSessionTimeout was set to less than two ticks.
//   - The member is an observer that follows an observer master (since 3.6).
//     The touch is then asked for twice, by the master and by the leader, each
//     half a tick: F must be a whole tick, and longer by more than the master's
//     question and the observer's report take together. How long the leader's
//     question is on its way does not matter.
//   - The members have different ticks. The leader's determines how long a
//     touch waits, while another member's may have determined the shortest T.
//
// models/deadline.pml has this argument in a form that a machine has checked.
//
// The deadline is the latest proven send time plus T, the shortest timeout that
// any member has granted in this session. It must not be what the latest member
// has granted. Members with different settings grant different timeouts, each
// one tells the leader its own with every report, and the leader takes the
// latest. So a session that has moved to a member with a longer timeout is
// shortened again by a late report of the member before it. For the same reason
// each connect asks for exactly T: a member can then grant less than T only if
// its maxSessionTimeout is below T. If the answer to such a connect is lost,
// the leader may have the shorter timeout, and the client does not know it. So
// it is assumed that no member has a maxSessionTimeout below T, or that its
// connect answers arrive. The default is 20 of the member's own ticks.
//
// The leader ends a session in two steps. It marks the session as closing, and
// then the removal of its znodes makes its way through the ensemble. A sync is
// still answered in between. That proves nothing wrong as long as the removal
// follows within the stop margin. It does, unless the leader throttles requests
// (request_throttle_max_requests, off by default), and the removal waits there.
// ProofSync assumes that the leader does not throttle. With ProofWrite R1 comes
// behind the removal, and is refused.
//
// Only a session that holds something needs a deadline. A session that holds
// nothing sends no heartbeat. Its contacts are the wire client's pings, one
// every T/3. Before it holds something, Prove makes an R0 and an R1. A create
// that was just answered, or any other round trip, is an R0 already. The pings
// that R0 can report were answered at least F before it, and one of them was
// sent at most F + T/3 before it. So with F = T/3 a lease begins with about T/3
// ahead of it. If the client made round trips within the last T/3, they have
// usually proven as much, and Prove makes none.
//
// What happens to a session that holds nothing in the cases above:
//
//   - Its follower is cut off from the leader. The follower answers pings until
//     it notices that, and then drops its clients. Its answers to pings prove
//     nothing. About once every T, a waiter makes a sync and reads the znode
//     that it waits for, and it leaves the follower if the sync is not answered
//     for T/3.
//   - A member answers nothing, or pings only. Its connection is closed when a
//     request, or a ping, is not answered for T/3.
//   - A leader has lost its quorum. It cannot answer R1 under ProofWrite, so
//     nothing is granted.
//   - After a reconnect the connect is the proof, or under ProofWrite a contact
//     that the first write proves.
//   - The machine was suspended. The old proof is too old by the clock, and
//     Prove makes another one.

// contact is a request that was answered.
type contact struct {
	sent, answered time.Time
	reported       uint64 // the number of R0's answer, 0 if there is none yet
	reportedAt     time.Time
}

// sentRequest is a request that is not answered yet.
type sentRequest struct {
	xid       int32
	op        wire.Op
	at        time.Time
	answers   uint64 // how many answers had arrived before it was sent
	roundTrip trip
	prompt    bool // the answer should not take long
	certain   bool // no server refuses it for what stands in the tree
}

// trip says what a request is good for in a proof, if it is answered without
// error.
type trip int

const (
	noTrip    trip = iota
	firstOnly      // it can be R0
	anyTrip        // it can be R0 or R1
)

// proof follows one connection. It reads no clock: its methods take the time.
type proof struct {
	timeout  time.Duration // T
	margin   time.Duration // M, the stop margin
	wait     time.Duration // F
	grain    time.Duration // of contacts closer together than this only two are kept
	writes   bool          // R1 must be a write
	pending  []sentRequest // in the order in which they were sent, which is that of their answers
	answers  uint64        // that have arrived, the connect's included
	contacts []contact     // answered, oldest first; those that are no longer needed are dropped
	trips    roundTrips
	progress progress

	// When a part of an answer was read last that is too large to arrive whole,
	// as a long list is. A request that was sent before has waited behind it, and
	// says nothing about round trips. This is for their estimate alone: no
	// deadline rests on it.
	partRead time.Time
}

func newProof(timeout, margin, tick time.Duration, writes bool) proof {
	return proof{
		timeout: timeout,
		margin:  margin,
		wait:    waitFor(timeout, tick),
		grain:   timeout / 64,
		writes:  writes,
		answers: 1,
		trips:   roundTrips{window: timeout / 3},
	}
}

// waitFor returns F. A tick of 0 is not known.
func waitFor(timeout, tick time.Duration) time.Duration {
	if tick == 0 {
		return timeout / 3
	}
	return max(tick, min(timeout/3, max(tick+timeout/40, tick/2+timeout/12)))
}

// connect notes a connect that was sent at sent and was answered. The leader
// has had its touch, so it can be proven without an R0.
func (p *proof) connect(sent time.Time) {
	p.contacts = append(p.contacts, contact{sent: sent, answered: sent, reported: p.answers, reportedAt: sent})
}

// send notes that a request is sent. All pings have the same number. They are
// answered in order, so each of them must be noted: an answer is that to the
// oldest one.
func (p *proof) send(xid int32, op wire.Op, at time.Time) {
	p.pending = append(p.pending, sentRequest{
		xid: xid, op: op, at: at, answers: p.answers, roundTrip: p.tripOf(op),
		prompt: op == wire.OpPing || op == wire.OpSync, certain: op == wire.OpSync,
	})
}

// sendCheck is send for a multi that only checks the root: the R1 of a
// heartbeat under ProofWrite.
func (p *proof) sendCheck(xid int32, at time.Time) {
	p.send(xid, wire.OpMulti, at)
	check := &p.pending[len(p.pending)-1]
	check.prompt, check.certain = true, true
}

// answer notes the answer to xid. If it proves a contact, it returns the send
// time of the latest contact that it proves.
func (p *proof) answer(xid int32, failed bool, at time.Time) (proven time.Time, ok bool) {
	i := slices.IndexFunc(p.pending, func(r sentRequest) bool { return r.xid == xid })
	if i < 0 {
		return time.Time{}, false
	}
	r := p.pending[i]
	p.pending = slices.Delete(p.pending, i, i+1)
	p.answers++
	if i == 0 {
		p.progress.at = at
	} else {
		p.pending[0].prompt = true // it was overtaken
	}
	behind := r.at.Before(p.partRead) && p.trips.isKnown(at)
	if (r.prompt || r.roundTrip != noTrip && !p.trips.isRecent(at)) && !behind {
		p.trips.add(at.Sub(r.at), at)
	}
	if r.roundTrip != noTrip && !failed {
		proven, ok = p.count(r, at)
	}
	for len(p.contacts) > 0 && at.Sub(p.contacts[0].sent) >= p.timeout { // no longer proves anything
		p.contacts = p.contacts[1:]
	}
	if r.op != wire.OpAuth {
		p.keep(contact{sent: r.at, answered: at})
	}
	return proven, ok
}

// receive notes that n bytes of an answer have arrived. inPart says that there
// are more to come.
func (p *proof) receive(n int, inPart bool, at time.Time) {
	p.progress.receive(n, inPart, at)
	if inPart {
		p.partRead = at
	}
}

// keep adds a contact. Of those that are closer together than the grain it
// keeps the first and the last. The last matters: it may be a ping that no
// other contact follows for T/3.
func (p *proof) keep(c contact) {
	n := len(p.contacts)
	switch {
	case n > 0 && !c.sent.After(p.contacts[n-1].sent):
	case n < 2 || c.sent.Sub(p.contacts[n-2].sent) >= p.grain:
		p.contacts = append(p.contacts, c)
	case p.contacts[n-1].reported == 0:
		p.contacts[n-1] = c
	}
}

// count takes an answered round trip for R1 of all contacts that it can prove,
// and for R0 of all others that are old enough.
func (p *proof) count(r sentRequest, at time.Time) (proven time.Time, ok bool) {
	n := 0
	for i := range p.contacts {
		switch c := &p.contacts[i]; {
		case c.reported != 0:
			if r.roundTrip == anyTrip && r.answers >= c.reported {
				n = i + 1
			}
		case r.at.Sub(c.answered) >= p.wait:
			c.reported, c.reportedAt = p.answers, at
		}
	}
	if n == 0 {
		return time.Time{}, false
	}
	proven = p.contacts[n-1].sent
	p.contacts = append(p.contacts[:0], p.contacts[n:]...)
	return proven, true
}

func (p *proof) tripOf(op wire.Op) trip {
	switch op {
	case wire.OpCreate, wire.OpDelete, wire.OpSetData, wire.OpSetACL, wire.OpMulti, wire.OpCreateContainer, wire.OpCreateTTL:
		return anyTrip
	case wire.OpSync:
		if p.writes {
			return firstOnly
		}
		return anyTrip
	}
	return noTrip
}
