package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/ratelimit"
)

// Deadlocks is the result of FindDeadlocks.
type Deadlocks struct {
	// Cycles are the deadlocks: sessions that wait for each other forever,
	// unless one of them gives up. Every session of a deadlock is in at least
	// one Cycle.
	Cycles []Cycle
	// Possible are cycles that are deadlocks only under a condition: see
	// Cycle.Condition.
	Possible []Cycle

	Exists     bool     // whether the path exists
	Lines      int      // how many lines were looked at
	Reads      int      // how many reads of a znode or of its children were made
	Unreadable []string // znodes that the client may not read, sorted
}

// Cycle is a circle of sessions. Each waits for the next, and the last for the
// first.
type Cycle struct {
	Steps     []Step
	Condition string // empty: it is a deadlock; otherwise it is one only if this is true
}

// Step is one session of a Cycle.
type Step struct {
	Session int64
	Has     Contender   // the contender that the previous step waits for
	HasAt   string      // the path of its line
	Waits   Contender   // the contender that waits for the next step; it may be Has itself
	WaitsAt string      // the path of its line
	Need    int         // how many of For have to leave
	For     []Contender // the contenders that Waits waits for; steps may share them
	// Nested is empty if Waits belongs to Session. Otherwise Session waits for
	// zkr commands below its own: Nested are their sessions, each the Parent of
	// the next. Waits belongs to the last one.
	Nested []int64
}

