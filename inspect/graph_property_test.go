package inspect

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// plain is the graph without vertices that stand for several: of each
// contender, those that it waits for, and how many of them have to go on.
type plain struct {
	all  []*Contender
	line []*Line
	next [][]int
	need []int
	may  []bool // it waits only under a condition
}

// newPlain builds the graph by its definition, contender by contender.
func newPlain(t *rapid.T, lines []*Line, rules rules, known map[contenderID]bool) *plain {
	p := &plain{}
	first := map[*Line]int{}
	for _, l := range lines {
		first[l] = len(p.all)
		for _, some := range [][]Contender{l.Holders, l.Waiting} {
			for i := range some {
				p.all, p.line = append(p.all, &some[i]), append(p.line, l)
			}
		}
	}
	p.next, p.need, p.may = make([][]int, len(p.all)), make([]int, len(p.all)), make([]bool, len(p.all))
	for v, c := range p.all {
		if c.Session == 0 || known != nil && !known[c.id()] {
			continue
		}
		l := p.line[v]
		if c.Holds {
			for w, other := range p.all {
				if !other.Holds && other.Session == c.Session || other.Parent == c.Session && other.Session != c.Session {
					p.next[v] = append(p.next[v], w)
				}
			}
			p.need[v] = len(p.next[v])
			continue
		}
		ahead, need := p.ahead(t, l, first[l], v, rules)
		for _, b := range ahead {
			if p.all[b].Session != c.Session {
				p.next[v] = append(p.next[v], b)
			}
		}
		p.need[v] = max(0, need-(len(ahead)-len(p.next[v])))
	}
	return p
}

// ahead returns the contenders that a waiter waits for, those of its own
// session included, and how many of them have to leave.
func (p *plain) ahead(t *rapid.T, l *Line, first, v int, rules rules) (ahead []int, need int) {
	behind := first + len(l.Holders)
	if l.form != single {
		for h := first; h < behind; h++ {
			ahead = append(ahead, h)
		}
		need = 1
		if l.Limit > 0 {
			need = len(l.Holders) + 1 - l.Limit
		}
		p.may[v] = need < 1
		return ahead, min(len(ahead), max(1, need))
	}
	own := &p.all[v].node
	for b := first; b < v; b++ {
		if b >= behind && len(ahead) > 0 && rules[own.Kind] == nil {
			break
		}
		if !sameSet(own, &p.all[b].node) {
			continue
		}
		waits, unsure, err := waitsFor(own, &p.all[b].node, rules)
		if err != nil {
			t.Fatal(err)
		}
		if waits {
			ahead = append(ahead, b)
			p.may[v] = p.may[v] || unsure
		}
	}
	return ahead, len(ahead)
}

// stuck returns the contenders that never go on.
func (p *plain) stuck(possible bool) []bool {
	stuck := slices.Repeat([]bool{true}, len(p.all))
	for again := true; again; {
		again = false
		for v := range stuck {
			gone := 0
			for _, b := range p.next[v] {
				if !stuck[b] {
					gone++
				}
			}
			if stuck[v] && (gone >= p.need[v] || p.may[v] && !possible) {
				stuck[v], again = false, true
			}
		}
	}
	return stuck
}

// around reports whether a contender waits for itself in the end, by way of
// stuck ones.
func (p *plain) around(v int, stuck []bool) bool {
	seen := map[int]bool{}
	for queue := slices.Clone(p.next[v]); len(queue) > 0; queue = queue[1:] {
		b := queue[0]
		if !stuck[b] || seen[b] {
			continue
		}
		seen[b] = true
		queue = append(queue, p.next[b]...)
	}
	return stuck[v] && seen[v]
}

// drawGraph draws lines of all forms, in which sessions hold and wait several
// times.
func drawGraph(t *rapid.T, rules rules) []*Line {
	bases := [][]string{
		{"lock-"},
		{"h-R-", "h-W-"},
		{"kind~a~", "kind~b~", "kind~c~"},
		{"odd~a~", "odd~b~"},
		{"h-R-", "h-W-", "__READ__", "__WRIT__", "lock-", "__lock__", "__rlock__", "kind~a~", "odd~a~"},
	}
	sessions := rapid.Int64Range(0, int64(rapid.IntRange(1, 9).Draw(t, "sessions")))
	lines := make([]*Line, rapid.IntRange(1, 5).Draw(t, "lines"))
	for i := range lines {
		l := &Line{Path: fmt.Sprintf("/%d", i)}
		lines[i] = l
		draw := func(base string, number int) Contender {
			c := contenderOf(l.Path+"/", base, number)
			c.Session, c.Created = sessions.Draw(t, "session"), int64(100*i+len(l.entries)+len(l.permits))
			if rapid.IntRange(0, 4).Draw(t, "nested") == 0 {
				c.Parent = sessions.Draw(t, "parent")
			}
			return c
		}
		number := 0
		many := rapid.IntRange(0, 12)
		if rapid.IntRange(0, 3).Draw(t, "form") == 0 {
			l.form, l.Limit = semaphore, rapid.IntRange(0, 6).Draw(t, "limit")
			for range many.Draw(t, "permits") {
				l.permits = append(l.permits, draw("lease-", len(l.permits)))
			}
			for range many.Draw(t, "waiters") {
				l.entries = append(l.entries, draw("lock-", len(l.entries)))
			}
		} else {
			some := rapid.SampledFrom(bases).Draw(t, "names")
			for range many.Draw(t, "contenders") {
				number += rapid.SampledFrom([]int{1, 1, 1, 0}).Draw(t, "step")
				l.entries = append(l.entries, draw(rapid.SampledFrom(some).Draw(t, "name"), number))
			}
			slices.SortStableFunc(l.entries, func(a, b Contender) int { // as layout.Sort
				if a.node.Seq != b.node.Seq {
					return int(a.node.Seq - b.node.Seq)
				}
				return int(a.node.Mode) - int(b.node.Mode)
			})
		}
		if err := l.arrange(rules); err != nil {
			t.Fatal(err)
		}
	}
	return lines
}

