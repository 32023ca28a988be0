package proof

import (
	"slices"
	"time"
)

// gains is how much time was left until the deadline right after each of the
// latest proofs by an answer. A connect is left out: it leaves more than any
// proof that follows.
type gains struct {
	latest [8]time.Duration
	count  int // of all of them
}

func (g *gains) add(left time.Duration) {
	g.latest[g.count%len(g.latest)] = left
	g.count++
}

// usual returns how much a proof leaves as a rule: every other one leaves as
// much or more. It is timeout before there was one.
func (g *gains) usual(timeout time.Duration) time.Duration {
	n := min(g.count, len(g.latest))
	if n == 0 {
		return timeout
	}
	return slices.Sorted(slices.Values(g.latest[:n]))[n/2]
}
