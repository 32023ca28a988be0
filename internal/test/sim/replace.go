package sim

import (
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/hidden"
)

// Another ensemble takes the place of the one behind the addresses: it was
// restored from a copy that has all sessions, with an epoch that is higher, or
// rebuilt from nothing and provisioned by the same script.
//
// What caches, presence nodes and registrations say is judged across that. A
// cache shows no znode in a state of before once it has shown a later one,
// Fresh and Reach return what is committed in the history that there is, and in
// the end all is true. A presence node makes its znode again. Reach may wait
// for a transaction of a history that is over until its context ends, and says
// nothing while its client has no session in the present one.
//
// Locks and what is built on them are not judged: two may hold one for a
// session timeout, tokens may go back, and a contender that has left after the
// copy is back in line. Nor is a znode that a presence node has deleted since.

// rebuilds are how many transactions more a rebuilt ensemble has made before it
// was provisioned. With fewer than before, sessions have seen later ones.
var rebuilds = map[What]int64{RebuildFewer: -3, Rebuild: 0, RebuildMore: 1000}

// Judged reports whether what a recipe does after a fault is judged.
func (f What) Judged(r Recipe) bool {
	_, rebuild := rebuilds[f]
	return r.watches() || !rebuild && f != Restore
}

// replacements draws that the ensemble is replaced. It draws last, for the
// reason that views has.
func (d *draw) replacements() {
	if !d.Recipe.watches() || d.Scenario.quiet() || d.Members == 1 || !d.one(1, 10) {
		return
	}
	copied := d.upTo(2 * d.Timeout)
	d.Faults = append(
		d.Faults, Fault{What: Copy, At: When{Time: copied}},
		Fault{What: pick(d, Restore, Restore, Restore, RebuildFewer, Rebuild, RebuildMore), At: When{Time: copied + d.upTo(d.Timeout)}},
	)
}

// copies keeps a copy of the ensemble for Restore.
func (w *world) copies() {
	copied := w.ens.Snapshot()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.copied = copied
}

// replace replaces the ensemble. No leader is elected before the truth is told:
// there are several members.
func (w *world) replace(what What) (done bool) {
	if what == Restore && w.hasStruck(Stop, Pause, Isolate, LeaderStops, LeaderStopsLate) {
		return false // there may be another epoch already
	}
	w.mu.Lock()
	copied := w.copied
	w.mu.Unlock()
	by, rebuilt := rebuilds[what]
	if rebuilt {
		copied = hidden.Provisioned(w.ens.Snapshot(), by)
		sessions := w.ens.Sessions()
		w.mu.Lock()
		for _, s := range sessions {
			w.buried[s.ID] = true
		}
		w.mu.Unlock()
	}
	w.ens.Restore(copied)
	now := map[string]znode{}
	for line := range strings.Lines(w.ens.Tree()) {
		path, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		stat, _ := w.ens.Stat(path)
		data, _ := w.ens.Data(path)
		now[path] = znode{exists: true, mzxid: stat.Mzxid, czxid: stat.Czxid, owner: stat.EphemeralOwner, data: string(data)}
	}
	w.truth.replace(now, rebuilt)
	return true
}

// inThisHistory reports whether a client has a session in the ensemble that
// there is now. Until then it can know of no transaction there.
func (w *world) inThisHistory(client int) bool {
	s, err := w.clients[client].Session()
	return err == nil && !w.isBuried(s.ID())
}

func (w *world) isBuried(session int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buried[session]
}

// replaced reports whether the ensemble was replaced, and rebuilt.
func (w *world) replaced() bool {
	now, _ := w.truth.history()
	return now
}

func (w *world) rebuilt() bool {
	_, rebuilt := w.truth.history()
	return rebuilt
}

// history reports whether another ensemble has replaced the first one, and
// whether it was rebuilt. t may be nil.
func (t *truth) history() (replaced, rebuilt bool) {
	if t == nil {
		return false, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.began > 0, t.moved > 0
}

// replace is told of the state of another ensemble.
func (t *truth) replace(now map[string]znode, rebuilt bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rebuilt {
		t.moved = t.order + 1 // any later transaction counts as later than all of before
		t.order = t.moved
	} else {
		t.order = (t.order>>32 + 1) << 32
	}
	t.began = t.order
	for path := range t.states {
		if _, ok := now[path]; !ok {
			now[path] = znode{}
		}
	}
	for path, z := range now {
		before := t.lastLocked(path)
		z.zxid, z.at = before.zxid, before.at
		if z.by = before.by; z != before {
			z.zxid, z.at, z.by = t.order, time.Now(), 0
			t.states[path] = append(t.states[path], z)
		}
	}
}

// revived reports whether a restore has brought back the znode of the last of
// some states, which was gone, or had made room for another one.
func revived(states []znode) bool {
	last := len(states) - 1
	return last > 0 && states[last].exists && states[last].by == 0 && states[last].czxid != states[last-1].czxid
}
