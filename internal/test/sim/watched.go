package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// watches reports whether workers follow what changes, and contend for nothing.
func (r Recipe) watches() bool { return r == Cache || r == Presence || r == Discovery }

// watched draws which plans have caches and presence nodes instead of locks. It
// draws last, for the reason that views has.
func (d *draw) watched() {
	if d.Scenario == Rush || !d.one(1, 5) {
		return
	}
	d.Recipe, d.OneShotOnly = pick(d, Cache, Presence), d.one(1, 8)
	d.Faults = slices.DeleteFunc(d.Faults, func(f Fault) bool { return f.What == Recreate || f.What == RecreateUnder })
	for i := range d.Faults {
		if f := &d.Faults[i]; f.What != Orphan || d.one(1, 2) {
			f.Op = d.watchedOp().String()
		}
	}
	if !d.Scenario.quiet() && d.one(1, 3) {
		d.Faults = append(d.Faults, Fault{At: When{Time: d.upTo(2 * d.Timeout)}, What: LoseEvents, Client: d.IntN(len(d.Workers)), For: d.upTo(d.Timeout)})
	}
	if !d.Scenario.quiet() && d.one(1, 3) {
		d.Faults = append(d.Faults, Fault{At: When{Time: d.upTo(2 * d.Timeout)}, What: RemoveZnode, Client: d.IntN(len(d.Workers))})
	}
	for c := range d.Workers {
		d.Workers[c] = nil
		for g := range 1 + d.IntN(3) {
			d.Workers[c] = append(d.Workers[c], d.watcher(c, g))
		}
	}
	if d.Recipe == Presence && !d.Scenario.quiet() && len(d.Workers) > 1 && d.one(1, 4) {
		d.succeeded()
	}
}

// succeeded draws that somebody deletes the znode of a node that yields, and
// stays, while another one waits for its name.
func (d *draw) succeeded() {
	steps := d.Workers[0][0]
	yields, waits := &steps[len(steps)-1], &d.Workers[1][0][0]
	*yields = Step{Pause: yields.Pause, Stand: Stand{Name: "a", Yield: true}, Stay: true}
	*waits = Step{Pause: waits.Pause, Work: waits.Work, Stand: Stand{Name: "a"}}
	d.Faults = append(d.Faults, Fault{At: When{Time: d.upTo(2 * d.Timeout)}, What: RemoveZnode, Client: 0})
}

func (d *draw) watchedOp() testutil.Op {
	if d.Recipe == Cache {
		return pick(d, testutil.OpMultiRead, testutil.OpMultiRead, testutil.OpMultiRead, testutil.OpAddWatch, testutil.OpGetData, testutil.OpGetChildren2,
			testutil.OpSync, testutil.OpSetData, testutil.OpCreate, testutil.OpDelete, testutil.OpSetWatches, testutil.OpCreateSession)
	}
	return pick(d, testutil.OpCreate, testutil.OpCreate, testutil.OpCreate, testutil.OpGetData, testutil.OpGetData, testutil.OpDelete, testutil.OpDelete,
		testutil.OpSetData, testutil.OpSetData, testutil.OpExists, testutil.OpSync, testutil.OpMulti, testutil.OpCreateContainer, testutil.OpCreateSession)
}

// watcher draws what a goroutine does.
func (d *draw) watcher(c, g int) (steps []Step) {
	stays := d.one(2, 3)
	for i := range 1 + d.IntN(3) {
		s := Step{Pause: pick(d, d.instant(), d.upTo(2*time.Second)), Work: d.upTo(2 * d.Timeout), Writes: d.IntN(4)}
		if d.one(1, 3) {
			s.Work = d.instant()
		}
		if d.Scenario == Cancels || !d.Scenario.quiet() && d.one(1, 2) {
			if d.one(1, 4) {
				s.Cancel = pick(d, d.instant(), d.upTo(d.Timeout))
			}
			if d.one(1, 4) {
				s.Bound = d.instant()
			}
			if d.one(1, 4) {
				s.Hasty = d.instant()
			}
		}
		switch follows := d.Recipe == Cache && (g == 0 && c == 0 || g > 0 && d.one(1, 2)) || d.Recipe == Presence && d.one(1, 6); {
		case follows:
			s.Follow = Follow{
				On: true, Depth: pick(d, -1, -1, 0, 1, 2), OneShot: d.one(1, 3), NoData: d.one(1, 4), Recheck: pick(d, 0, time.Hour, recheck(d.Plan)),
			}
			if d.losesEvents() {
				s.Follow.Recheck = recheck(d.Plan)
			}
		case d.Recipe == Cache:
			s.Changes = d.changes()
		default:
			s.Stand = d.stand(fmt.Sprintf("m-%d-%d-%d-", c, g, i))
		}
		steps = append(steps, s)
	}
	steps[len(steps)-1].Stay = stays
	return steps
}

func (p *Plan) losesEvents() bool { return p.has(LoseEvents) }

func (p *Plan) has(what What) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.What == what })
}

// recheck is within which time a cache finds an event that was lost, where the
// plan loses some.
func recheck(p *Plan) time.Duration { return 5 * p.Timeout }

// ByBudget is a Follow.Recheck: all caches of a client share what theirs costs.
const ByBudget = -1

