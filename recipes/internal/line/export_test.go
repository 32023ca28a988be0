package line

import (
	"context"
	"sync"
)

// Queued is a caller in the middle of Wait, whose next step a test decides.
type Queued struct {
	g *gate
	w *waiter
}

// Queue begins a Wait.
func (l *Line) Queue() (*Queued, error) {
	g, err := l.gates.use(l)
	if err != nil {
		return nil, err
	}
	w := newWaiter(l, false)
	g.queue(w)
	return &Queued{g, w}, nil
}

// Ready is closed when the waiter was chosen, or has failed.
func (q *Queued) Ready() <-chan struct{} { return q.w.ready }

// Take goes on as a caller does who sees that first.
func (q *Queued) Take() (p *Place, ok bool) {
	defer q.g.registry.unuse(q.g)
	if q.w.err != nil {
		return nil, false
	}
	return q.w.places[0], q.w.begin()
}

// GiveUp goes on as a caller does who sees first that its context has ended.
func (q *Queued) GiveUp() {
	defer q.g.registry.unuse(q.g)
	q.g.leave(q.w)
}

// Again goes on as a Wait, or a Try, does whose place was lost before it was taken:
// it reports whether it is queued once more.
func (q *Queued) Again(try bool) bool {
	q.w = newWaiter(q.w.line, try)
	return q.g.requeue(q.w)
}

// Use keeps the gate from being dropped, as a caller does who is about to leave.
func (l *Line) Use() (unuse func(), err error) {
	g, err := l.gates.use(l)
	if err != nil {
		return nil, err
	}
	return func() { l.gates.unuse(g) }, nil
}

// Gates is the number of gates that are kept.
func (l *Line) Gates() int {
	l.gates.mu.Lock()
	defer l.gates.mu.Unlock()
	return len(l.gates.gates)
}

// GrantAfter joins the line, where nobody else stands, and calls before just as the
// znode is first.
func (l *Line) GrantAfter(ctx context.Context, before func()) error {
	g, err := l.gates.use(l)
	if err != nil {
		return err
	}
	defer g.registry.unuse(g)
	sess, err := g.client.AwaitSession(ctx)
	if err != nil {
		return err
	}
	c, err := g.join(ctx, sess)
	if err != nil {
		return err
	}
	before()
	return g.grant(ctx, &driver{stop: func() {}}, c)
}

// LetIn reports whether a hold is given out to a waiter, with which before is done
// once it was made: it was lost, or the waiter has left.
func (l *Line) LetIn(ctx context.Context, before func(lose func(error), leave func())) (admitted bool, err error) {
	g, err := l.gates.use(l)
	if err != nil {
		return false, err
	}
	defer g.registry.unuse(g)
	w := newWaiter(l, false)
	d := &driver{stop: func() {}}
	g.mu.Lock()
	w.at, g.driver = g.waiters.PushBack(w), d
	g.mu.Unlock()
	leave := sync.OnceFunc(func() { g.leave(w) })
	defer leave()
	sess, err := g.client.AwaitSession(ctx)
	if err != nil {
		return false, err
	}
	c, err := g.join(ctx, sess)
	if err != nil {
		return false, err
	}
	h, err := c.claim(ctx)
	if err != nil {
		return false, err
	}
	before(h.lose, leave)
	err = g.letIn(d, c, h)
	g.mu.Lock()
	defer g.mu.Unlock()
	return w.places != nil, err
}

// Handed has p's znode be handed over so often.
func (p *Place) Handed(turn uint32) {
	p.h.gate.mu.Lock()
	defer p.h.gate.mu.Unlock()
	p.turn, p.h.turn = turn, turn
}
