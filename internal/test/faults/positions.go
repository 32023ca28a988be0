package faults

import (
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/sim"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// singles returns every fault at every moment of a run, those of the first
// moments first. Only those of pairs are returned if pairs is true.
func singles(p *sim.Plan, moments []sim.Seen, pairs bool) []sim.Strike {
	var all []sim.Strike
	seen := map[place]bool{}
	for i, m := range moments {
		if later(moments, i) {
			continue
		}
		for client := range p.Workers {
			for _, d := range deeds {
				if pairs && !d.pairs || d.leader && p.Proof != framework.ProofWrite {
					continue
				}
				for _, at := range d.at.moments(m, client) {
					s := sim.Strike{What: d.what, Client: client, Tenths: d.tenths, Steps: d.steps, At: at}
					if where := (place{s.What, client, d.tenths, d.steps, m.At}); at.After && !seen[where] {
						// After two moments of one instant is the same time.
						seen[where] = true
						all = append(all, s)
					} else if !at.After {
						all = append(all, s)
					}
				}
			}
		}
		all = append(all, requests(m, pairs)...)
	}
	return all
}

// place is a fault at an instant.
type place struct {
	what                  sim.What
	client, tenths, steps int
	at                    time.Duration
}

// moments returns the moments at which a fault of a client is tried: none, one
// or both of before and after m.
func (w where) moments(m sim.Seen, client int) (at []sim.Moment) {
	after := m.Moment
	after.After = true
	if m.Client != client {
		if w.others && m.Point == sim.Executed {
			at = append(at, after)
		}
		return at
	}
	if slices.Contains(w.before, m.Point) {
		at = append(at, m.Moment)
	}
	if slices.Contains(w.after, m.Point) {
		at = append(at, after)
	}
	return at
}

// requests returns what can happen to the request that m sends.
func requests(m sim.Seen, pairs bool) (all []sim.Strike) {
	if m.Point != sim.Sent {
		return nil
	}
	one := func(what sim.What, code testutil.Code) {
		all = append(all, sim.Strike{What: what, Client: m.Client, Code: code, At: m.Moment})
	}
	if m.Op == connect {
		if m.Session {
			one(sim.RepeatConnect, 0)
			one(sim.Refuse, testutil.CodeSessionExpired)
		}
		return all
	}
	if changes[m.Op] {
		one(sim.OrphanRequest, 0)
	}
	tried := append(slices.Clone(codes[""]), codes[m.Op]...)
	if pairs {
		tried = tried[:1]
	}
	for _, code := range tried {
		one(sim.Refuse, code)
	}
	for i, op := range m.Batch {
		of := codes[op]
		if pairs {
			of = of[:1]
		}
		for _, code := range of {
			all = append(all, sim.Strike{What: sim.Refuse, Client: m.Client, Code: code, Nth: i + 1, At: m.Moment})
		}
	}
	return all
}

// later reports whether the moment is a heartbeat or a ping that is neither one
// of the first nor one of the last of several in a row, in which nothing else
// happens. A fault there has the effect that it has at the first, some time
// later.
func later(moments []sim.Seen, i int) bool {
	beats := func(m sim.Seen) bool { return m.Op == "sync" || m.Op == "ping" }
	if !beats(moments[i]) {
		return false
	}
	near := 0
	for j := i - 1; j >= 0 && beats(moments[j]); j-- {
		near++
	}
	after := 0
	for j := i + 1; j < len(moments) && beats(moments[j]); j++ {
		after++
	}
	return near >= 6 && after >= 6 // two clients, three points each
}
