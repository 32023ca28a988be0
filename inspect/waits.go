package inspect

import (
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// queue says what a group of similar waiters of one line waits for. Waiters are
// similar if the rule of their line treats them in the same way: see alike.
//
//   - If they conflict with holders, they wait for these holders.
//   - Otherwise each waits for the first waiter ahead that it conflicts with.
//     For example, a reader waits behind a writer that waits for other readers.
//   - By a rule of WithKind, each waits for all holders and all waiters ahead
//     that it conflicts with.
type queue struct {
	crowd     *crowd // the contenders that they wait for, or nil
	first     int    // without a crowd: the vertex of the first waiter that they conflict with, -1 if there is none
	condition string // if not empty, they wait only if this is true
}

// addWaits adds to the graph what the waiters of a line wait for. first is the
// vertex of the line's first holder; the other holders follow, and then the
// waiters. That a waiter waits for its own session is not added: see selfWaits.
func (g *graph) addWaits(l *Line, first int, rules rules) error {
	if l.form != single {
		g.addPermitWaits(l, first)
		return nil
	}
	numbers := map[int32]int{} // how many contenders have each sequence number
	for i := range l.entries {
		numbers[l.entries[i].node.Seq]++
	}
	unused := int32(0)
	for numbers[unused] > 0 {
		unused++
	}
	type key struct {
		alike
		number int32
	}
	queues := map[key]*queue{}
	for i := range l.Waiting {
		w := first + len(l.Holders) + i
		c := g.vertices[w].c
		if c.Session == 0 || g.isNew(w) {
			continue
		}
		node := c.node
		// Contenders with the same number do not wait for each other. A number
		// that no other contender has does not matter: with an unused one
		// instead, all similar waiters share a queue. join leaves out those
		// that are not ahead.
		if numbers[node.Seq] == 1 {
			node.Seq = unused
		}
		k := key{alikeOf(&node, rules), node.Seq}
		q := queues[k]
		if q == nil {
			var err error
			if q, err = g.newQueue(l, first, &node, rules); err != nil {
				return err
			}
			queues[k] = q
		}
		g.join(w, q)
	}
	return nil
}

// newQueue returns the queue of the waiters that are similar to own.
func (g *graph) newQueue(l *Line, first int, own *layout.Node, rules rules) (*queue, error) {
	q := &queue{first: -1}
	if own.Family == layout.Latch { // a candidate mostly does other work
		q.condition = ifCandidate
	}
	// conflicting returns the vertices of those in all that own has to wait
	// for, at most enough of them. first is the vertex of all[0].
	conflicting := func(all []Contender, first int, enough int) (found []int, err error) {
		for i := range all {
			if len(found) == enough {
				break
			}
			ahead := &all[i].node
			if !sameSet(own, ahead) { // does not see it
				continue
			}
			waits, unsure, err := waitsFor(own, ahead, rules)
			if err != nil {
				return nil, err
			}
			if waits {
				found = append(found, first+i)
				if unsure {
					q.condition = ifKind
				}
			}
		}
		return found, nil
	}
	holders, err := conflicting(l.Holders, first, len(l.Holders))
	if err != nil {
		return nil, err
	}
	enough := 0 // how many waiters are needed
	if rules[own.Kind] != nil {
		enough = len(l.Waiting)
	} else if len(holders) == 0 {
		enough = 1
	}
	waiters, err := conflicting(l.Waiting, first+len(l.Holders), enough)
	if err != nil {
		return nil, err
	}
	switch {
	case len(holders) > 0, rules[own.Kind] != nil:
		q.crowd = g.newCrowd(holders, waiters)
	case len(waiters) > 0:
		q.first = waiters[0]
	}
	return q, nil
}

// join makes waiter w wait for what its queue says.
func (g *graph) join(w int, q *queue) {
	v := &g.vertices[w]
	v.condition = q.condition
	if q.crowd != nil {
		v.crowd, v.ahead = q.crowd, q.crowd.ahead(w)
		g.wait(w, q.crowd.coverBut(v.c.Session, v.ahead))
	} else if q.first >= 0 && q.first < w && g.vertices[q.first].c.Session != v.c.Session {
		g.wait(w, []int{q.first})
	}
}

// addPermitWaits adds what the waiters of a semaphore wait for: until enough
// permits have been released, no matter which. All waiters of one session wait
// for the same.
func (g *graph) addPermitWaits(l *Line, first int) {
	if len(l.Holders) == 0 { // nobody is in their way
		return
	}
	need := 1
	if l.Limit > 0 {
		need = len(l.Holders) + 1 - l.Limit
	}
	holders := make([]int, len(l.Holders))
	for i := range holders {
		holders[i] = first + i
	}
	c := g.newCrowd(holders, nil)
	c.need = max(1, need)
	released := map[int]int{}   // of n: the vertex that goes on when n holders have gone on
	alike := map[int64]vertex{} // of each session: what its waiters wait for
	for i := range l.Waiting {
		w := first + len(l.Holders) + i
		session := l.Waiting[i].Session
		if session == 0 || g.isNew(w) {
			continue
		}
		like, ok := alike[session]
		if !ok {
			like = vertex{crowd: c, ahead: len(holders), next: c.coverBut(session, len(holders))}
			// A permit is free. Either the first waiter wants more than one, or
			// it will be granted in a moment.
			if need < 1 {
				like.condition = ifRoom
			}
			if n := g.ofOthers(c, session); n > 0 {
				if _, ok := released[n]; !ok {
					released[n] = len(g.vertices)
					g.vertices = append(g.vertices, vertex{needs: c.members, need: n})
				}
				like.needs, like.need = []int{released[n]}, 1
			}
			alike[session] = like
		}
		like.line, like.c = l, &l.Waiting[i]
		g.vertices[w] = like
	}
}

// ofOthers returns how many holders of permits have to go on before a waiter of
// a session goes on. Only holders of other sessions matter. The caller may
// count all holders, because the session's own holders wait for this waiter.
// Only its own holders that are new go on at once, so the result is increased
// by their number.
func (g *graph) ofOthers(c *crowd, session int64) int {
	own := c.own[session]
	leave := c.leave(len(c.members), len(own))
	if leave == 0 {
		return 0
	}
	for _, i := range own {
		if g.isNew(c.members[i]) {
			leave++
		}
	}
	return leave
}
