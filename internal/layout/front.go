package layout

import (
	"cmp"
	"slices"
)

// Front is the part of a line that ends with one contender, self, as a list of
// the directory shows it. A contender of a long line nearly always needs only
// its predecessor. So NewFront makes one pass, and neither sorts nor copies the
// line.
type Front struct {
	Joined bool   // the list shows self
	Twins  bool   // two exclusive contenders have the same number: see the function Twins
	Other  string // the first child, anywhere in the list, that belongs to another set; or empty

	self     Node
	children []string
	set      Set
	near     [2]position // the predecessor, and the one before it, as far as there are any
	ahead    int         // how many are ahead of self, without those that have its number
}

// position is where a contender stands ahead of self.
type position struct {
	distance uint32 // by how much its number is less than self's
	mode     Mode
	name     string
}

// compare orders positions from the predecessor to the first in line: the
// reverse of Sort.
func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.distance, q.distance), cmp.Compare(q.mode, p.mode), cmp.Compare(q.name, p.name))
}

// NewFront returns the front that ends with self.
func NewFront(self Node, children []string, set Set) Front {
	f := Front{self: self, children: children, set: set}
	var exclusive distances
	f.Other = f.each(func(p position) (more bool) {
		f.Joined = f.Joined || p.name == self.Name
		if p.mode == Exclusive {
			exclusive.add(p.distance)
		}
		if p.distance == 0 {
			return true
		}
		switch {
		case f.ahead == 0 || p.compare(f.near[0]) < 0:
			f.near[0], f.near[1] = p, f.near[0]
		case f.ahead == 1 || p.compare(f.near[1]) < 0:
			f.near[1] = p
		}
		f.ahead++
		return true
	})
	f.Twins = exclusive.repeat()
	return f
}

// each calls do for self and each contender that is not behind it, in the order
// of the list, until do returns false. It returns the first child that belongs
// to another set.
func (f *Front) each(do func(position) (more bool)) (conflict string) {
	var node Node
	for _, name := range f.children {
		switch {
		case !node.classify(name):
		case !f.set.has(&node):
			conflict = cmp.Or(conflict, name)
		case Compare(node.Seq, f.self.Seq) <= 0:
			if !do(position{uint32(f.self.Seq) - uint32(node.Seq), node.Mode, name}) {
				return conflict
			}
		}
	}
	return conflict
}

// Last returns the name of the contender nearest ahead of self for which
// conflicts returns true, or "" if there is none. It begins at the predecessor,
// and ends at the first error. It does not ask about contenders that have the
// same number as self. It sorts the line only if the predecessor does not
// conflict.
func (f *Front) Last(conflicts func(Node) (bool, error)) (name string, err error) {
	if f.ahead == 0 {
		return "", nil
	}
	if found, err := f.near[0].is(conflicts); found || err != nil || f.ahead == 1 {
		return f.near[0].nameIf(found), err
	}
	for _, p := range f.sorted()[1:] {
		if found, err := p.is(conflicts); found || err != nil {
			return p.nameIf(found), err
		}
	}
	return "", nil
}

// Nearest returns the contenders ahead of self for which conflicts returns
// true, from the nearest on, but at most so many. all says that there are no
// others. most is 2 or more. If the nearest two conflict already, and no more
// are wanted, it does not sort the line.
func (f *Front) Nearest(most int, conflicts func(Node) (bool, error)) (found []string, all bool, err error) {
	near := f.near[:min(f.ahead, len(f.near))]
	for _, p := range near {
		if is, err := p.is(conflicts); err != nil {
			return nil, false, err
		} else if is {
			found = append(found, p.name)
		}
	}
	switch {
	case f.ahead == len(near):
		return found, true, nil
	case len(found) < most:
		for _, p := range f.sorted()[len(near):] {
			is, err := p.is(conflicts)
			switch {
			case err != nil, is && len(found) == most:
				return found, false, err
			case is:
				found = append(found, p.name)
			}
		}
		return found, true, nil
	}
	all = true
	f.each(func(p position) (more bool) {
		if p.distance != 0 && p != near[0] && p != near[1] {
			var is bool
			is, err = p.is(conflicts)
			all = err == nil && !is
		}
		return all
	})
	return found, all, err
}

// AreNearest reports whether names are those of the contenders directly ahead
// of self, in order: one or two.
func (f *Front) AreNearest(names []string) bool {
	for i, name := range names {
		if i >= len(f.near) || f.near[i].name != name {
			return false
		}
	}
	return true
}

// sorted returns the contenders ahead of self, from the nearest on.
func (f *Front) sorted() []position {
	ahead := make([]position, 0, f.ahead)
	f.each(func(p position) (more bool) {
		if p.distance != 0 {
			ahead = append(ahead, p)
		}
		return true
	})
	slices.SortFunc(ahead, position.compare)
	return ahead
}

// is asks about the contender at a position.
func (p position) is(conflicts func(Node) (bool, error)) (bool, error) {
	node, _ := Parse(p.name)
	return conflicts(node)
}

func (p position) nameIf(found bool) string {
	if !found {
		return ""
	}
	return p.name
}

// distances finds out whether two contenders have the same number. Most of a
// line have numbers that are near each other. To sort them all instead takes
// no map, but 12.8 KB in 7 allocations for each look at a line of 1,000, where
// this needs none, and a tenth more time.
type distances struct {
	near  [64]uint64 // a bit for each distance below 4,096
	far   []uint32
	twice bool // a near one was added twice
}

func (d *distances) add(distance uint32) {
	word, bit := int(distance/64), uint64(1)<<(distance%64)
	if word >= len(d.near) {
		d.far = append(d.far, distance)
		return
	}
	d.twice = d.twice || d.near[word]&bit != 0
	d.near[word] |= bit
}

func (d *distances) repeat() bool {
	slices.Sort(d.far)
	return d.twice || len(slices.Compact(d.far)) < len(d.far)
}
