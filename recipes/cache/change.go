package cache

import (
	"fmt"
	"slices"
)

// Kind is what has happened to a znode.
type Kind int

const (
	// Added: the znode is shown for the first time.
	Added Kind = iota + 1
	// Changed: its data was set.
	Changed
	// Removed: the znode is shown no longer.
	Removed
)

func (k Kind) String() string {
	switch k {
	case Added:
		return "added"
	case Changed:
		return "changed"
	case Removed:
		return "removed"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Change is the difference between two views at one path. Its nodes are shared:
// they must not be changed.
type Change struct {
	Kind     Kind
	Old, New *Node // Old is nil if Added, New is nil if Removed
}

// Path returns the path of the znode.
func (c Change) Path() string {
	if c.New != nil {
		return c.New.Path
	}
	return c.Old.Path
}

// changes returns what makes the view now out of the view old. First come the
// removed znodes, each behind what was below it. Then the others follow, each
// before what is below it. A znode that was deleted and created again is both
// removed and added. So a reader that applies the changes in order never has a
// znode without the one above it.
func changes(old, now View) []Change {
	var removed, rest []Change
	diff(old.tree, now.tree, func(old, now *Node) {
		switch {
		case old == nil:
			rest = append(rest, Change{Kind: Added, New: now})
		case now == nil:
			removed = append(removed, Change{Kind: Removed, Old: old})
		case old.Stat.version().Created != now.Stat.version().Created:
			removed = append(removed, Change{Kind: Removed, Old: old})
			rest = append(rest, Change{Kind: Added, New: now})
		case !old.is(now):
			rest = append(rest, Change{Kind: Changed, Old: old, New: now})
		}
	})
	slices.Reverse(removed)
	return append(removed, rest...)
}
