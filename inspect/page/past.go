package page

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// past is what has happened to a lock in this process.
type past struct {
	path                    string
	since                   time.Time // the first event that is counted
	granted, handoffs, lost int
	events                  []event // the last ones, in the order in which they were told
	used                    time.Time
}

// event is one of a lease, or a request to release it.
type event struct {
	At    time.Time
	Text  string
	kind  eventKind
	since time.Time // when the call that was granted began
	alone bool      // the mode is exclusive
	grant recipes.Grant
}

type eventKind int

const (
	granted eventKind = iota
	released
	lost
	asked
)

// Of how many locks that are not held the past is remembered, those that were
// used last, and how many events of each.
const (
	mostPasts  = 100
	mostEvents = 60
)

// noteLocked remembers an event of a lease.
func (w *Watch) noteLocked(a recipes.Acquire, e event) {
	one := w.pasts[a.Path]
	if one == nil {
		w.forgetLocked()
		one = &past{path: a.Path, since: e.At}
		w.pasts[a.Path] = one
	}
	switch {
	case e.kind == granted && e.grant.How == recipes.GrantedByHandoff:
		one.handoffs++
		fallthrough
	case e.kind == granted:
		one.granted++
	case e.kind == lost:
		one.lost++
	}
	e.alone = a.Mode == "exclusive"
	one.used = time.Now()
	one.events = append(one.events, e)
	if len(one.events) > 2*mostEvents {
		one.events = slices.Clone(one.events[mostEvents:])
	}
}

// forgetLocked makes room for a lock. It forgets those that were used longest
// ago, and none with a lease.
func (w *Watch) forgetLocked() {
	spare := len(w.pasts) + 1 - mostPasts - len(w.leases)
	if spare <= 0 {
		return
	}
	held := map[string]bool{}
	for _, l := range w.leases {
		held[l.Path] = true
	}
	free := slices.DeleteFunc(slices.Collect(maps.Values(w.pasts)), func(p *past) bool { return held[p.path] })
	slices.SortFunc(free, func(a, b *past) int { return a.used.Compare(b.used) })
	for _, p := range free[:min(spare, len(free))] {
		delete(w.pasts, p.path)
	}
}

// pastBody is what the page of a line shows of it.
type pastBody struct {
	Since  time.Time // the counts begin
	Counts []count
	Times  string // of hand-overs
	Events []shownEvent
}

type shownEvent struct {
	At    time.Time
	Text  string
	Over  string // how long the lock's hand-over took
	first bool   // before others of the same time
}

// past returns what has happened to a line, and nil if nothing has.
func (w *Watch) past(path string) *pastBody {
	w.mu.Lock()
	one := w.pasts[path]
	if one == nil {
		w.mu.Unlock()
		return nil
	}
	now := *one
	now.events = slices.Clone(now.events)
	w.mu.Unlock() // what follows takes longer than an observer should wait
	return now.body()
}

// body has the latest events first.
func (p *past) body() *pastBody {
	const enough = 20
	b := &pastBody{Since: p.since, Counts: []count{{"granted", p.granted}, {"by handoff", p.handoffs}, {"lost", p.lost}}}
	var times []time.Duration
	for i := range p.events {
		b.Events = append(b.Events, shownEvent{At: p.events[i].At, Text: p.events[i].Text})
	}
	for i := range p.events {
		from := p.before(i)
		if from < 0 {
			continue
		}
		release, grant := &b.Events[from], &b.Events[i]
		if release.At.After(grant.At) {
			release.At = grant.At
		}
		release.first = true
		took := grant.At.Sub(release.At)
		times = append(times, took)
		grant.Over = rounded(took)
	}
	if slices.Sort(times); len(times) > 0 {
		b.Times = fmt.Sprintf("median %s, at most %s, of the last %d", rounded(times[len(times)/2]), rounded(times[len(times)-1]), len(times))
	}
	slices.SortStableFunc(b.Events, func(a, b shownEvent) int {
		if order := a.At.Compare(b.At); order != 0 || a.first == b.first {
			return order
		}
		return map[bool]int{true: -1, false: 1}[a.first]
	})
	slices.Reverse(b.Events)
	b.Events = b.Events[:min(len(b.Events), enough)]
	return b
}

// before returns the place of the release from which a lock went to the i-th
// event, a grant, or -1. A release is told when it has returned, so that may be
// told later than the grant, which was then in no time.
func (p *past) before(i int) int {
	to, from := &p.events[i], -1
	for j := range p.events {
		e := &p.events[j]
		if e.kind == released && e.grant.At.Before(to.grant.At) && follows(e, to) && (from < 0 || e.At.After(p.events[from].At)) {
			from = j
		}
	}
	return from
}

// follows reports whether a lock went from a lease to the other one, and nobody
// else had it between. In a line of a kind neighbors may both hold.
func follows(from, to *event) bool {
	switch {
	case to.kind != granted:
		return false
	case to.grant.How == recipes.GrantedByHandoff:
		return from.grant.Znode == to.grant.Znode
	case to.grant.How == recipes.GrantedByEnsemble:
		a, _ := layout.Parse(path.Base(from.grant.Znode))
		b, ok := layout.Parse(path.Base(to.grant.Znode))
		waited := to.since.Before(from.At) // else the lock was free meanwhile
		return ok && waited && from.alone && to.alone && b.Family != layout.KindLine && b.Seq-a.Seq == 1
	default:
		return false
	}
}

// rounded shows a time to the second from a minute on, and a shorter one with
// up to three digits.
func rounded(d time.Duration) string {
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	unit := time.Duration(1)
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}