// String returns the cycle in words: "session 0x1 holds /x and waits for /y;
// session 0x2 holds /y and waits for /x".
func (c Cycle) String() string {
	var parts []string
	for _, s := range c.Steps {
		if !s.Has.Holds {
			parts = append(parts, fmt.Sprintf("session %#x stands ahead and waits for %s", uint64(s.Session), s.WaitsAt))
			continue
		}
		part := fmt.Sprintf("session %#x holds %s and waits for %s", uint64(s.Session), s.HasAt, s.WaitsAt)
		for i, nested := range s.Nested {
			part += fmt.Sprintf("%s session %#x", [...]string{" through nested", ","}[min(i, 1)], uint64(nested))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// The conditions of a possible deadlock.
const (
	ifKind      = "if contenders of that custom kind conflict (its rule is not known)"
	ifRoom      = "if the first waiter wants more permits than are free"
	ifCandidate = "if a candidate does nothing else until it leads"
	ifOthers    = "if no other permit of that semaphore is released"
	ifAlone     = "if one goroutine or thread does both: the session waits for itself"
)

// FindDeadlocks finds sessions that wait for each other, in all lines at and
// below a path, of any client library. If it finds any, it looks at their lines
// again after a pause, and returns only what was true for the same znodes in
// both looks. So what it returns was true for the whole pause. If the path does
// not exist, it returns no error, and Deadlocks.Exists is false.
//
// False alarms are possible. A znode belongs to a session, and does not say
// which goroutine uses it. If one goroutine holds a lock and another one of the
// same session waits for another lock, FindDeadlocks assumes that one goroutine
// does both. To avoid that, choose a pause that is longer than locks are held,
// and longer than the session timeouts: for one session timeout the goroutines
// of a process may hand one znode off to each other while others wait.
//
// A "zkr lock" whose command runs another "zkr lock" waits for its end, and
// each has a session of its own. The data of the inner one's znode names the
// outer one's session: see Contender.Parent. FindDeadlocks assumes that the
// holders of that session release only after the inner contender has left.
// Anybody who may create or change contenders can write such data, so it is
// trusted as far as this: only text in exactly the form that zkr writes counts,
// and it can only add to what a session waits for. False data can cause a false
// alarm. It cannot hide a deadlock. A request to release keeps the parent in
// the data. Only Curator's Revoker replaces the data, and the parent is then
// unknown.
//
// What FindDeadlocks does not know:
//
//   - Which sessions belong to one process. If a program holds a lock with one
//     client and waits for another lock with a second client, that is not seen.
//     An inner zkr whose parent is known is the only exception.
//   - Whether a session that waits for itself is in a deadlock: it is Possible.
//     This module refuses such a wait with recipes.ErrDeadlock where it can see
//     it.
//   - Whether a candidate for an election waits before it does anything else.
//     Most do not, so the result is Possible. An election whose znodes have the
//     names of a lock, as LayoutSelector and LayoutKazoo of package leader,
//     counts as a lock.
//   - The rule of a custom kind: see recipes.NewLine and WithKind.
//   - How many permits a waiter of a semaphore wants. It assumes one; if more
//     are free, the result is Possible.
//   - Locks that a process waits for in memory, and locks outside the path.
//
// It costs a sync, a list for each znode that is not a contender, and a read
// for each contender of a line in which somebody waits. If an inner zkr waits
// and nobody waits for what its parent holds, it also costs a read for each
// contender of the other lines. The second look costs a sync, and for the lines
// that are part of a deadlock what Read costs.
func FindDeadlocks(ctx context.Context, r Reader, path string, opts ...Option) (Deadlocks, error) {
	g, err := newReading(r, opts)
	if err != nil {
		return Deadlocks{}, err
	}
	d, err := g.findDeadlocks(ctx, path)
	if err != nil {
		return Deadlocks{}, fmt.Errorf("inspect: %w", err)
	}
	d.Reads, d.Unreadable = g.done()
	return d, nil
}

func (g *reading) findDeadlocks(ctx context.Context, path string) (Deadlocks, error) {
	if err := g.sync(ctx, path); err != nil {
		return Deadlocks{}, err
	}
	forest, err := g.tree(ctx, path)
	if err != nil {
		return Deadlocks{}, err
	}
	d := Deadlocks{Exists: forest.Exists, Lines: len(forest.Lines)}
	lines := forest.lines((*Line).Contended)
	g.noData = true // only what the second look reads is returned
	if err := g.fill(ctx, lines, 0); err != nil {
		return d, err
	}
	if lacksAParent(lines) {
		rest := forest.lines(func(l *Line) bool { return !l.Contended() })
		if err := g.fill(ctx, rest, 0); err != nil {
			return d, err
		}
		lines = append(lines, slices.DeleteFunc(rest, func(l *Line) bool { return !l.isNested() })...)
	}
	suspects, first, err := g.suspects(lines)
	if err != nil || len(suspects) == 0 {
		return d, err
	}
	if err := ratelimit.Sleep(ctx, g.pause); err != nil {
		return d, err
	}
	if err := g.sync(ctx, path); err != nil {
		return d, err
	}
	g.noData = false
	again, err := g.readAgain(ctx, suspects)
	if err != nil {
		return d, err
	}
	d.Cycles, d.Possible, err = cycles(again, g.rules, first)
	return d, err
}

// look is what the first look has found: the contenders that cannot go on, and
// those that cannot go on under a condition.
type look struct {
	certain, possible map[contenderID]bool
}

// suspects returns the contenders that cannot go on, and their lines. If there
// is no cycle, there are none.
func (g *reading) suspects(lines []*Line) ([]*Line, look, error) {
	graph, err := newGraph(lines, g.rules, nil)
	if err != nil {
		return nil, look{}, err
	}
	of := map[*Line]bool{}
	stuck := func() map[contenderID]bool {
		all := map[contenderID]bool{}
		for _, v := range graph.vertices {
			if v.stuck && v.c != nil {
				all[v.c.id()] = true
				of[v.line] = true
			}
		}
		return all
	}
	var first look
	graph.settle(false)
	first.certain = stuck()
	graph.settle(true)
	first.possible = stuck()
	for _, s := range graph.selfWaits() {
		for _, v := range []int{s.holder, s.waiter} {
			first.possible[graph.vertices[v].c.id()] = true
			of[graph.vertices[v].line] = true
		}
	}
	var suspects []*Line
	for _, l := range lines {
		if of[l] {
			suspects = append(suspects, l)
		}
	}
	return suspects, first, nil
}

// readAgain reads lines again.
func (g *reading) readAgain(ctx context.Context, lines []*Line) ([]*Line, error) {
	again := make([]Line, len(lines))
	all := make([]int, len(lines))
	for i := range all {
		all[i] = i
	}
	err := spread(ctx, g, all, func(ctx context.Context, i int) ([]int, error) {
		kazoo := lines[i].form == kazooSemaphore
		l, err := g.recognize(ctx, lines[i].Path, &kazoo)
		if errors.Is(err, zk.ErrNoAuth) { // since the first look
			g.mayNotRead(l.Path)
			return nil, nil
		}
		again[i] = l
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	forest := Forest{Lines: again}
	found := forest.lines(func(l *Line) bool { return l.Exists })
	return found, g.fill(ctx, found, 0)
}

// cycles returns the deadlocks of lines, whose contenders were read, and those
// that are only possible. Contenders that could go on in the first look are
// assumed to go on now.
func cycles(lines []*Line, rules rules, first look) (certain, possible []Cycle, err error) {
	covered := map[int64]bool{}
	graph, err := newGraph(lines, rules, first.certain)
	if err != nil {
		return nil, nil, err
	}
	graph.settle(false)
	certain = graph.cycles(covered)
	if graph, err = newGraph(lines, rules, first.possible); err != nil {
		return nil, nil, err
	}
	graph.settle(true)
	possible = graph.cycles(covered)
	for i := range possible {
		if possible[i].Condition == "" { // another permit is stuck only under a condition
			possible[i].Condition = ifOthers
		}
	}
	for _, s := range graph.selfWaits() {
		if !covered[graph.vertices[s.waiter].c.Session] {
			possible = append(possible, graph.selfCycle(s))
		}
	}
	return certain, possible, nil
}

// cycles returns cycles, so that each session of a deadlock is in at least one.
// It leaves out the sessions that are in covered, and adds those that it has
// found.
func (g *graph) cycles(covered map[int64]bool) []Cycle {
	g.findComponents()
	var all []Cycle
	for start, v := range g.vertices {
		if v.c == nil || v.c.Holds || g.cyclic[start] < 0 || covered[v.c.Session] {
			continue
		}
		c := g.cycle(g.around(start))
		for _, s := range c.Steps {
			covered[s.Session] = true
			for _, nested := range s.Nested {
				covered[nested] = true
			}
		}
		all = append(all, c)
	}
	return all
}

// cycle returns the Cycle of what around has returned for a waiter. Its steps
// begin with the line whose path sorts first.
func (g *graph) cycle(way []int) Cycle {
	for last := len(way) - 1; g.vertices[way[last]].c.Holds; { // it leads to the waiter: a holder of its session, or its parent
		way = append([]int{way[last]}, way[:last]...)
	}
	var c Cycle
	var conditions []string
	for i := 0; i < len(way); i++ {
		has := &g.vertices[way[i]]
		waits := has
		var nested []int64
		for waits.c.Holds {
			i++
			next := &g.vertices[way[i]]
			if next.c.Session != waits.c.Session {
				nested = append(nested, next.c.Session)
			}
			waits = next
		}
		step := Step{Session: has.c.Session, Has: *has.c, HasAt: has.line.Path, Waits: *waits.c, WaitsAt: waits.line.Path, Nested: nested}
		step.For, step.Need = g.waitsFor(waits)
		c.Steps = append(c.Steps, step)
		if on := waits.condition; on != "" && !slices.Contains(conditions, on) {
			conditions = append(conditions, on)
		}
	}
	c.Condition = strings.Join(conditions, ", and ")
	first := slices.MinFunc(c.Steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.HasAt, b.HasAt), cmp.Compare(a.Has.Created, b.Has.Created))
	})
	for c.Steps[0].Has.Path != first.Has.Path {
		c.Steps = append(c.Steps[1:], c.Steps[0])
	}
	return c
}

// selfWait is a session that waits for itself: in one line, one of its znodes
// waits for another one of its znodes, which holds.
type selfWait struct {
	holder, waiter int // vertices
}

// selfWaits returns the sessions that wait for themselves, each once for each
// line.
func (g *graph) selfWaits() []selfWait {
	type user struct {
		line    *Line
		session int64
	}
	seen := map[user]bool{}
	var all []selfWait
	for i := range g.vertices {
		v := &g.vertices[i]
		if v.crowd == nil || seen[user{v.line, v.c.Session}] {
			continue
		}
		for _, at := range v.crowd.ownBefore(v.c.Session, v.ahead) {
			holder := v.crowd.members[at]
			if g.vertices[holder].c.Holds && !g.isNew(holder) {
				seen[user{v.line, v.c.Session}] = true
				all = append(all, selfWait{holder, i})
				break
			}
		}
	}
	return all
}

func (g *graph) selfCycle(s selfWait) Cycle {
	has, waits := &g.vertices[s.holder], &g.vertices[s.waiter]
	return Cycle{Condition: ifAlone, Steps: []Step{{
		Session: has.c.Session, Has: *has.c, HasAt: has.line.Path, Waits: *waits.c, WaitsAt: waits.line.Path,
		Need: waits.crowd.leave(waits.ahead, 0), For: waits.crowd.show(g, waits.ahead),
	}}}
}