// rechecks draws which caches share what a recheck costs, and, where events are
// lost, that connections end more often than it is due: with one-shot watches
// nothing else reads again. Then more events are lost, between others that make
// the zxid grow: what setWatches asks for is later than what was lost.
func (d *draw) rechecks() {
	if !d.Recipe.watches() {
		return
	}
	ends := d.losesEvents() && d.one(1, 3)
	if ends {
		d.Ends = recheck(d.Plan) * 7 / 10 // a recheck takes five looks, one each T, of which the first may come at once
		for range 12 {
			at, lasts := pick(d, d.upTo(6*time.Second), d.upTo(6*d.Timeout)), pick(d, d.upTo(time.Second), d.upTo(d.Timeout/4))
			d.Faults = append(d.Faults, Fault{At: When{Time: at}, What: LoseEvents, Client: d.IntN(len(d.Workers)), For: lasts})
		}
	}
	shares := !ends && !d.OneShotOnly && !d.has(Refuse) && d.one(1, 2) // without multiRead each reads one znode at a time
	for _, client := range d.Workers {
		for _, steps := range client {
			for i := range steps {
				f := &steps[i].Follow
				f.OneShot = f.OneShot || ends
				if shares {
					f.Recheck = ByBudget
				}
			}
		}
	}
}

// snapshots draws which caches keep one. It draws last, for the reason that
// views has.
func (d *draw) snapshots() {
	if !d.Recipe.watches() {
		return
	}
	for _, client := range d.Workers {
		for _, steps := range client {
			for i := range steps {
				steps[i].Follow.Kept = steps[i].Follow.On && d.one(1, 3)
			}
		}
	}
}

func (d *draw) changes() (all []Change) {
	for range 1 + d.IntN(12) {
		c := Change{Pause: pick(d, 0, d.instant(), d.upTo(time.Second)), What: pick(d, Put, Put, Put, Mark, Write, Write, Erase, Erase, Anew)}
		for range pick(d, 0, 1, 1, 1, 2, 2, 3) {
			c.Path += "/" + pick(d, "a", "b", "c")
		}
		if d.one(1, 2) { // often something is there
			c.Pause = d.upTo(time.Second)
		}
		all = append(all, c)
	}
	return append([]Change{{What: Put}, {What: Put, Path: "/a"}, {What: Put, Path: "/b"}}, all...)
}

func (d *draw) stand(name string) Stand {
	s := Stand{Name: name, Yield: d.one(1, 6)}
	switch d.IntN(4) {
	case 0, 1:
		s.Name = pick(d, name, "a", "a", "b")
	case 2:
		s.Sequential = true
	default:
		s.Yield, s.Group, s.Layout = false, true, pick(d, layouts...)
		if s.Layout == presence.LayoutMember && d.one(1, 2) {
			s.Name = "a"
		}
	}
	return s
}

// watched runs a step of a worker that contends for nothing.
func (k *worker) watched(s Step) bool {
	switch {
	case len(s.Changes) > 0:
		return k.changes(s)
	case s.Follow.On:
		return k.follows(s)
	case s.Consumes:
		return k.consumes(s)
	}
	return k.stands(s)
}

// above starts the cache above everything else, if the plan has one.
func (w *world) above() *cache.Cache {
	c := must(cache.New(w.clients[0], "/"))
	if w.plan.Above {
		c.Start()
	}
	return c
}

// guards is for how long the path of a presence node that was closed may be
// guarded, with a watch: as long as strays are looked for.
func (p *Plan) guards() time.Duration {
	if p.Recipe != Presence && p.Recipe != Discovery {
		return 0
	}
	_, longest := p.granted()
	return 100 * longest
}

// unwatched checks that the servers have no watch that nobody wants: the client
// removes it after about a session timeout. The cache above everything else has
// one for its root, or two of a single event for each znode. Where the server
// cannot be asked whether it removes watches, an event must have used them up.
func (w *world) unwatched(above *cache.Cache) {
	view, said := w.plan.view(0), w.said()
	w.becomesSo(max(forgets, w.plan.guards()), func() string {
		left, own, single := w.ens.Watches(), map[string]bool{}, true
		for n := range above.View().All() {
			full := view.Full(n.Path)
			single = single && (left[full] == 2 || w.tracked(full, left[full]))
		}
		for n := range above.View().All() {
			own[view.Full(n.Path)] = single || n.Path == "/"
		}
		for path, n := range left {
			if !w.tracked(path, n) && !own[path] && (!said || strings.Contains(path, "_c_")) {
				return fmt.Sprintf("%d watches of %s", n, path)
			}
		}
		return ""
	})
}

// dirs returns the directories of the recipe's znodes at a path.
func (p *Plan) dirs(path string) []string {
	switch p.Recipe {
	case Semaphore:
		return []string{path + "/locks", path + "/leases"}
	case Presence:
		all := []string{path + single}
		for _, l := range layouts {
			all = append(all, path+groupOf(l))
		}
		return all
	case Discovery:
		var all []string
		for _, name := range services {
			all = append(all, path+"/"+name)
		}
		return all
	case Counter, Once:
		return []string{path + "-receipts", path + "-lock"}
	}
	return []string{path}
}
