package inspect

import (
	"slices"
	"sort"
)

// crowd is the contenders that several waiters of a line wait for: holders, and
// where a rule of WithKind asks for it also waiters. There may be thousands of
// both. So a waiter does not have an edge to each member, but to vertices of a
// tree, whose leaves are the members.
type crowd struct {
	members []int           // vertices: the holders, those of a session together, then waiters in order
	own     map[int64][]int // of each session: the places of its members, in order
	first   int             // the vertex of the tree's root; its other vertices follow
	need    int             // how many have to leave; 0: all
	shown   []Contender     // the members, and then the members again: see but
}

// newCrowd returns the crowd of some holders and waiters, and adds its tree. A
// vertex of the tree goes on when all members below it have.
func (g *graph) newCrowd(holders, waiters []int) *crowd {
	c := &crowd{own: map[int64][]int{}, first: len(g.vertices)}
	of := map[int64][]int{}
	for _, h := range holders {
		of[g.vertices[h].c.Session] = append(of[g.vertices[h].c.Session], h)
	}
	for _, h := range holders { // a session stands where its first holder stands
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

// node returns the vertex of node i of the tree. The nodes below it are 2i and
// 2i+1. The root is node 1, and the members are the last nodes.
func (c *crowd) node(i int) int {
	if n := len(c.members); i >= n {
		return c.members[i-n]
	}
	return c.first + i - 1
}

// cover appends the fewest nodes that have the members from and before to, and no
// others, below them.
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

// ownBefore returns the places before end of a session's members.
func (c *crowd) ownBefore(session int64, end int) []int {
	own := c.own[session]
	n, _ := slices.BinarySearch(own, end)
	return own[:n]
}

// coverBut covers the members before end, without those of a session.
func (c *crowd) coverBut(session int64, end int) []int {
	var nodes []int
	from := 0
	for _, i := range c.ownBefore(session, end) {
		nodes = c.cover(nodes, from, i)
		from = i + 1
	}
	return c.cover(nodes, from, end)
}

// ahead returns how many members stand ahead of a waiter.
func (c *crowd) ahead(waiter int) int {
	return sort.Search(len(c.members), func(i int) bool { return c.members[i] >= waiter })
}

// leave returns how many others have to leave before a waiter goes on, if so many
// members stand ahead of it and so many of those are its session's.
func (c *crowd) leave(ahead, own int) int {
	if c.need > 0 {
		return max(0, c.need-own)
	}
	return ahead - own
}

// show returns the members before end.
func (c *crowd) show(g *graph, end int) []Contender {
	if c.shown == nil {
		c.shown = make([]Contender, 0, 2*len(c.members))
		for _, m := range slices.Concat(c.members, c.members) {
			c.shown = append(c.shown, *g.vertices[m].c)
		}
	}
	return c.shown[:end:end]
}

// showBut returns the members before end, without those of a session. Mostly these
// stand together: then it returns a part of a slice that all waiters share, which
// goes on with the first member behind the last one.
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
