package inspect

import (
	"slices"
)

// graph is a wait-for graph: it says which contenders have to go on before
// others can. A vertex is a contender, or stands for a group of contenders.
//
//   - A waiter goes on when the contenders of its line that it waits for have
//     gone on.
//   - A holder goes on, which means that it releases, when all waiters of its
//     session have gone on. So it is assumed that one goroutine or thread does
//     all that the session does. It also waits for all contenders whose Parent
//     is its session. A holder that waits for nothing goes on by itself.
//   - A group goes on when enough of its members have. Groups save edges:
//     without them there would be an edge from each waiter to each holder.
//
// A vertex that can never go on is stuck: see settle. A deadlock is a cycle of
// stuck vertices: see findComponents and around.
type graph struct {
	vertices []vertex
	known    map[contenderID]bool // the contenders that may be stuck; nil: all may be
	cyclic   []int                // of each vertex: a number of its cyclic component, -1 if it is in no cycle

	// What around uses, kept from call to call.
	from  []int // of each vertex that was reached: the contender before it
	seen  []int // of each vertex: the last call that has reached it
	calls int
	queue []int
}

// vertex is a contender, or stands for a group of contenders.
type vertex struct {
	line *Line
	c    *Contender // nil: it stands for a group
	next []int      // the vertices that it waits for, or the members of the group

	// It goes on when any need vertices of needs have gone on. Usually needs is
	// next, and need is its length. In a semaphore it may be fewer: any permits
	// will do.
	needs []int
	need  int

	// Only of a waiter.
	crowd     *crowd // it waits for members of this crowd; may be nil
	ahead     int    // how many members of the crowd are ahead of it
	condition string // if not empty, it waits only if this is true

	stuck bool // it can never go on: see settle
}

// contenderID tells whether a contender in the second look is the same as one
// in the first. If a znode was deleted and created again, created differs. If a
// waiter was granted meanwhile, holds differs. If its data was changed, parent
// may differ.
type contenderID struct {
	path    string
	created int64
	parent  int64
	holds   bool
}

func (c *Contender) id() contenderID {
	return contenderID{c.Path, c.Created, c.Parent, c.Holds}
}

// newGraph returns the graph of lines, whose contenders were read. If known is
// not nil, all contenders that are not in it are assumed to go on by
// themselves.
func newGraph(lines []*Line, rules rules, known map[contenderID]bool) (*graph, error) {
	g := &graph{known: known}
	waits := map[int64][]int{} // of each session: the vertices that its holders wait for
	var holders []int
	for _, l := range lines {
		first := len(g.vertices)
		for i := range l.Holders {
			holders = append(holders, len(g.vertices))
			g.addContender(l, &l.Holders[i], waits)
		}
		for i := range l.Waiting {
			c := &l.Waiting[i]
			waits[c.Session] = append(waits[c.Session], len(g.vertices))
			g.addContender(l, c, waits)
		}
		if err := g.addWaits(l, first, rules); err != nil {
			return nil, err
		}
	}
	all := map[int64]int{} // of each session: the vertex of the group of what its holders wait for
	for _, h := range holders {
		session := g.vertices[h].c.Session
		next := waits[session]
		if session == 0 || len(next) == 0 || g.isNew(h) {
			continue
		}
		if _, ok := all[session]; !ok {
			all[session] = len(g.vertices)
			g.vertices = append(g.vertices, vertex{next: next, needs: next, need: len(next)})
		}
		g.wait(h, []int{all[session]})
	}
	return g, nil
}

// addContender adds a contender's vertex to the graph, and to what the holders
// of its parent wait for.
func (g *graph) addContender(l *Line, c *Contender, waits map[int64][]int) {
	if c.Parent != 0 && c.Parent != c.Session {
		waits[c.Parent] = append(waits[c.Parent], len(g.vertices))
	}
	g.vertices = append(g.vertices, vertex{line: l, c: c})
}

// isNew reports whether known lacks a contender. If known is nil, none is new.
func (g *graph) isNew(v int) bool { return g.known != nil && !g.known[g.vertices[v].c.id()] }

// wait makes a vertex wait for all others in next.
func (g *graph) wait(v int, next []int) {
	g.vertices[v].next, g.vertices[v].needs, g.vertices[v].need = next, next, len(next)
}

