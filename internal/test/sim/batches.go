package sim

import (
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// manyKeys are the keys of the recipe Many.
var manyKeys = []string{"a", "b", "c", "d", "e", "f", "g", "h"}

// together draws which plans have batches. Some plans with one lock, or with
// two keys, become such with many keys. It draws last, so that the rest of a
// plan does not depend on it.
func (d *draw) together() {
	d.Alone = d.one(1, 2)
	if d.Scenario == Rush || !(d.Recipe == Keyed && d.one(1, 2) || d.Recipe == Mutex && d.one(1, 3)) {
		return
	}
	d.Recipe, d.Alone, d.Workers, d.Linger = Many, d.one(1, 8), nil, 0
	for range 2 {
		d.Workers = append(d.Workers, d.crowd())
	}
	for len(d.Views) > 2 {
		d.Views = d.Views[:2]
	}
	// A create that is delayed in front of the ensemble keeps its caller out of
	// line while those of another client are granted, again and again.
	d.Faults = slices.DeleteFunc(d.Faults, func(f Fault) bool { return f.What == RecreateUnder })
	for i := range d.Faults {
		f := &d.Faults[i]
		f.Client %= 2
		switch f.What {
		case Before, After, Orphan, DelayAns, LeaderStopsLate:
			if d.one(2, 3) {
				f.Op = testutil.OpMulti.String()
			}
		}
	}
}

// crowd draws a client whose goroutines begin and end at the same instants:
// each has a key, and some have one that another one has as well.
func (d *draw) crowd() (client [][]Step) {
	pauses, works := []time.Duration{d.upTo(50 * time.Millisecond)}, []time.Duration{d.instant()}
	for range 1 + d.IntN(2) {
		pauses, works = append(pauses, d.instant()), append(works, d.instant())
	}
	for g := range 7 + d.IntN(4) {
		var worker []Step
		for i := range pauses {
			s := d.step()
			s.Side, s.Pause, s.Warm, s.Nest = g%len(manyKeys), pauses[i], d.IntN(4), nil
			if d.one(3, 4) {
				s.Work, s.Writes = works[i], d.IntN(2)
			}
			worker = append(worker, s)
		}
		client = append(client, worker)
	}
	return client
}

func (w *world) batched() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batches++
}

// operations returns what a request does. In plans with batches a multi also
// does what its operations do.
func (w *world) operations(r testutil.Request) []testutil.Op {
	all := []testutil.Op{r.Op}
	for _, one := range r.Operations {
		if (w.plan.Recipe == Many || w.plan.Age > 0) && !slices.Contains(all, one.Op) {
			all = append(all, one.Op)
		}
	}
	return all
}

func (w *world) has(r testutil.Request, op string) bool {
	return slices.ContainsFunc(w.operations(r), func(o testutil.Op) bool { return o.String() == op })
}

// multi returns what a caller waits for that is to cancel when its client's
// multi is answered.
func (p *Plan) multi() testutil.Op {
	if p.Recipe == Many {
		return testutil.OpCreate
	}
	return testutil.OpMulti
}
