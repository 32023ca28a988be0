package cache

import (
	"hash/maphash"
	"slices"
)

// tree is an immutable set of znodes, in the order of compare. Whoever changes
// one gets another one, which shares with it all that is the same. nil is the
// empty tree.
//
// It is a treap whose priorities are hashes of the paths. So its shape depends
// on its paths alone, however it came about, and two trees that have most of
// their znodes in common also share most of their memory. That is what makes
// their difference cheap.
type tree struct {
	node        *Node
	left, right *tree
	size        int32  // znodes
	units       uint32 // of memory: enough for 64 GiB
}

const (
	// overhead is the memory of a znode without its path and its data.
	overhead = 96 + 32 // as the allocator rounds Node and tree
	unit     = 16      // bytes
)

var seed = maphash.MakeSeed()

func newNode(path string, data []byte, stat Stat) *Node {
	return &Node{Path: path, Data: data, Stat: stat, priority: uint32(maphash.String(seed, path))}
}

// join3 returns the tree of node, of what sorts before it, and of what sorts
// behind it.
func join3(left *tree, node *Node, right *tree) *tree {
	return &tree{
		node: node, left: left, right: right,
		size:  1 + left.len() + right.len(),
		units: uint32((node.bytes() + left.memory() + right.memory()) / unit),
	}
}

// with returns t with other subtrees: t itself, if they are the ones it has.
func (t *tree) with(left, right *tree) *tree {
	if left == t.left && right == t.right {
		return t
	}
	return join3(left, t.node, right)
}

// outranks reports whether t is above u in a tree that has both.
func (t *tree) outranks(u *tree) bool {
	if t.node.priority != u.node.priority {
		return t.node.priority > u.node.priority
	}
	return compare(t.node.Path, u.node.Path) < 0
}

func (t *tree) len() int32 {
	if t == nil {
		return 0
	}
	return t.size
}

func (t *tree) memory() int64 {
	if t == nil {
		return 0
	}
	return int64(t.units) * unit
}

// get returns the znode at path, nil if there is none.
func (t *tree) get(path string) *Node {
	for t != nil {
		switch c := compare(path, t.node.Path); {
		case c < 0:
			t = t.left
		case c > 0:
			t = t.right
		default:
			return t.node
		}
	}
	return nil
}

// cut splits t by a function that rises along the order: into the znodes for
// which it returns a negative number, 0, and a positive number.
func (t *tree) cut(at func(path string) int) (before, among, behind *tree) {
	if t == nil {
		return nil, nil, nil
	}
	switch c := at(t.node.Path); {
	case c < 0:
		before, among, behind = t.right.cut(at)
		return t.with(t.left, before), among, behind
	case c > 0:
		before, among, behind = t.left.cut(at)
		return before, among, t.with(behind, t.right)
	}
	before, left, _ := t.left.cut(at)
	_, right, behind := t.right.cut(at)
	return before, t.with(left, right), behind
}

// concat joins two trees, of which the first sorts before the second.
func concat(a, b *tree) *tree {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.outranks(b):
		return a.with(a.left, concat(a.right, b))
	}
	return b.with(concat(a, b.left), b.right)
}

// union returns the znodes of both trees, and those of b where both have one.
func union(a, b *tree) *tree {
	switch {
	case a == nil:
		return b
	case b == nil || a == b:
		return a
	case a.node.Path == b.node.Path:
		return b.with(union(a.left, b.left), union(a.right, b.right))
	case a.outranks(b):
		before, _, behind := b.cut(a.at) // b does not have it: its root outranks all of it
		return a.with(union(a.left, before), union(a.right, behind))
	}
	before, _, behind := a.cut(b.at)
	return b.with(union(before, b.left), union(behind, b.right))
}

func (t *tree) at(path string) int { return compare(path, t.node.Path) }

// put returns t with nodes, which replace those at their paths. Their order
// does not matter.
func (t *tree) put(nodes ...*Node) *tree {
	leaves := make([]*tree, len(nodes))
	for i, n := range nodes {
		leaves[i] = join3(nil, n, nil)
	}
	slices.SortStableFunc(leaves, func(a, b *tree) int { return compare(a.node.Path, b.node.Path) })
	return union(t, unionAll(leaves))
}

func unionAll(trees []*tree) *tree {
	switch n := len(trees); n {
	case 0:
		return nil
	case 1:
		return trees[0]
	default:
		return union(unionAll(trees[:n/2]), unionAll(trees[n/2:]))
	}
}

// without returns t without dir and all that is below it.
func (t *tree) without(dir string) *tree {
	before, among, behind := t.cut(func(path string) int { return compareTree(path, dir) })
	if among == nil {
		return t
	}
	return concat(before, behind)
}

// each calls yield with the znodes in order, until it returns false.
func (t *tree) each(yield func(*Node) bool) bool {
	return t == nil || t.left.each(yield) && yield(t.node) && t.right.each(yield)
}

// eachBelow is each for the znodes below dir.
func (t *tree) eachBelow(dir string, yield func(*Node) bool) bool {
	if t == nil {
		return true
	}
	switch c := compareTree(t.node.Path, dir); {
	case c < 0:
		return t.right.eachBelow(dir, yield)
	case c > 0:
		return t.left.eachBelow(dir, yield)
	}
	return t.left.eachBelow(dir, yield) &&
		(t.node.Path == dir || yield(t.node)) &&
		t.right.eachBelow(dir, yield)
}

// eachChild is each for the children of dir.
func (t *tree) eachChild(dir string, yield func(*Node) bool) bool {
	n := t.behind(func(path string) int { return compare(path, dir) })
	for n != nil && isBelow(dir, n.Path) {
		if !yield(n) {
			return false
		}
		n = t.behind(func(path string) int { return compareTree(path, n.Path) })
	}
	return true
}

// children returns the number of children of dir.
func (t *tree) children(dir string) (n int) {
	t.eachChild(dir, func(*Node) bool { n++; return true })
	return n
}

// behind returns the first znode for which at, which rises along the order,
// returns a positive number.
func (t *tree) behind(at func(path string) int) (first *Node) {
	for t != nil {
		if at(t.node.Path) > 0 {
			first, t = t.node, t.left
		} else {
			t = t.right
		}
	}
	return first
}

// diff calls differs for each path where the trees have different znodes, in
// order. One of the znodes is nil if there is none.
func diff(old, now *tree, differs func(old, now *Node)) {
	switch {
	case old == now:
	case old == nil:
		now.each(func(n *Node) bool { differs(nil, n); return true })
	case now == nil:
		old.each(func(n *Node) bool { differs(n, nil); return true })
	case old.node.Path == now.node.Path:
		diff(old.left, now.left, differs)
		if old.node != now.node {
			differs(old.node, now.node)
		}
		diff(old.right, now.right, differs)
	case old.outranks(now):
		before, _, behind := now.cut(old.at) // now does not have it: its root outranks all of it
		diff(old.left, before, differs)
		differs(old.node, nil)
		diff(old.right, behind, differs)
	default:
		before, _, behind := old.cut(now.at)
		diff(before, now.left, differs)
		differs(nil, now.node)
		diff(behind, now.right, differs)
	}
}
