package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/hidden"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Server has the settings in which a member differs from the others; 0 for
// none.
type Server struct{ Tick, Least, Most time.Duration }

// limits draws what the options of clients and the settings of servers allow at
// their limits. It draws last, for the reason that views has.
func (d *draw) limits() {
	switch d.IntN(10) {
	case 0, 1, 2:
		d.uneven()
	case 3:
		d.secondHop()
	}
	if d.one(1, 4) {
		d.margins()
	}
	if d.one(1, 4) {
		d.distance()
	}
	often := 1 // a move between members that differ shows most with what follows
	if d.Servers != nil {
		often = 3
	}
	if d.Members > 1 && d.one(often, 4) {
		d.reports()
	}
	if !d.Scenario.quiet() && d.one(often, 4) {
		d.lateConnects()
	}
}

// knownTick tells the clients the longest tick, where it makes proofs quicker
// and heartbeats rarer. It draws after all others, for the reason that views
// has.
func (d *draw) knownTick() {
	least, _ := d.granted()
	if tick := slices.Max(d.ticks()); d.ServerTick == 0 && d.one(1, 3) && tick <= least/3 {
		d.ServerTick = tick
	}
}

// uneven gives the members ticks and bounds of session timeouts of their own,
// as a rolling change of them does.
//
// A connect that is left unanswered may still reach the leader. It shortens the
// session if that member's maxSessionTimeout is below what was granted before,
// and the client cannot know it: see internal/managed/proof. So members differ
// in that bound only where no connection is lost.
func (d *draw) uneven() {
	if d.Rates != nil { // with a larger tick, the difference of clocks would be hidden
		return
	}
	most := time.Duration(0)
	if d.one(1, 3) {
		most = d.Timeout * 2 / 3
	}
	for range d.Members {
		s := Server{Tick: (d.Timeout * 100 / pick[time.Duration](d, 300, 300, 390, 450)).Truncate(time.Millisecond), Most: most}
		if d.Scenario.quiet() && d.one(1, 2) {
			s.Most = 0
		}
		if s.Most == 0 {
			s.Least = pick(d, 0, 0, d.Timeout*3/2, 2*d.Timeout)
		}
		d.Servers = append(d.Servers, s)
	}
}

// granted returns the least timeout that a member may grant a new session, and
// the greatest.
func (p *Plan) granted() (least, most time.Duration) {
	servers := p.Servers
	if servers == nil {
		servers = []Server{{Tick: p.Tick}}
	}
	for i, s := range servers {
		g := min(max(p.Timeout, s.Least), cmp.Or(s.Most, 20*s.Tick))
		if i == 0 {
			least = g
		}
		least, most = min(least, g), max(most, g)
	}
	return least, most
}

// secondHop puts a member behind another one, which needs WithServerTick: a
// tick that is longer than a third of the timeout, and what a question and a
// report take besides.
func (d *draw) secondHop() {
	if d.Rates != nil {
		return
	}
	d.Members, d.Hop = 5, true
	d.Tick = (d.Timeout * 100 / pick[time.Duration](d, 251, 270, 290)).Truncate(time.Millisecond)
	d.ServerTick = pick(d, d.Tick+d.Timeout/20, d.Timeout/2)
	d.nearby()
}

// margins draws a stop margin and a server tick, up to what is allowed: T/3, or
// T/4 with a tick of T/2.
func (d *draw) margins() {
	least, _ := d.granted()
	least = min(least, d.Timeout) // the options are also checked against what is asked for
	if d.ServerTick == 0 && d.one(1, 3) {
		d.ServerTick = pick(d, least/2, least*2/5, least/3)
	}
	d.HasMargin, d.Margin = true, pick(d, least/20, least/8, least/6, least/4, least/4)
	switch {
	case d.Rates != nil: // which are up to a tenth
		d.Margin = max(d.Margin, d.Timeout/10)
	case d.one(1, 6):
		d.Margin = 0
	}
	if d.ServerTick == 0 && d.one(1, 2) {
		d.Margin = least / 3
	}
	d.nearby()
}

// nearby makes messages quick in a quiet plan: there leases must last, on a
// healthy ensemble, and these options leave less room for round trips.
func (d *draw) nearby() {
	if d.Scenario.quiet() {
		d.Latency = min(d.Latency, time.Millisecond)
	}
}

// longestLatency bounds a message, however long a session lasts: Close gives up
// after some seconds.
const longestLatency = 750 * time.Millisecond

// distance draws a round trip of up to a quarter of T. Up to 0.12 T with the
// default margin, no lease may be lost for it. T is what is asked for, if a
// member grants more: before it has, a client knows no other.
func (d *draw) distance() {
	least, _ := d.granted()
	least = min(least, d.Timeout)
	most := least * 6 / 100
	if !d.Scenario.quiet() && d.Recipe != Campaign && d.one(1, 2) { // a campaign has no end if no lease lasts
		most = least / 8
	}
	if !d.HasMargin && d.ServerTick == 0 || !d.Scenario.quiet() && d.Recipe != Campaign {
		d.Latency = min(d.upTo(most), longestLatency).Truncate(time.Millisecond)
	}
}

