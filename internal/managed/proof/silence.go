package proof

import "time"

// patience returns how much longer the connection may be silent. left is the
// time until the deadline.
//
// A sync or a ping may be unanswered for T/3, and another request for 2/3 T
// without any byte: see silence. While something is held, the connection is
// left earlier if only T/6 is left until the stop margin. Then there is time
// for another connection. But the member gets T/12, or the time of two round
// trips.
//
// A heartbeat that a member refuses again and again, since refusedSince, is
// treated as one that it does not answer.
func (p *proof) patience(now time.Time, left time.Duration, held bool, refusedSince time.Time, refused bool) time.Duration {
	due := p.timeout / 3
	judge := func(since time.Time, limit time.Duration) {
		silentFor := now.Sub(since)
		due = min(due, limit-silentFor)
		if held {
			// A request that may take longer gets a part of the time for another
			// connection.
			hurry := left - p.margin - (p.timeout-limit)/4 // T/6 or T/12
			least := max(p.timeout/12, 2*p.trips.longest()) - silentFor
			due = min(due, max(hurry, least))
		}
	}
	if since, limit, ok := p.silence(); ok {
		judge(since, limit)
	}
	if refused {
		judge(refusedSince, p.timeout/3)
	}
	return due
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
	since, limit = p.progress.at, 2*p.timeout/3
	if len(p.pending) > 0 {
		head := p.pending[0]
		if head.at.After(since) {
			since = head.at
		}
		if head.prompt && !p.progress.receiving {
			limit = p.timeout / 3
		}
	}
	return since, limit, true
}
