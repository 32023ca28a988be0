package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// counts reports whether workers count, or meet, and contend for nothing.
func (r Recipe) counts() bool { return r == Counter || r == Once || r == Barrier }

// logged reports whether what the recipe says is compared with what the
// ensemble has committed.
func (r Recipe) logged() bool { return r.watches() || r.counts() }

// counted draws which plans have counters, writes that are executed once,
// barriers and registrations instead of locks. It draws last, for the reason
// that views has.
func (d *draw) counted() {
	if d.Scenario == Rush || d.Recipe.watches() || !d.one(1, 4) {
		return
	}
	d.Recipe, d.OneShotOnly = pick(d, Counter, Counter, Once, Barrier, Barrier, Discovery), d.one(1, 8)
	if d.Crashed = d.Recipe == Barrier && d.one(1, 2); d.Crashed && d.one(1, 3) {
		d.Neighbor = d.upTo(2 * d.Timeout)
	}
	d.Faults = slices.DeleteFunc(d.Faults, func(f Fault) bool { return f.What == Recreate || f.What == RecreateUnder })
	for i := range d.Faults {
		if f := &d.Faults[i]; f.What != Orphan || d.one(1, 2) {
			f.Op = d.countedOp().String()
		}
	}
	if !d.Scenario.quiet() && d.one(1, 4) {
		d.Faults = append(d.Faults, Fault{At: When{Time: d.upTo(2 * d.Timeout)}, What: LoseEvents, Client: d.IntN(len(d.Workers)), For: d.upTo(d.Timeout)})
	}
	if !d.Scenario.quiet() && d.one(1, 3) {
		f := Fault{At: When{Time: d.upTo(2 * d.Timeout)}, What: RemoveZnode, Client: d.IntN(len(d.Workers))}
		d.Faults = append(d.Faults, f)
		if d.Recipe == Counter { // and an answer is lost before
			f.What, f.At.Time, f.For = DropReplies, f.At.Time-d.upTo(min(f.At.Time, d.Timeout/2)), d.Timeout/2+d.upTo(d.Timeout/4)
			d.Faults = append(d.Faults, f)
		}
	}
	d.Limit = 2 + d.IntN(2)
	for c := range d.Workers {
		d.Workers[c] = nil
		for range 1 + d.IntN(2) {
			d.Workers[c] = append(d.Workers[c], d.counter())
		}
	}
	d.Initial, d.Brief = d.one(1, 4), d.Brief && !d.Endless
	d.Layout = pick(d, counter.LayoutLong, counter.LayoutKazoo, counter.LayoutCount)
	if d.Layout == counter.LayoutCount && d.calls() > 24 { // see digits
		d.Layout = counter.LayoutLong
	}
	if d.Recipe == Counter && d.one(1, 2) {
		d.Age, d.Uneven = time.Second+d.upTo(2*d.Timeout), d.one(1, 2)
		if d.one(1, 2) {
			d.oneID()
		}
	}
	d.Other = d.Recipe == Barrier && d.one(1, 3)
}

// oneID makes all calls count one id, which is forgotten soon, or an id of
// their own, after which old markers are removed.
func (d *draw) oneID() {
	d.Age = time.Second + d.upTo(time.Second)
	if !d.Scenario.quiet() {
		d.Faults = append(d.Faults, Fault{At: When{Time: d.Age}, For: 5 * time.Second, What: Delay, Op: testutil.OpDelete.String(), Times: 1 + d.IntN(3), By: d.upTo(d.Age)})
	}
	for _, client := range d.Workers {
		for _, steps := range client {
			for _, s := range steps {
				for i := range s.Calls {
					s.Calls[i] = Call{What: AddOnce, ID: pick(d, "a", fmt.Sprint(d.IntN(1e9))), Pause: d.upTo(d.Age)}
				}
			}
		}
	}
}

func (d *draw) countedOp() testutil.Op {
	switch d.Recipe {
	case Discovery:
		return d.watchedOp()
	case Barrier:
		if d.Crashed && d.one(1, 3) {
			return testutil.OpSetData
		}
		return pick(d, testutil.OpCreate, testutil.OpCreate, testutil.OpMulti, testutil.OpMulti, testutil.OpMulti, testutil.OpExists, testutil.OpGetChildren2,
			testutil.OpGetData, testutil.OpSetData, testutil.OpAddWatch, testutil.OpMultiRead, testutil.OpDelete, testutil.OpCreateContainer, testutil.OpCreateSession)
	}
	return pick(d, testutil.OpMulti, testutil.OpMulti, testutil.OpMulti, testutil.OpMulti, testutil.OpGetData, testutil.OpSetData, testutil.OpSync,
		testutil.OpCreate, testutil.OpDelete, testutil.OpExists, testutil.OpCreateSession)
}

