package proof

import (
	"slices"
	"time"
)

// This file decides how often heartbeats are sent, and whether a lease that
// begins now would last. It is pure: see proof.go for T, F, R0 and R1.
//
// Let r be the time of a round trip to the leader, and M the stop margin. A
// contact is proven 3r + F after it was sent, at the earliest: its own answer,
// F, and the two round trips. If a heartbeat begins every P, the latest proven
// contact is up to 3r + F + P old just before the next proof. A lease lasts if
// that is less than T - M.
//
// P is (G + r) / n, where G is F, or T/3 if F is less. So the n-th heartbeat
// after a contact can report it without a wait. n is 2 in quiet networks,
// which makes a heartbeat every T/6. It grows with r and M, and several
// heartbeats are then under way at a time. But P is at least r / 2, and at
// most two of them wait for the answer to their first half: a server that is
// slow because it is busy must not get more and more requests.
//
// In a quiet network the deadline is at least T/2 ahead. With F = T/3 no fewer
// syncs can do that: right before an R1 is answered, the deadline rests on a
// contact that was answered F before the R0 of the latest proof. From that R0
// until the present R1 there is at most T/2 - F then: T/6 for two syncs. With
// F + r = T/4 or less, each heartbeat can prove the one before it, and P is
// T/4. With a tick of T/5, fewer than 8 syncs in T are not enough either: of
// any three in a row the last one is sent at most T/2 - F after the first one.
const (
	fewestBeats    = 2
	mostBeats      = 8
	mostFirstHalfs = 2
)

// interval returns P, the time from the beginning of one heartbeat to that of
// the next. One heartbeat may come too early to report a contact, and where
// several are under way at a time, one may also have to wait: the choice of n
// leaves room for that.
func (p *proof) interval() time.Duration {
	r, usual := p.trips.longest(), p.usualWait()
	if each := p.timeout / 4; p.wait+r <= each && 3*(r+each) < p.timeout-p.margin {
		return each
	}
	between := usual + r
	n := time.Duration(fewestBeats)
	for late := time.Duration(2); n < mostBeats && (n+1)*r <= mostFirstHalfs*between && 3*r+usual+late*between/n >= p.timeout-p.margin; late = 3 {
		n++
	}
	return (between + n - 1) / n
}

// usualWait returns G: where heartbeats are closer together than F, a shorter F
// does not need more of them.
func (p *proof) usualWait() time.Duration { return max(p.wait, p.timeout/3) }

// longestTrip returns how long a round trip may take, so that a lease lasts at
// all. If it is not positive, no lease can last with these settings.
func (p *proof) longestTrip() (longest time.Duration) {
	usual := p.usualWait()
	for n := time.Duration(fewestBeats); n <= mostBeats; n++ {
		r := (n*(p.timeout-p.margin-usual) - usual) / (3*n + 1) // 3r + G + (G + r) / n < T - M
		if n > mostFirstHalfs {
			r = min(r, mostFirstHalfs*usual/(n-mostFirstHalfs)) // n r <= 2 (G + r)
		}
		longest = max(longest, r)
	}
	return longest
}

