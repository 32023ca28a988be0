package sim

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// remakes removes the directory of what is contended for, after one worker has used
// up some of its sequence numbers, and mostly makes it again with a counter that
// stands about where the old one stood.
func (d *draw) remakes() {
	if d.Recipe == Semaphore || d.Recipe == Campaign || d.Storm == Rush || !d.one(1, 6) {
		return
	}
	client := d.IntN(len(d.Workers))
	home := d.Workers[client]
	first := d.IntN(len(home))
	for c := range d.Workers {
		for g, steps := range d.Workers[c] {
			switch {
			case c == client && g == first:
				for i := range steps {
					d.warm(&steps[i], i == 0)
				}
			case d.one(2, 3): // late enough not to be in the way
				steps[0].Pause += d.upTo(2 * time.Second)
			}
		}
	}
	if d.one(1, 2) {
		d.before(client, &home[first][0])
		return
	}
	for range 1 + d.IntN(3) {
		d.anew(client).At = d.upTo(3 * time.Second)
	}
}

func (d *draw) warm(s *Step, first bool) {
	if first || d.one(1, 4) {
		s.Warm = 1 + d.IntN(10)
	}
	if first && d.one(1, 2) { // others come before
		s.Pause += d.upTo(2 * time.Second)
	}
}

// anew adds a fault that remakes the directory of what is contended for, so that the
// next contenders get numbers near those of the last ones.
func (d *draw) anew(client int) *Fault {
	f := Fault{
		What: pick(d, Anew, Anew, AnewUnder), Client: client, Op: testutil.OpCreate, For: d.Timeout,
		N: pick(d, 1, 1, 1, 2, 3), Short: pick(d, -1, 0, 1, 1, 1, 1, 2, 3), By: pick(d, d.instant(), d.upTo(500*time.Millisecond)),
	}
	f.Upon = f.What == Anew && d.one(2, 3)
	d.Faults = append(d.Faults, f)
	return &d.Faults[len(d.Faults)-1]
}

// before has a client come just before the first worker comes back, to a directory
// that was remade meanwhile.
func (d *draw) before(client int, first *Step) {
	d.delay()
	other := &d.Workers[(client+1)%len(d.Workers)][0][0]
	other.Work = d.upTo(2 * time.Second)
	f, warmed := d.anew(client), d.warmed(first)
	f.At, f.N, f.Upon = warmed+d.soon(), 1, false
	if f.What == Anew {
		other.Pause = f.At + d.soon()
		first.Pause = other.Pause - warmed + d.soon()
	} else {
		first.Pause = f.At - warmed + d.soon()
		other.Pause = warmed + first.Pause + min(f.By, d.soon())
	}
}

// delay keeps everybody out of the way.
func (d *draw) delay() {
	for _, client := range d.Workers {
		for _, steps := range client {
			steps[0].Pause += 2 * d.Timeout
		}
	}
}

func (d *draw) soon() time.Duration { return pick(d, d.instant(), d.upTo(500*time.Millisecond)) }

// warmed is how long the tenures before a step take, or about.
func (d *draw) warmed(s *Step) time.Duration { return time.Duration(4*s.Warm+4) * d.Latency }

// operator is a client of nobody who contends.
const operator = -1

// operate connects the operator, if there is anything to do for it.
func (w *world) operate() (err error) {
	for _, f := range w.plan.Faults {
		if (f.What == Anew || f.What == AnewUnder) && w.operator == nil {
			w.operator, err = framework.New(w.ens.Servers(),
				framework.WithDialer(w.ens.ClientNet("operator").Dial), framework.WithSessionTimeout(w.plan.Timeout),
				framework.WithObserver(framework.Observer{StateChanged: func(s framework.StateChange) { w.changed(operator, s) }}),
			)
		}
	}
	return err
}

// anew removes the directories that are empty, as servers do and operators may. Where
// it remakes them that is one transaction: nobody finds them missing, and only their
// czxid tells them apart.
func (w *world) anew(f Fault) {
	ctx, cancel := context.WithTimeout(context.Background(), f.For)
	defer cancel()
	for range f.N {
		for _, path := range w.paths {
			for _, dir := range w.ledger.resources[path].dirs {
				stat, there := w.ens.Stat(dir)
				if !there || stat.NumChildren > 0 {
					continue
				}
				ops := []any{&zk.DeleteRequest{Path: dir, Version: -1}}
				if f.Short >= 0 {
					ops = append(ops, &zk.CreateRequest{Path: dir, Acl: zk.WorldACL(zk.PermAll)})
					for range int(stat.Cversion/2) - f.Short { // what is created and deleted changes it twice
						ops = append(ops, &zk.CreateRequest{Path: dir + "/n", Acl: zk.WorldACL(zk.PermAll)}, &zk.DeleteRequest{Path: dir + "/n", Version: -1})
					}
				}
				_, err := w.operator.Multi(ctx, ops...)
				w.ledger.log("%s: %s, after %d: %v", f.What, dir, stat.Cversion/2, err)
				if err == nil {
					w.count()
				}
			}
		}
	}
}
