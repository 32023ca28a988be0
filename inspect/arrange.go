package inspect

import (
	"cmp"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// rules are the rules of kinds, by kind.
type rules = map[string]func(mine, theirs string) bool

// arrange sorts the contenders of a line into holders and waiters.
func (l *Line) arrange(known rules) error {
	l.Holders, l.Waiting = []Contender{}, []Contender{}
	if l.form != single {
		l.arrangePermits()
		return nil
	}
	seen := map[alike]bool{}
	var ahead []*layout.Node // of each group of alike contenders the first: the others add nothing
	for i := range l.entries {
		c := &l.entries[i]
		c.Holds, c.Unsure = true, false
		for _, other := range ahead {
			waits, unsure, err := waitsFor(&c.node, other, known)
			if err != nil {
				return err
			}
			if waits {
				c.Holds, c.Unsure = false, unsure
			}
			if waits && !unsure {
				break
			}
		}
		if c.Holds {
			l.Holders = append(l.Holders, *c)
		} else {
			l.Waiting = append(l.Waiting, *c)
		}
		if key := alikeOf(&c.node, known); !seen[key] {
			seen[key] = true
			ahead = append(ahead, &c.node)
		}
	}
	return nil
}

// alike is what the rule of a line looks at. Contenders for which it is equal
// are treated in the same way, except that those with the same sequence number
// do not wait for each other.
type alike struct {
	family layout.Family
	mode   layout.Mode
	kind   string
	name   string // if there is a rule of WithKind
}

func alikeOf(n *layout.Node, known rules) alike {
	a := alike{family: n.Family, mode: n.Mode, kind: n.Kind}
	if known[n.Kind] != nil {
		a.name = n.RuleName
	}
	return a
}

// waitsFor reports whether a contender has to wait for one that stands ahead.
// unsure means that the rule is not known: then it is assumed to wait.
func waitsFor(own, ahead *layout.Node, known rules) (waits, unsure bool, err error) {
	conflict := func(string, string) (bool, error) { return modesConflict(own, ahead), nil }
	switch {
	case own.Family == layout.Lease:
		return false, false, nil
	case own.Family != layout.KindLine || !sameSet(own, ahead):
	case known[own.Kind] == nil:
		return own.Seq != ahead.Seq, true, nil
	default:
		conflict = func(a, b string) (bool, error) { return layout.Conflict(known[own.Kind], a, b) }
	}
	waits, err = own.Waits(ahead, conflict)
	return waits, false, err
}

// modesConflict is the rule of all recipes but kinds. Contenders of different
// recipes, which should not be there, are also judged by their modes.
func modesConflict(own, ahead *layout.Node) bool {
	return layout.ModesConflict(own.Mode.String(), ahead.Mode.String())
}

// arrangePermits sorts the contenders of a semaphore. Each permit is held,
// except one that is only asked for: the first of Curator's waiters creates its
// permit's znode, and then waits until there are no more than the limit.
// Kazoo's permits have no numbers, and are sorted by the transactions that
// created them.
func (l *Line) arrangePermits() {
	if l.form == kazooSemaphore {
		slices.SortStableFunc(l.permits, func(a, b Contender) int { return cmp.Compare(a.Created, b.Created) })
	}
	newest := int64(0)
	for _, p := range l.permits {
		newest = max(newest, p.Created)
	}
	for _, p := range l.permits {
		if p.Created == newest && l.asked(p) {
			continue
		}
		p.Holds = true
		l.Holders = append(l.Holders, p)
	}
	for _, w := range l.entries {
		w.Shared, w.Holds = true, false // they wait in order, but for a shared permit
		l.Waiting = append(l.Waiting, w)
	}
}

// asked reports whether a permit belongs to the first waiter, which has created
// it since it came to the front. That is the newest permit: only the first
// creates any. The others of its session belong to threads that came to the
// front before.
func (l *Line) asked(permit Contender) bool {
	if l.form != semaphore || len(l.entries) == 0 {
		return false
	}
	first := l.entries[0] // without a session if it could not be read
	return first.Session != 0 && permit.Session == first.Session && permit.Created > first.Created
}
