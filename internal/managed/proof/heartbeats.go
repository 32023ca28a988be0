package proof

import (
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/random"
)

// heartbeats are those on the present connection.
type heartbeats struct {
	last     time.Time // when the latest one began, or the connection
	underWay []*Beat   // the oldest first
}

// Beat is a heartbeat that is under way: two round trips, one after the other,
// which are the R0 and the R1 of proof.go. The owner of its Evidence guards it.
type Beat struct {
	sent     time.Time // for the first time
	whole    bool      // it began with a first half
	first    time.Time // when the first half was answered; zero: it was not, as far as is known
	refused  bool      // by the server, and it was not sent again
	refusals int       // how often it was refused before
	retryAt  time.Time // when it is sent again; zero: not decided
}

// First returns when the first half was answered, the zero time if the first
// half must be sent.
func (b *Beat) First() time.Time { return b.first }

// Answered notes that the first half was answered.
func (b *Beat) Answered(at time.Time) { b.first = at }

// next returns the heartbeat to send now, nil if none is due, and when it must
// be called again. left is the time until the deadline.
func (h *heartbeats) next(p *proof, now time.Time, left time.Duration) (send *Beat, again due) {
	for _, b := range h.underWay {
		if b.refused {
			return b.retry(p.timeout, now) // it comes in place of the next one
		}
	}
	switch planned := h.plan(p, now, left); {
	case planned.in > 0:
		return nil, planned
	case h.firstHalfs() >= mostFirstHalfs:
		return nil, due{p.interval(), becauseFull} // or when one is answered
	}
	send = &Beat{sent: now, whole: true}
	if h.underWaySince().IsZero() && p.isReported() {
		// An R1 alone. The R0 was made by something else, Prove as a rule, and no
		// whole heartbeat under way will send the R1.
		send = &Beat{sent: now, first: now}
	}
	h.begin(send)
	return send, h.plan(p, now, left)
}

func (h *heartbeats) begin(b *Beat) { h.last, h.underWay = b.sent, append(h.underWay, b) }

// A little less than usual is left as a rule, since answers take time. A
// heartbeat for that alone would be too early to prove anything, and another
// one would be needed. So where round trips are quick and the deadline is far
// away, a heartbeat is early for a clear reason only: if more than a little is
// missing. It then begins as soon as it is of use, and those that follow find
// their pace again. Elsewhere each one that can be of use begins, and only a
// little is waited for.
const (
	littleTrips = 12  // a little is so many round trips,
	littlePart  = 24  // and T/24 at most
	quickPart   = 40  // a round trip of T/40 is quick
	farPart     = 4   // a deadline is far away if T/4 is left to the stop margin when the regular heartbeat begins
	newerTrips  = 100 // a heartbeat may wait so many round trips for a newer contact, and a little or a grain at most
)

// plan returns when a heartbeat must begin. While one is under way that begins
// at now, it is later than now.
func (h *heartbeats) plan(p *proof, now time.Time, left time.Duration) due {
	interval := p.interval()
	usual := due{h.last.Add(interval).Sub(now), regular}
	soon, after, ok := p.reportable(now, h.underWaySince())
	if !ok {
		return usual
	}
	if !soon.IsZero() {
		left = max(left, p.timeout-clock.Elapsed(soon, now))
	}
	r := p.trips.longest()
	little := min(littleTrips*r, p.timeout/littlePart)
	quiet := r <= p.timeout/quickPart && left-usual.in >= p.margin+p.timeout/farPart
	wait := left - p.usuallyLeft(interval)
	if !quiet {
		wait += little
	}
	early := due{max(0, wait), becauseDeadline}.orLater(due{after, becauseReport})
	if len(h.underWay) > 0 {
		early = early.orLater(due{h.last.Add(p.shortestInterval()).Sub(now), becauseSpacing})
	}
	switch {
	case early.in < usual.in && !quiet, early.in+little < usual.in:
		return early
	case quiet:
		return p.worthwhile(now, usual, min(newerTrips*r, max(little, p.grain)))
	case usual.in < after && after <= usual.in+little:
		return due{after, becauseReport}
	}
	return usual
}

// planFirst returns when the first heartbeat for what is held from now on must
// begin at the latest.
func (h *heartbeats) planFirst(p *proof, now time.Time, left time.Duration) due {
	if len(h.underWay) == 0 {
		h.last = now
	}
	interval := p.interval()
	return due{interval, regular}.orEarlier(due{left - p.usuallyLeft(interval), becauseDeadline})
}

// latestWhole returns the latest heartbeat with two halves that is under way,
// nil if none is.
func (h *heartbeats) latestWhole() *Beat {
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

// firstHalfs returns how many heartbeats wait for the answer to their first
// half.
func (h *heartbeats) firstHalfs() (n int) {
	for _, b := range h.underWay {
		if b.first.IsZero() {
			n++
		}
	}
	return n
}

// The pauses of a refused heartbeat have jitter. They grow from T/48, so that
// about four tries fit into T/3, which counts from the first of them: the
// connection to a member that refuses all of them is closed.
const (
	firstPause    = 48 // T/48
	mostDoublings = 4
)

// retry returns b when its pause is over, and when it must be called again.
func (b *Beat) retry(timeout time.Duration, now time.Time) (send *Beat, again due) {
	pause := timeout / firstPause << min(b.refusals, mostDoublings)
	if b.retryAt.IsZero() {
		b.retryAt = now.Add(pause + random.N(pause+1))
	}
	if rest := b.retryAt.Sub(now); rest > 0 {
		return nil, due{rest, becauseRefused}
	}
	b.refused, b.retryAt = false, time.Time{}
	b.refusals++
	return b, due{pause, becauseRefused}
}

// end notes that a heartbeat has ended: see Evidence.End.
func (h *heartbeats) end(b *Beat, refused bool, first time.Time) {
	i := slices.Index(h.underWay, b)
	switch {
	case i < 0: // its connection has ended
	case refused:
		b.refused, b.first = true, first // next sends it again, or the second half of it
	default: // after the end of the connection the next one is sent
		h.underWay = slices.Delete(h.underWay, i, i+1)
	}
}

// refusedSince returns when the oldest heartbeat under way began, if the server
// has refused it.
func (h *heartbeats) refusedSince() (since time.Time, ok bool) {
	if len(h.underWay) == 0 || !h.underWay[0].refused {
		return time.Time{}, false
	}
	return h.underWay[0].sent, true
}