// counter draws what a goroutine does.
func (d *draw) counter() (steps []Step) {
	for i := range 1 + d.IntN(2) {
		s := Step{Pause: pick(d, d.instant(), d.upTo(2*time.Second)), Work: pick(d, d.instant(), d.upTo(d.Timeout))}
		switch d.Recipe {
		case Discovery:
			s.Writes, s.Stand = d.IntN(4), Stand{Name: fmt.Sprintf("i-%d-%d", i, d.IntN(1e9)), Service: pick(d, services...)}
			if s.Stand.Sequential, s.Stand.Yield = d.one(1, 6), d.one(1, 6); !s.Stand.Sequential && d.one(1, 3) {
				s.Stand.Name = pick(d, "a", "b")
			}
			if d.canCancel() {
				s.Cancel, s.Hasty, s.Bound = d.sometimes(), d.sometimes(), d.sometimes()
			}
			if s.Consumes = !d.losesEvents() && d.one(1, 3); s.Consumes {
				s.Stand = Stand{Service: s.Stand.Service}
			}
		case Barrier:
			s.Gate = pick(d, "", "", "", "", SetGate, OpenGate, AwaitGate)
			if d.canCancel() {
				s.Cancel, s.Bound = d.sometimes(), d.sometimes()
			}
		default:
			s.Calls = d.callsOf()
		}
		steps = append(steps, s)
	}
	if d.Recipe == Discovery {
		steps[len(steps)-1].Stay = d.one(2, 3)
	}
	return steps
}

func (d *draw) canCancel() bool {
	return d.Scenario == Cancels || !d.Scenario.quiet() && d.one(1, 2)
}

// sometimes draws a bound of a call; mostly it has none.
func (d *draw) sometimes() time.Duration {
	if !d.one(1, 4) {
		return 0
	}
	return pick(d, d.instant(), d.upTo(d.Timeout))
}

func (d *draw) callsOf() (all []Call) {
	whats := []What{Add, Add, Add, Add, AddOnce, AddOnce, AddOnce, Reserve, Swap, Set, Get}
	if d.Recipe == Once {
		whats = []What{Update, Update, UpdateOnce, UpdateOnce, MultiOnce, MultiOnce, MultiOnce, SetAny, SetAny, SetACL, Make, Make, Take}
	}
	one := d.Recipe == Once && d.one(1, 4) // several make one ephemeral znode
	cancels := d.canCancel()
	for range 1 + d.IntN(4) {
		c := Call{What: pick(d, whats...), ID: pick(d, "a", "b", "c"), Pause: pick(d, 0, d.instant(), d.upTo(time.Second))}
		c.Other = c.What == AddOnce && d.one(1, 6)
		switch {
		case one && d.one(3, 4):
			c.What, c.ID = Make, "a"
		case c.What == Make && d.one(1, 2):
			c.ID = ""
		}
		if cancels {
			c.Cancel = d.sometimes()
		}
		all = append(all, c)
	}
	return all
}

// calls returns how many calls a plan has.
func (p *Plan) calls() (n int) {
	for _, client := range p.Workers {
		for _, steps := range client {
			for _, s := range steps {
				n += len(s.Calls)
			}
		}
	}
	return n
}

// HasLine reports whether clients have znodes of their own in the directories
// of a resource.
func (p *Plan) HasLine() bool {
	for _, client := range p.Workers {
		for _, steps := range client {
			for _, s := range steps {
				alone := slices.ContainsFunc(s.Calls, func(c Call) bool { return !c.once() })
				if p.Recipe != Once && s.Gate == "" && (len(s.Calls) == 0 || alone) {
					return true
				}
			}
		}
	}
	return false
}

// does runs a step of a worker that counts or meets.
func (k *worker) does(s Step) bool {
	switch {
	case len(s.Calls) > 0:
		return k.callsOf(s)
	case s.Gate != "":
		return k.gate(s)
	}
	return k.round(s)
}
