package proof

import "time"

// This file has what answers say about the network: how long a round trip
// takes, and when an answer has come on last. No deadline rests on it.

// roundTrips estimates how long a round trip takes: the longest of those that
// ended in the latest two windows. Writes can take longer than syncs, and an
// answer can come behind a large one. Both are counted only where nothing else
// is known.
type roundTrips struct {
	window            time.Duration
	since             time.Time // when the present window began
	present, previous time.Duration
}

func (r *roundTrips) add(took time.Duration, at time.Time) {
	if !r.isRecent(at) {
		r.previous = r.present
		if at.Sub(r.since) >= 2*r.window {
			r.previous = 0
		}
		r.present, r.since = 0, at
	}
	r.present = max(r.present, took)
}

// isRecent reports whether the present window is not over.
func (r *roundTrips) isRecent(now time.Time) bool { return now.Sub(r.since) < r.window }

// isKnown reports whether a round trip ended in the latest two windows.
func (r *roundTrips) isKnown(now time.Time) bool { return now.Sub(r.since) < 2*r.window }

func (r *roundTrips) longest() time.Duration { return max(r.present, r.previous) }

// progress tells when the answers have come on last.
type progress struct {
	at        time.Time // the latest answer, in order, or bytes of it
	receiving bool      // an answer has arrived in part
	bytes     int       // of it, since at
}

// leastProgress is how many bytes of an answer must arrive to count. Behind an
// answer that never ends, those to pings are taken for a part of it.
const leastProgress = 512

// receive notes that n bytes of an answer have arrived. inPart says that there
// are more to come.
func (p *progress) receive(n int, inPart bool, at time.Time) {
	p.bytes += n
	if !p.receiving || !inPart || p.bytes >= leastProgress {
		p.at, p.bytes = at, 0
	}
	p.receiving = inPart
}
