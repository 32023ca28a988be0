package proof

import (
	"fmt"
	"time"
)

// due is how long something may or must wait, or what time it has to spare, and
// why so long.
type due struct {
	in      time.Duration
	because reason
}

type reason string

// Why a heartbeat begins when it does.
const (
	regular         reason = "regular"                        // an interval after the one before
	becauseDeadline reason = "less is left than usual"        // it is early
	becauseReport   reason = "a contact can be reported then" // not sooner: it is early and waits for that, or waits a little longer
	becauseSpacing  reason = "not too close to the one before"
	becauseFull     reason = "too many first halves are unanswered"
	becauseRefused  reason = "one was refused" // it is sent again; or for how long it may be refused
)

// Why a connection may be silent for so long.
const (
	nothingUnanswered reason = "nothing is unanswered"
	becauseUnanswered reason = "a request is unanswered"
	becauseHurry      reason = "another connection needs the time"
	becauseLeast      reason = "a member gets this long"
)

// What proves a contact: of a lease that begins now, the contact with the least
// time to spare.
const (
	becauseSlow     reason = "round trips take too long" // no heartbeats prove it
	secondUnderWay  reason = "the second half under way"
	secondAlone     reason = "a second half that begins now"
	secondOfCurrent reason = "the heartbeat under way"
	secondOfNext    reason = "the second half of the next heartbeat"
	reportingBeat   reason = "a heartbeat that can report it"
)

func (d due) String() string { return fmt.Sprintf("%v: %s", d.in, d.because) }

func (d due) orLater(other due) due {
	if other.in > d.in {
		return other
	}
	return d
}

func (d due) orEarlier(other due) due {
	if other.in < d.in {
		return other
	}
	return d
}
