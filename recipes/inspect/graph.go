package inspect

import (
	"slices"
)

// graph says which contenders have to move on before others can. Its vertices are
// contenders. A waiter waits for those in its line that are in its way. A holder
// waits for what its session waits for elsewhere: it is assumed that one flow of
// control does both.
type graph struct {
	vertices []vertex
	cyclic   []int // of each vertex, the cyclic component it is in; -1: in none
}

// vertex is a contender.
type vertex struct {
	line *Line
	c    Contender
	// next is what it waits for. It goes on when need of them have.
	next []int
	need int
	// unsure means that it may not wait at all.
	unsure bool
	stuck  bool
}

// identity is what a contender is known by in a later look: another znode of the
// same name has another transaction, and a waiter that was granted holds.
type identity struct {
	path    string
	created int64
	session int64
	holds   bool
}

func (c *Contender) identity() identity {
	return identity{c.Path, c.Created, c.Session, c.Holds}
}

// newGraph returns the graph of lines, whose contenders were read. Where known is
// not nil, contenders that are not in it are taken to go on by themselves.
func newGraph(lines []*Line, rules rules, known map[identity]bool) (*graph, error) {
	g := &graph{}
	waits := map[int64][]int{} // of each session: its vertices that wait
	var holders []int
	for _, l := range lines {
		of := map[string]int{}
		for _, c := range slices.Concat(l.Holders, l.Waiting) {
			of[c.Path] = len(g.vertices)
			if !c.Holds {
				waits[c.Session] = append(waits[c.Session], len(g.vertices))
			} else {
				holders = append(holders, len(g.vertices))
			}
			g.vertices = append(g.vertices, vertex{line: l, c: c})
		}
		if err := g.addWaits(l, of, rules); err != nil {
			return nil, err
		}
	}
	for _, h := range holders {
		if v := &g.vertices[h]; v.c.Session != 0 {
			v.next = waits[v.c.Session]
			v.need = len(v.next)
		}
	}
	for i := range g.vertices {
		if v := &g.vertices[i]; known != nil && !known[v.c.identity()] {
			v.next, v.need = nil, 0
		}
	}
	return g, nil
}

// addWaits adds what the waiters of a line wait for. A contender of the same
// session is left out: see selfWaits.
func (g *graph) addWaits(l *Line, of map[string]int, rules rules) error {
	for i := range l.Waiting {
		w := &l.Waiting[i]
		ahead, need, unsure, err := l.inTheWay(i, rules)
		if err != nil {
			return err
		}
		if w.Session == 0 {
			continue
		}
		v := &g.vertices[of[w.Path]]
		for _, b := range ahead {
			if b.Session != w.Session {
				v.next = append(v.next, of[b.Path])
			}
		}
		own := len(ahead) - len(v.next)
		if l.form == single {
			v.need = len(v.next)
		} else {
			v.need = max(0, need-own)
		}
		v.unsure = unsure
	}
	return nil
}

// inTheWay returns the contenders that waiter i waits for, and how many of them
// have to leave. unsure means that it may not have to wait.
//
// In its line it waits for the holders that it conflicts with. If it conflicts
// with none of them, it waits for the first waiter ahead that it conflicts with,
// as a reader does behind a writer that waits for other readers. A waiter of a
// semaphore waits until there is room, whichever permits are released.
func (l *Line) inTheWay(i int, rules rules) (ahead []Contender, need int, unsure bool, err error) {
	if l.form != single {
		need = 1
		if l.Limit > 0 {
			need = len(l.Holders) + 1 - l.Limit
		}
		// With room for one, the first may want several, or be about to go on.
		return l.Holders, max(1, need), need < 1, nil
	}
	w := &l.Waiting[i]
	add := func(c Contender) error {
		if !sameSet(w.node, c.node) { // does not see it
			return nil
		}
		waits, uncertain, err := waitsFor(&w.node, &c.node, rules)
		if waits {
			ahead = append(ahead, c)
			unsure = unsure || uncertain
		}
		return err
	}
	for _, h := range l.Holders {
		if err := add(h); err != nil {
			return nil, 0, false, err
		}
	}
	for j := 0; j < i && (len(ahead) == 0 || rules[w.node.Kind] != nil); j++ {
		if err := add(l.Waiting[j]); err != nil {
			return nil, 0, false, err
		}
	}
	return ahead, len(ahead), unsure, nil
}

// settle finds the contenders that can never go on, and the components of those
// in which each waits for each. If unsure is false, a contender that perhaps does
// not have to wait is taken to go on.
func (g *graph) settle(unsure bool) {
	left := make([]int, len(g.vertices)) // how many have to go on before this one does
	back := make([][]int, len(g.vertices))
	var free []int
	for i := range g.vertices {
		v := &g.vertices[i]
		v.stuck = true
		left[i] = v.need
		if v.unsure && !unsure {
			left[i] = 0
		}
		if left[i] == 0 {
			free = append(free, i)
		}
		for _, next := range v.next {
			back[next] = append(back[next], i)
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
	g.findComponents()
}

// findComponents is Tarjan's algorithm, over the contenders that are stuck.
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
		at := slices.Index(stack, v)
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

// around returns the shortest way from a contender back to itself, within its
// component: start, and those after it.
func (g *graph) around(start int) []int {
	from := map[int]int{}
	for queue := []int{start}; len(queue) > 0; {
		v := queue[0]
		queue = queue[1:]
		for _, next := range g.vertices[v].next {
			if next == start {
				way := []int{v}
				for v != start {
					v = from[v]
					way = append(way, v)
				}
				slices.Reverse(way)
				return way
			}
			if _, seen := from[next]; !seen && g.cyclic[next] == g.cyclic[start] {
				from[next] = v
				queue = append(queue, next)
			}
		}
	}
	return nil
}
