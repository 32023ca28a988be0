package inspect

import (
	"slices"
	"sort"
)

// crowd is a list of contenders that several waiters of one line wait for:
// holders, and with a rule of WithKind also waiters. Each of these waiters
// waits for a part of the list: the members ahead of it that are not of its own
// session.
//
// Thousands of waiters may wait for thousands of members. An edge from each
// waiter to each member would take too much memory: 3.2 GB for 5,000 of each,
// where this takes 88 MB (BenchmarkManyWaitForMany). So the members are the
// leaves of a segment tree. A vertex of the tree stands for all members below
// it, and a waiter has edges to a few vertices that together stand for its part
// of the list.
type crowd struct {
	members []int           // vertices: the holders, grouped by session, then waiters in the order of the line
	own     map[int64][]int // of each session: the indexes of its members, ascending
	first   int             // the vertex of the tree's root; the tree's other vertices follow it
	need    int             // of a semaphore: how many holders have to leave; otherwise 0: all
	shown   []Contender     // the members twice, one list behind the other: see showBut
}

// newCrowd returns the crowd of the given holders and waiters, and adds its
// tree to the graph. A vertex of the tree goes on when all members below it
// have gone on.
func (g *graph) newCrowd(holders, waiters []int) *crowd {
	c := &crowd{own: map[int64][]int{}, first: len(g.vertices)}
	of := map[int64][]int{}
	for _, h := range holders {
		of[g.vertices[h].c.Session] = append(of[g.vertices[h].c.Session], h)
	}
	for _, h := range holders { // all holders of a session come where its first holder is
		session := g.vertices[h].c.Session
		c.members = append(c.members, of[session]...)
		delete(of, session)
	}
	c.members = append(c.members, waiters...)
	for i, m := range c.members {
		session := g.vertices[m].c.Session
		c.own[session] = append(c.own[session], i)
	}
	for i := 1; i < len(c.members); i++ {
		below := []int{c.node(2 * i), c.node(2*i + 1)}
		g.vertices = append(g.vertices, vertex{next: below, needs: below, need: 2})
	}
	return c
}

// node returns the vertex of node i of the tree. The root is node 1. The
// children of node i are nodes 2i and 2i+1. The last nodes are the members.
func (c *crowd) node(i int) int {
	if n := len(c.members); i >= n {
		return c.members[i-n]
	}
	return c.first + i - 1
}

// cover appends the fewest vertices of the tree that together stand for the
// members with the indexes from, from+1, ..., to-1, and for no others.
func (c *crowd) cover(nodes []int, from, to int) []int {
	var last []int
	n := len(c.members)
	for i, j := from+n, to+n; i < j; i, j = i/2, j/2 {
		if i%2 == 1 {
			nodes = append(nodes, c.node(i))
			i++
		}
		if j%2 == 1 {
			j--
			last = append(last, c.node(j))
		}
	}
	slices.Reverse(last)
	return append(nodes, last...)
}

// ownBefore returns the indexes of a session's members that are less than end.
func (c *crowd) ownBefore(session int64, end int) []int {
	own := c.own[session]
	n, _ := slices.BinarySearch(own, end)
	return own[:n]
}

// coverBut returns vertices of the tree that together stand for the first end
// members, except those of a session.
func (c *crowd) coverBut(session int64, end int) []int {
	var nodes []int
	from := 0
	for _, i := range c.ownBefore(session, end) {
		nodes = c.cover(nodes, from, i)
		from = i + 1
	}
	return c.cover(nodes, from, end)
}

// ahead returns how many members are ahead of a waiter: all holders, and the
// waiters that joined the line before it.
func (c *crowd) ahead(waiter int) int {
	return sort.Search(len(c.members), func(i int) bool { return c.members[i] >= waiter })
}

// leave returns how many members of other sessions have to leave before a
// waiter goes on. ahead is how many members are ahead of it, and own is how
// many of these belong to its own session.
func (c *crowd) leave(ahead, own int) int {
	if c.need > 0 {
		return max(0, c.need-own)
	}
	return ahead - own
}

// show returns the first end members.
func (c *crowd) show(g *graph, end int) []Contender {
	if c.shown == nil {
		c.shown = make([]Contender, 0, 2*len(c.members))
		for _, m := range slices.Concat(c.members, c.members) {
			c.shown = append(c.shown, *g.vertices[m].c)
		}
	}
	return c.shown[:end:end]
}

// showBut returns the first end members, except those of a session. If that
// session is all that is missing, and its members follow each other, the result
// is a part of shown, which all waiters share: the members after the session's,
// and then, from the second list, the members before them. Otherwise it is a
// copy.
func (c *crowd) showBut(g *graph, session int64, end int) []Contender {
	all := c.show(g, end)
	own := c.ownBefore(session, end)
	if len(own) == 0 {
		return all
	}
	first, next := own[0], own[len(own)-1]+1
	if end == len(c.members) && next-first == len(own) {
		return c.shown[next : end+first : end+first]
	}
	var others []Contender
	for _, one := range all {
		if one.Session != session {
			others = append(others, one)
		}
	}
	return others
}