// far reports whether a round trip may be too long for leases to last.
func (p *Plan) far() bool {
	least, _ := p.granted()
	if p.tight() {
		return 2*p.Latency+2*p.Reports > least/100
	}
	return 2*p.Latency+2*p.Reports > least*12/100
}

// tight reports whether the client's options leave less room than the defaults.
func (p *Plan) tight() bool {
	least, _ := p.granted()
	return p.HasMargin || p.ServerTick > least/3
}

// proving is how long a contender that is first in line may take to prove its
// session: three timeouts where it may not succeed.
func (p *Plan) proving() time.Duration {
	_, longest := p.granted()
	switch {
	case p.far():
		return time.Duration(4*len(p.Workers)) * longest // one after the other
	case p.tight(), p.Servers != nil, 2*p.Latency > longest/50:
		return 3 * longest / 2
	}
	return 0
}

// reports makes the members' questions and reports take time.
func (d *draw) reports() {
	d.Reports = d.upTo(d.Timeout / 2)
	if d.Scenario.quiet() || d.Hop || d.Recipe == Campaign { // or leases are lost for it, or F is too short
		d.Reports = d.upTo(d.Timeout / 100)
	}
	switch least, _ := d.granted(); { // answers to syncs wait behind them
	case d.Scenario.quiet(): // see distance
		d.Reports = min(d.Reports, max(0, least*6/100-d.Latency))
	case d.Endless: // what is tried for good must succeed, but no member would answer in time
		d.Reports = min(d.Reports, max(0, least/3-2*d.Latency))
	}
}

// lateConnects adds connects that are answered late, or not, or that reach the
// leader late, and that are followed by a cut: nothing that the client sends
// after the connect arrives.
func (d *draw) lateConnects() {
	_, longest := d.granted()
	for _, client := range d.Workers { // so that somebody holds something then
		for _, steps := range client {
			if s := &steps[d.IntN(len(steps))]; d.one(1, 2) {
				s.Work = d.upTo(2 * longest)
			}
		}
	}
	at := time.Duration(0)
	for range 1 + d.IntN(3) {
		at += d.upTo(d.Timeout)
		f := Fault{At: When{Time: at}, What: pick(d, LateConnect, LateConnect, LostConnect, LateAttach), Client: d.IntN(len(d.Workers))}
		f.By = d.upTo(d.Timeout / 3)
		f.Then = 4*d.Latency + d.instant() // the connect has arrived: what the client sends after it does not
		if d.one(1, 3) {
			f.Then += f.By
		}
		f.For = f.Then + longest + d.upTo(d.Timeout)
		f.At.Upon = d.one(1, 4)
		d.Faults = append(d.Faults, f)
	}
}

// options returns what the ensemble needs for what limits has drawn. Questions
// and reports take no time until begun: longer ones end sessions.
func (p *Plan) options(begun *atomic.Bool) (opts []testutil.Option) {
	tick := p.Tick
	for i, s := range p.Servers {
		opts = append(opts, testutil.WithMemberTick(i, s.Tick), testutil.WithMemberTimeouts(i, s.Least, s.Most))
		tick = min(tick, s.Tick)
	}
	if p.OneShotOnly {
		opts = append(opts, hidden.WithoutLastingWatches())
	}
	if p.Hop {
		opts = append(opts, hidden.WithSecondHop(0, 1))
	}
	if p.Reports > 0 {
		rnd := rand.New(rand.NewPCG(p.Seed, 1)) // the ensemble's lock guards it
		delay := func(int) time.Duration {
			if !begun.Load() {
				return 0
			}
			return time.Duration(rnd.Int64N(int64(p.Reports)))
		}
		opts = append(opts, hidden.WithTouchDelays(delay), hidden.WithReportDelays(delay))
	}
	_, longest := p.granted()
	return append(opts, testutil.WithSyncLimit(int(3*longest/tick))) // members keep answering for longer than sessions last
}

// clientOptions returns what a client needs for it.
func (p *Plan) clientOptions() (opts []framework.Option) {
	if p.HasMargin {
		opts = append(opts, framework.WithStopMargin(p.Margin))
	}
	if p.ServerTick > 0 {
		opts = append(opts, framework.WithServerTick(p.ServerTick))
	}
	return append(opts, p.narrow()...)
}

// ticks returns the ticks at which sessions may expire.
func (p *Plan) ticks() []time.Duration {
	if p.Servers == nil {
		return []time.Duration{p.Tick}
	}
	var all []time.Duration
	for _, s := range p.Servers {
		all = append(all, s.Tick)
	}
	return all
}
