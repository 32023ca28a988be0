package sim

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// regulars has somebody take what is contended for so often in a row, before others
// have come, that a recipe does not list its line any more.
func (d *draw) regulars() {
	if d.Recipe == Semaphore || d.Recipe == Campaign || d.Storm == Rush || !d.one(1, 6) {
		return
	}
	if !d.Storm.quiet() && d.Recipe != All && d.one(1, 4) {
		d.MaxHold = d.upTo(d.Timeout / 2)
	}
	client := d.IntN(len(d.Workers))
	home := d.Workers[client]
	regular := d.IntN(len(home))
	for c := range d.Workers {
		for g, steps := range d.Workers[c] {
			switch {
			case c == client && g == regular:
				for i := range steps {
					d.warm(&steps[i], i == 0)
				}
			case d.one(2, 3): // late enough not to be in the way
				steps[0].Pause += d.upTo(2 * time.Second)
			}
		}
	}
	switch d.IntN(4) {
	case 0:
		for range 1 + d.IntN(3) {
			d.anew(client).At = d.upTo(3 * time.Second)
		}
	case 1, 2:
		d.before(client, &home[regular][0])
	case 3:
		if d.MaxHold > 0 && len(home) > 1 {
			d.while(&home[regular][0], &home[(regular+1)%len(home)][0])
		}
	}
}

func (d *draw) warm(s *Step, first bool) {
	if first || d.one(1, 4) {
		s.Warm = pick(d, 9, 9, 9, 10, 10, 10, 11, 12+d.IntN(4))
	}
	if first && d.one(1, 2) { // others come before
		s.Pause += d.upTo(2 * time.Second)
	}
}

// anew has the directory of what is contended for made anew, so that those who come
// next get numbers about those that the last ones had.
func (d *draw) anew(client int) *Fault {
	f := Fault{
		What: pick(d, Anew, Anew, AnewUnder), Client: client, Op: testutil.OpCreate, For: d.Timeout,
		N: pick(d, 1, 1, 1, 2, 3), Short: pick(d, -1, 0, 1, 1, 1, 1, 2, 3), By: pick(d, d.instant(), d.upTo(500*time.Millisecond)),
	}
	f.Upon = f.What == Anew && d.one(2, 3)
	d.Faults = append(d.Faults, f)
	return &d.Faults[len(d.Faults)-1]
}

// before has another one come just before the regular one does, in a directory that
// was made anew.
func (d *draw) before(client int, regular *Step) {
	d.delay()
	other := &d.Workers[(client+1)%len(d.Workers)][0][0]
	other.Work = d.upTo(2 * time.Second)
	f, warmed := d.anew(client), d.warmed(regular)
	f.At, f.N, f.Upon = warmed+d.soon(), 1, false
	if f.What == Anew {
		other.Pause = f.At + d.soon()
		regular.Pause = other.Pause - warmed + d.soon()
	} else {
		regular.Pause = f.At - warmed + d.soon()
		other.Pause = warmed + regular.Pause + min(f.By, d.soon())
	}
}

// while has another one of the same client wait when the regular one is lost.
func (d *draw) while(regular, other *Step) {
	d.delay()
	regular.Pause = d.soon()
	regular.Work, regular.Heedless = d.MaxHold+d.upTo(d.Timeout), d.one(2, 3)
	other.Pause = d.warmed(regular) + regular.Pause + d.upTo(d.MaxHold)
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

// warmed is when it has been alone often enough, or about.
func (d *draw) warmed(s *Step) time.Duration { return time.Duration(4*s.Warm+4) * d.Latency }

// operator is a client of nobody who contends.
const operator = -1

// operate connects the operator, if there is anything to do for it.
func (w *world) operate() (err error) {
	for _, f := range w.plan.Faults {
		if (f.What == Anew || f.What == AnewUnder) && w.operator == nil {
			w.operator, err = framework.New(w.ens.Servers(),
				framework.WithDialer(w.ens.Client("operator").Dial), framework.WithSessionTimeout(w.plan.Timeout),
				framework.WithObserver(framework.Observer{StateChanged: func(s framework.StateChange) { w.changed(operator, s) }}),
			)
		}
	}
	return err
}

// anew removes the directories that are empty, as servers do and operators may. Where
// it makes them anew that is one transaction: nobody finds them missing, and but for a
// watch they look the same.
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