// lasts returns how much time the heartbeats of a lease that begins now would
// have to spare, if round trips continue to take as long as they do. If that is
// negative the lease would be lost: each contact must be proven before the stop
// margin of the deadline that rests on the one before it. left is the time
// until the deadline. last is when the latest heartbeat with two halves began,
// the zero time if none is under way, and waits whether its first half is not
// answered yet. next is when another one begins at the latest. If that has
// passed, as after a time without holds, it is now.
func (p *proof) lasts(now time.Time, left time.Duration, last time.Time, waits bool, next time.Time) (spare due) {
	r := p.trips.longest()
	if longest := p.longestTrip(); r >= longest {
		return due{longest - r - 1, becauseSlow}
	}
	until, next := now.Add(left-p.margin), later(now, next)
	soonest := now // that a heartbeat begins with a first half
	if last.IsZero() && p.isReported() {
		soonest = now.Add(min(r, p.shortestInterval())) // the next one has none: see heartbeats.next
	}
	provenBy := func(c contact) (time.Time, reason) {
		if c.reported != 0 {
			switch second, ok := p.secondHalfOf(c); {
			case ok && last.IsZero(): // perhaps a heartbeat that is a second half alone: the next one keeps its distance
				soonest = later(soonest, second.at.Add(min(r, p.shortestInterval())))
				return second.at.Add(r), secondUnderWay
			case ok:
				return second.at.Add(r), secondUnderWay
			case last.IsZero():
				return now.Add(r), secondAlone
			case waits && !last.Add(r).Before(now):
				return last.Add(2 * r), secondOfCurrent
			}
			return next.Add(2 * r), secondOfNext // the second half under way began too early
		}
		if reportable := c.answered.Add(p.wait); last.Before(reportable) {
			last = later(soonest, later(reportable, last.Add(r)))
			return last.Add(2 * r), reportingBeat
		}
		return last.Add(2 * r), secondOfCurrent
	}
	contacts := slices.Clone(p.contacts)
	for _, request := range p.pending {
		contacts = append(contacts, contact{sent: request.at, answered: request.at.Add(r)})
	}
	spare.in = p.timeout
	for _, c := range append(contacts, contact{sent: next, answered: next.Add(r)}) {
		at, because := provenBy(c)
		spare = spare.orEarlier(due{until.Sub(at) - p.slack(), because})
		until = later(until, c.sent.Add(p.timeout-p.margin))
	}
	return spare
}

// slack is how much longer a round trip may take than those before it. In a
// slow network there is less time to spare for that.
func (p *proof) slack() time.Duration { return max(2*p.grain-p.trips.longest(), 3*p.grain/4) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// isReported reports whether an R1 alone can prove a contact that none under
// way proves.
func (p *proof) isReported() bool {
	return slices.ContainsFunc(p.contacts, func(c contact) bool {
		_, ok := p.secondHalfOf(c)
		return c.reported != 0 && !ok
	})
}

// secondHalfOf returns the request under way that proves c, which is reported.
// A caller's write is none: if it is refused it proves nothing.
func (p *proof) secondHalfOf(c contact) (r1 sentRequest, ok bool) {
	i := slices.IndexFunc(p.pending, func(r sentRequest) bool {
		return r.roundTrip == anyTrip && r.certain && r.answers >= c.reported
	})
	if i < 0 {
		return sentRequest{}, false
	}
	return p.pending[i], true
}

// shortestInterval is the least time between two heartbeats.
func (p *proof) shortestInterval() time.Duration { return p.usualWait() / mostBeats }

// usuallyLeft is how far ahead the deadline is right before a heartbeat begins
// that moves it on.
func (p *proof) usuallyLeft(interval time.Duration) time.Duration {
	reported := (p.wait + p.trips.longest() + interval - 1) / interval // by which heartbeat after a contact
	return p.timeout - (reported+1)*interval
}

// reportable returns how long to wait until another heartbeat can prove a
// contact that those under way cannot. Those with two halves have begun at
// last; the zero time: there are none. ok is false if there is no such contact.
// soon is when the latest of the contacts was sent that those under way can
// prove, the zero time if there is none.
func (p *proof) reportable(now, last time.Time) (soon time.Time, after time.Duration, ok bool) {
	for _, c := range p.contacts {
		_, proven := p.secondHalfOf(c)
		switch {
		case c.reported != 0 && (proven || !last.IsZero()), !last.IsZero() && !c.answered.Add(p.wait).After(last):
			soon = c.sent
		case c.reported != 0:
			return soon, 0, true
		default:
			return soon, max(0, p.wait-now.Sub(c.answered)), true
		}
	}
	return soon, 0, false
}

// worthwhile returns when a heartbeat begins that is due: a little later, by
// most, if it then proves a contact that is newer by more than twice that.
// Without it a heartbeat that comes a moment too early to report the last but
// one proves much less than usual. Then the next one is early, and so on: that
// made 15 requests in T instead of 12.
func (p *proof) worthwhile(now time.Time, usual due, most time.Duration) due {
	var base time.Time
	better := usual
	for _, c := range p.contacts {
		at := c.answered.Add(p.wait).Sub(now)
		switch {
		case c.reported != 0 || at <= usual.in:
			base = c.sent
		case at-usual.in <= most && (base.IsZero() || c.sent.Sub(base) > 2*(at-usual.in)):
			better = due{at, becauseReport}
		}
	}
	return better
}