// The graph says the same as the plain one: whom each waits for, who is stuck,
// and who is in a circle.
func TestGraphAgainstItsDefinition(t *testing.T) {
	rules := rules{"kind": func(mine, theirs string) bool { return mine != theirs || mine == "c" }}
	rapid.Check(t, func(t *rapid.T) {
		lines := drawGraph(t, rules)
		var known map[contenderID]bool
		if rapid.Bool().Draw(t, "second look") {
			known = map[contenderID]bool{}
			for _, l := range lines {
				for _, c := range slices.Concat(l.Holders, l.Waiting) {
					known[c.id()] = rapid.IntRange(0, 5).Draw(t, "known") > 0
				}
			}
		}
		want := newPlain(t, lines, rules, known)
		g, err := newGraph(lines, rules, known)
		if err != nil {
			t.Fatal(err)
		}
		var at []int // of each contender, its vertex
		for v := range g.vertices {
			if g.vertices[v].c != nil {
				at = append(at, v)
			}
		}
		for _, possible := range []bool{false, true} {
			g.settle(possible)
			g.findComponents()
			stuck := want.stuck(possible)
			for i, v := range at {
				if g.vertices[v].stuck != stuck[i] || (g.cyclic[v] >= 0) != want.around(i, stuck) {
					t.Fatalf("%s: stuck %v, in circle %v; want %v, %v", want.all[i].Path, g.vertices[v].stuck, g.cyclic[v], stuck[i], want.around(i, stuck))
				}
			}
		}
		for i, v := range at {
			var next []string
			for _, b := range want.next[i] {
				next = append(next, want.all[b].Path)
			}
			checkWaits(t, g, v, next, want.need[i])
		}
	})
}

// checkWaits checks whom a contender waits for, and what is told of that.
func checkWaits(t *rapid.T, g *graph, v int, want []string, need int) {
	var found []string
	var walk func(next []int)
	walk = func(next []int) {
		for _, n := range next {
			if c := g.vertices[n].c; c != nil {
				found = append(found, c.Path)
			} else {
				walk(g.vertices[n].next)
			}
		}
	}
	walk(g.vertices[v].next)
	slices.Sort(want)
	slices.Sort(found)
	if !slices.Equal(found, want) {
		t.Fatalf("%s waits for %q, want %q", g.vertices[v].c.Path, found, want)
	}
	if g.vertices[v].c.Holds {
		return
	}
	told, leave := g.waitsFor(&g.vertices[v])
	var paths []string
	for _, c := range told {
		paths = append(paths, c.Path)
	}
	slices.Sort(paths)
	if !slices.Equal(paths, want) || leave != need {
		t.Fatalf("%s: it tells %d of %q, want %d of %q", g.vertices[v].c.Path, leave, paths, need, want)
	}
}

// Two stuck vertices are in one cyclic component if each reaches the other.
func TestComponents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "vertices")
		g := &graph{vertices: make([]vertex, n)}
		reach := make([][]bool, n)
		for v := range n {
			g.vertices[v].stuck = true
			g.vertices[v].next = rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 0, n, rapid.ID[int]).Draw(t, "next")
			reach[v] = make([]bool, n)
			for _, next := range g.vertices[v].next {
				reach[v][next] = true
			}
		}
		for by := range n {
			for a := range n {
				for b := range n {
					reach[a][b] = reach[a][b] || reach[a][by] && reach[by][b]
				}
			}
		}
		g.findComponents()
		for a := range n {
			for b := range a {
				together := g.cyclic[a] >= 0 && g.cyclic[a] == g.cyclic[b]
				if want := reach[a][b] && reach[b][a]; together != want {
					t.Fatalf("%d and %d in one component: %v, want %v", a, b, together, want)
				}
			}
		}
	})
}

// A lease of a semaphore has been granted: it waits for nothing that stands
// where it does.
func TestALeaseWaitsForNobody(t *testing.T) {
	lease := &layout.Node{Family: layout.Lease, Seq: 2}
	for _, ahead := range []*layout.Node{{Family: layout.Lease, Seq: 1}, {Family: layout.CuratorLock, Seq: 1}} {
		if waits, unsure, err := waitsFor(lease, ahead, nil); waits || unsure || err != nil {
			t.Errorf("%v: %t, %t, %v", ahead.Family, waits, unsure, err)
		}
	}
}
