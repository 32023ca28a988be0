package proof

import "time"

// This file says when a connection has been silent for too long.

const (
	promptPart = 3  // a sync or a ping may be unanswered for T/3; another request for 2/3 T without any byte
	leastPart  = 12 // a member gets T/12, or the time of leastTrips round trips
	leastTrips = 2
	hurryPart  = 4 // of the rest of T, that is T/6 or T/12, is kept for another connection
)

// patience returns how much longer the connection may be silent; it was for too
// long if that is not positive. left is the time until the deadline.
//
// While something is held, the connection is left earlier if only T/6 is left
// until the stop margin. Then there is time for another connection. After a
// request that may take longer that gets a smaller part. But the member gets
// T/12, or the time of two round trips.
//
// A heartbeat that a member refuses again and again, since refusedSince, is
// treated as one that it does not answer.
func (p *proof) patience(now time.Time, left time.Duration, held bool, refusedSince time.Time, refused bool) due {
	most := due{p.timeout / promptPart, nothingUnanswered}
	judge := func(since time.Time, limit time.Duration, because reason) {
		silentFor := now.Sub(since)
		most = most.orEarlier(due{limit - silentFor, because})
		if held {
			hurry := due{left - p.margin - (p.timeout-limit)/hurryPart, becauseHurry}
			least := due{max(p.timeout/leastPart, leastTrips*p.trips.longest()) - silentFor, becauseLeast}
			most = most.orEarlier(hurry.orLater(least))
		}
	}
	if since, limit, ok := p.silence(); ok {
		judge(since, limit, becauseUnanswered)
	}
	if refused {
		judge(refusedSince, p.timeout/promptPart, becauseRefused)
	}
	return most
}

// silence returns since when the oldest unanswered request keeps the client
// waiting, and for how long it may. Answers come in the order of the requests.
// So a sync or a ping that comes behind another request is not judged. The
// other request may take longer, as a large list does, unless a later one was
// answered before it.
func (p *proof) silence() (since time.Time, limit time.Duration, ok bool) {
	if len(p.pending) == 0 && !p.progress.receiving {
		return time.Time{}, 0, false
	}
	since, limit = p.progress.at, 2*p.timeout/promptPart
	if len(p.pending) > 0 {
		head := p.pending[0]
		if head.at.After(since) {
			since = head.at
		}
		if head.prompt && !p.progress.receiving {
			limit = p.timeout / promptPart
		}
	}
	return since, limit, true
}