// settle sets stuck for the vertices that can never go on. It begins with those
// that wait for nothing, and follows the edges back from each vertex that goes
// on. If possible is false, it assumes that no condition is true: then waiters
// that wait only under a condition go on.
func (g *graph) settle(possible bool) {
	left := make([]int, len(g.vertices))   // of each vertex: how many still have to go on before it does
	back := make([][]int, len(g.vertices)) // of each vertex: those that need it
	var free []int                         // the vertices that go on, and whose back is still to be followed
	for i := range g.vertices {
		v := &g.vertices[i]
		v.stuck = true
		left[i] = v.need
		if v.condition != "" && !possible {
			left[i] = 0
		}
		if left[i] == 0 {
			free = append(free, i)
		}
		for _, other := range v.needs {
			back[other] = append(back[other], i)
		}
	}
	for len(free) > 0 {
		v := free[len(free)-1]
		free = free[:len(free)-1]
		g.vertices[v].stuck = false
		for _, waiter := range back[v] {
			if left[waiter]--; left[waiter] == 0 {
				free = append(free, waiter)
			}
		}
	}
}

// findComponents sets cyclic: it finds the strongly connected components of the
// stuck vertices, in which each waits for each, by Tarjan's algorithm.
func (g *graph) findComponents() {
	n := len(g.vertices)
	g.cyclic = slices.Repeat([]int{-1}, n)
	order, low, on := make([]int, n), make([]int, n), make([]bool, n)
	var stack []int
	count := 0
	var visit func(v int)
	visit = func(v int) {
		count++
		order[v], low[v], on[v] = count, count, true
		stack = append(stack, v)
		for _, next := range g.vertices[v].next {
			switch {
			case !g.vertices[next].stuck:
			case order[next] == 0:
				visit(next)
				low[v] = min(low[v], low[next])
			case on[next]:
				low[v] = min(low[v], order[next])
			}
		}
		if low[v] != order[v] {
			return
		}
		at := len(stack) - 1
		for stack[at] != v {
			at--
		}
		for _, member := range stack[at:] {
			on[member] = false
			if len(stack)-at > 1 {
				g.cyclic[member] = v
			}
		}
		stack = stack[:at]
	}
	for v := range g.vertices {
		if g.vertices[v].stuck && order[v] == 0 {
			visit(v)
		}
	}
}

// around returns the shortest cycle from a contender back to itself, within its
// component: start, and then each contender that the one before it waits for.
func (g *graph) around(start int) []int {
	if g.from == nil {
		g.from, g.seen = make([]int, len(g.vertices)), make([]int, len(g.vertices))
	}
	g.calls++
	g.queue = append(g.queue[:0], start)
	// reach adds the contenders in next to the queue, and those of groups in
	// next. v is the contender before them. It reports whether start is one of
	// them.
	var reach func(v int, next []int) bool
	reach = func(v int, next []int) bool {
		for _, n := range next {
			if n == start {
				return true
			}
			if g.seen[n] == g.calls || g.cyclic[n] != g.cyclic[start] {
				continue
			}
			g.seen[n], g.from[n] = g.calls, v
			if g.vertices[n].c != nil {
				g.queue = append(g.queue, n)
			} else if reach(v, g.vertices[n].next) {
				return true
			}
		}
		return false
	}
	for i := 0; i < len(g.queue); i++ {
		v := g.queue[i]
		if !reach(v, g.vertices[v].next) {
			continue
		}
		way := []int{v}
		for v != start {
			v = g.from[v]
			way = append(way, v)
		}
		slices.Reverse(way)
		return way
	}
	return nil
}

// waitsFor returns the contenders that a waiter waits for, and how many of them
// have to leave.
func (g *graph) waitsFor(v *vertex) (all []Contender, need int) {
	if v.crowd != nil {
		own := v.crowd.ownBefore(v.c.Session, v.ahead)
		return v.crowd.showBut(g, v.c.Session, v.ahead), v.crowd.leave(v.ahead, len(own))
	}
	for _, next := range v.next {
		all = append(all, *g.vertices[next].c)
	}
	return all, len(all)
}
