package faults

import (
	"slices"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/sim"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// singles returns every fault at every moment of a run, those of the first
// moments first. Only those of pairs are returned if pairs is true.
func singles(p *sim.Plan, moments []sim.Seen, pairs bool) []sim.Fault {
	var all []sim.Fault
	seen := map[sim.Fault]bool{}
	for i, m := range moments {
		if later(moments, i) {
			continue
		}
		for client := range p.Workers {
			for _, d := range deeds {
				for _, f := range d.faults {
					// A guarantee against a leader that stays in office needs
					// ProofWrite.
					if pairs && !d.pairs || f.Member == sim.Leader && f.What != sim.Stop && p.Proof != framework.ProofWrite {
						continue
					}
					if ofLine[f.What] && !p.HasLine() || f.What.OfNames() && !p.Named || !f.What.Judged(p.Recipe) {
						continue
					}
					f.Client = client
					for _, at := range d.at.moments(m, client) {
						f.At = sim.When{Time: m.At}
						if at.After && seen[f] { // after two moments of one instant is the same time
							continue
						}
						seen[f] = seen[f] || at.After
						f.At = sim.When{Moment: at}
						all = append(all, f)
					}
				}
			}
		}
		all = append(all, requests(m, pairs)...)
	}
	return all
}

// ofLine are the faults of what clients have in a line.
var ofLine = map[sim.What]bool{sim.RemoveZnode: true, sim.RemoveDir: true, sim.DenyCreate: true, sim.DenyRead: true, sim.DenyDelete: true}

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
func requests(m sim.Seen, pairs bool) (all []sim.Fault) {
	if m.Point != sim.Sent {
		return nil
	}
	one := func(f sim.Fault) {
		f.Client, f.At.Moment = m.Client, m.Moment
		all = append(all, f)
	}
	if m.Op == connect {
		if m.Session {
			one(sim.Fault{What: sim.RepeatConnect})
			one(sim.Fault{What: sim.Refuse, Code: testutil.CodeSessionExpired})
		}
		return all
	}
	if changes[m.Op] {
		one(sim.Fault{What: sim.Orphan, By: late})
	}
	tried := append(slices.Clone(codes[""]), codes[m.Op]...)
	if pairs {
		tried = tried[:1]
	}
	for _, code := range tried {
		one(sim.Fault{What: sim.Refuse, Code: code})
	}
	for i, op := range m.Batch {
		of := codes[op]
		if pairs {
			of = of[:1]
		}
		for _, code := range of {
			one(sim.Fault{What: sim.Refuse, Code: code, Nth: i + 1})
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

// replacing returns the moments of a run at which a znode is replaced: from a
// few moments before a client sends a delete and a create in one transaction to
// some moments after that.
func replacing(moments []sim.Seen, some int) (near []sim.Seen) {
	for i, m := range moments {
		around := moments[max(0, i-some):min(i+before+1, len(moments))]
		if slices.ContainsFunc(around, func(o sim.Seen) bool { return slices.Contains(o.Batch, "delete") && slices.Contains(o.Batch, "create") }) {
			near = append(near, m)
		}
	}
	return near
}

// before is how many moments before a replacement belong to it: those of the
// request before.
const before = 4
