package zkotel

import (
	"container/list"
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// ages knows since when calls have waited, leases were held and terms have
// lasted. The observers of one meter provider share it: a gauge has one value
// for all of them, the age of the oldest.
type ages struct {
	register                        sync.Once // the gauges
	oldestWait, oldestHold, leading metric.Float64ObservableGauge

	locks, elections labelSet

	mu     sync.Mutex // guards what follows, the groups included
	groups map[attribute.Distinct]*group
	leases map[leaseID][]*lasting // those that nothing tells apart are together
}

// group is what one set of attributes is measured of. Its lists have the times
// of the beginnings, the oldest first.
type group struct {
	attributes         attribute.Set
	waits, holds, lead list.List
	election           bool // lead is measured, and not the other two
}

// leaseID tells leases apart, except for those that were granted at the same
// instant in the same way.
type leaseID struct {
	acquire recipes.Acquire
	grant   recipes.Grant
}

// lasting is a wait or a lease that has not ended. A lease of an election is in
// two lists.
type lasting struct{ in []entry }

type entry struct {
	list *list.List
	at   *list.Element
}

// agesOf are the ages of each meter provider. An entry stays for as long as the
// program runs, as the instruments of the provider do.
var agesOf = struct {
	mu   sync.Mutex
	each map[metric.MeterProvider]*ages
}{each: make(map[metric.MeterProvider]*ages)}

// sharedAges returns the ages of a provider. They are measured by its meter.
func sharedAges(provider metric.MeterProvider, meter metric.Meter) *ages {
	a := agesFor(provider)
	a.register.Do(func() { // not under a lock: the meter may be the user's
		m := maker{meter}
		a.oldestWait = m.age("zkrecipes.oldest_wait", "For how long the longest of the calls under way has waited; 0 if there is none.")
		a.oldestHold = m.age("zkrecipes.oldest_hold", "For how long the oldest of the leases has been held; 0 if there is none.")
		a.leading = m.age("zkrecipes.leading", "For how long this process has led the election; 0 while it does not lead.")
		_, err := meter.RegisterCallback(a.observe, a.oldestWait, a.oldestHold, a.leading)
		handle(err)
	})
	return a
}

func agesFor(provider metric.MeterProvider) *ages {
	made := &ages{groups: make(map[attribute.Distinct]*group), leases: make(map[leaseID][]*lasting)}
	if !reflect.ValueOf(provider).Comparable() {
		return made
	}
	agesOf.mu.Lock()
	defer agesOf.mu.Unlock()
	if a := agesOf.each[provider]; a != nil {
		return a
	}
	agesOf.each[provider] = made
	return made
}

// observe measures at one instant. The measurements are passed on afterwards,
// without the lock.
func (a *ages) observe(_ context.Context, to metric.Observer) error {
	type measurement struct {
		of         metric.Float64Observable
		seconds    float64
		attributes attribute.Set
	}
	var all []measurement
	a.mu.Lock()
	now := time.Now()
	for _, g := range a.groups {
		if g.election {
			all = append(all, measurement{a.leading, age(&g.lead, now), g.attributes})
			continue
		}
		all = append(all, measurement{a.oldestWait, age(&g.waits, now), g.attributes}, measurement{a.oldestHold, age(&g.holds, now), g.attributes})
	}
	a.mu.Unlock()
	for _, m := range all {
		to.ObserveFloat64(m.of, m.seconds, metric.WithAttributeSet(m.attributes))
	}
	return nil
}

// age returns for how long the oldest has lasted, in seconds; 0 if there is
// none.
func age(l *list.List, now time.Time) float64 {
	if l.Len() == 0 {
		return 0
	}
	return now.Sub(l.Front().Value.(time.Time)).Seconds()
}

// groupLocked returns the group of a set of attributes.
func (a *ages) groupLocked(attributes attribute.Set, election bool) *group {
	g := a.groups[attributes.Equivalent()]
	if g == nil {
		g = &group{attributes: attributes, election: election}
		a.groups[attributes.Equivalent()] = g
	}
	return g
}

// beginWait begins a wait. The wait of a candidate also makes its election
// known.
func (a *ages) beginWait(lock attribute.Set, election *attribute.Set) *lasting {
	a.mu.Lock()
	defer a.mu.Unlock()
	if election != nil {
		a.groupLocked(*election, true)
	}
	return begin(&a.groupLocked(lock, false).waits)
}

// endWait ends a wait. nil is no wait.
func (a *ages) endWait(wait *lasting) {
	if wait == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	wait.end()
}

// beginHold begins a lease, which is a term of an election if that is not nil.
func (a *ages) beginHold(id leaseID, lock attribute.Set, election *attribute.Set) {
	a.mu.Lock()
	defer a.mu.Unlock()
	in := []*list.List{&a.groupLocked(lock, false).holds}
	if election != nil {
		in = append(in, &a.groupLocked(*election, true).lead)
	}
	a.leases[id] = append(a.leases[id], begin(in...))
}

func (a *ages) endHold(id leaseID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	same := a.leases[id]
	if len(same) == 0 {
		return // its grant was not reported
	}
	same[0].end()
	if len(same) == 1 {
		delete(a.leases, id)
		return
	}
	a.leases[id] = slices.Delete(same, 0, 1)
}

// begin appends to lists. The caller holds the lock, so their order is that of
// the times.
func begin(in ...*list.List) *lasting {
	l, now := &lasting{}, time.Now()
	for _, each := range in {
		l.in = append(l.in, entry{each, each.PushBack(now)})
	}
	return l
}

func (l *lasting) end() {
	for _, e := range l.in {
		e.list.Remove(e.at)
	}
}
