package sim

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// remakes adds a fault that removes the directory after one worker has used up
// some of its sequence numbers. Mostly the directory is created again with a
// counter near the old one.
func (d *draw) remakes() {
	if d.Recipe == Semaphore || d.Recipe == Campaign || d.Scenario == Rush || !d.one(1, 6) {
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
			case d.one(2, 3): // late, so that it does not interfere
				steps[0].Pause += d.upTo(2 * time.Second)
			}
		}
	}
	if d.one(1, 2) {
		d.before(client, &home[first][0])
		return
	}
	for range 1 + d.IntN(3) {
		d.recreate(client).At.Time = d.upTo(3 * time.Second)
	}
}

// remakesUnder adds a fault that removes the directory, with all contenders,
// and creates it again while a read of the line is in flight. It draws last,
// for the reason that views has.
func (d *draw) remakesUnder() {
	switch d.Recipe {
	case Mutex, Keyed, Many, All, RWLock, Line:
	default:
		return
	}
	if d.Scenario == Rush || d.Scenario.quiet() || !d.one(1, 6) {
		return
	}
	for range 1 + d.IntN(3) {
		op := pick(d, testutil.OpGetChildren2, testutil.OpGetChildren2, testutil.OpMultiRead, testutil.OpGetData)
		d.Faults = append(d.Faults, Fault{
			What: RemakeUnder, Client: d.IntN(len(d.Workers)), Op: op.String(), For: d.Timeout, Times: 1, Short: 1 + d.IntN(3),
			By: d.upTo(500 * time.Millisecond), At: When{Time: d.upTo(3 * time.Second)},
		})
	}
}

func (d *draw) warm(s *Step, first bool) {
	if first || d.one(1, 4) {
		s.Warm = 1 + d.IntN(10)
	}
	if first && d.one(1, 2) { // others come first
		s.Pause += d.upTo(2 * time.Second)
	}
}

// recreate adds a fault that creates the directory again, so that the next
// contenders get numbers near the last ones.
func (d *draw) recreate(client int) *Fault {
	f := Fault{
		What: pick(d, Recreate, Recreate, RecreateUnder), Client: client, Op: testutil.OpCreate.String(), For: d.Timeout,
		Times: pick(d, 1, 1, 1, 2, 3), Short: pick(d, -1, 0, 1, 1, 1, 1, 2, 3), By: pick(d, d.instant(), d.upTo(500*time.Millisecond)),
	}
	f.At.Upon = f.What == Recreate && d.one(2, 3)
	d.Faults = append(d.Faults, f)
	return &d.Faults[len(d.Faults)-1]
}

// before makes a client come just before the first worker returns to a
// directory that was recreated meanwhile.
func (d *draw) before(client int, first *Step) {
	d.delay()
	other := &d.Workers[(client+1)%len(d.Workers)][0][0]
	other.Work = d.upTo(2 * time.Second)
	f, warmed := d.recreate(client), d.warmed(first)
	f.At, f.Times = When{Time: warmed + d.soon()}, 1
	if f.What == Recreate {
		other.Pause = f.At.Time + d.soon()
		first.Pause = other.Pause - warmed + d.soon()
	} else {
		first.Pause = f.At.Time - warmed + d.soon()
		other.Pause = warmed + first.Pause + min(f.By, d.soon())
	}
}

// delay makes all workers start later.
func (d *draw) delay() {
	for _, client := range d.Workers {
		for _, steps := range client {
			steps[0].Pause += 2 * d.Timeout
		}
	}
}

func (d *draw) soon() time.Duration { return pick(d, d.instant(), d.upTo(500*time.Millisecond)) }

// warmed returns roughly how long the holdings before a step take.
func (d *draw) warmed(s *Step) time.Duration { return time.Duration(4*s.Warm+4) * d.Latency }

// operator names a client that does not contend.
const operator = -1

// operate connects the operator's client, if it has anything to do.
func (w *world) operate() (err error) {
	needed := w.plan.Staged || w.plan.Recipe == Barrier
	for _, f := range w.plan.Faults {
		needed = needed || f.What == Recreate || f.What == RecreateUnder || f.What == RemakeUnder || f.What == RemoveZnode || f.What == WriteZnode || f.What == WriteUnheard
	}
	if needed {
		w.operator, err = framework.New(w.ens.Servers(),
			framework.WithDialer(w.ens.ClientNet("operator").Dial), framework.WithSessionTimeout(w.plan.Timeout),
			framework.WithObserver(framework.Observer{StateChanged: func(s framework.StateChange) { w.changed(operator, s) }}),
		)
	}
	return err
}

// recreate removes the empty directories, as servers do, or all, as operators
// may. Where it creates them again, that is one transaction: no client finds
// them missing, and only their czxid differs.
func (w *world) recreate(f Fault) {
	ctx, cancel := context.WithTimeout(context.Background(), f.For)
	defer cancel()
	for range f.Times {
		for _, path := range w.paths {
			for _, dir := range w.ledger.resources[path].dirs {
				stat, there := w.ens.Stat(dir)
				if !there || stat.NumChildren > 0 && f.What != RemakeUnder {
					continue
				}
				var ops []any
				for _, name := range w.ens.Children(dir) {
					defer w.ledger.remove(dir + "/" + name)()
					ops = append(ops, &zk.DeleteRequest{Path: dir + "/" + name, Version: -1})
				}
				ops = append(ops, &zk.DeleteRequest{Path: dir, Version: -1})
				if f.Short >= 0 {
					ops = append(ops, &zk.CreateRequest{Path: dir, Acl: zk.WorldACL(zk.PermAll)})
					for range int(stat.Cversion/2) - f.Short { // creating and deleting a znode changes it twice
						ops = append(ops, &zk.CreateRequest{Path: dir + "/n", Acl: zk.WorldACL(zk.PermAll)}, &zk.DeleteRequest{Path: dir + "/n", Version: -1})
					}
				}
				_, err := w.operator.Multi(ctx, ops...)
				w.ledger.log("%s: %s, after %d: %v", f.What, dir, stat.Cversion/2, err)
			}
		}
	}
}
