package line

import (
	"context"
	"sync"
)

// Queued is a caller in the middle of Acquire, whose next step a test decides.
type Queued struct {
	q *localQueue
	w *waiter
}

// Queue begins an Acquire.
func (l *Line) Queue() (*Queued, error) {
	q, err := l.queues.use(l)
	if err != nil {
		return nil, err
	}
	w := newWaiter(context.Background(), l, false)
	q.join(w)
	return &Queued{q, w}, nil
}

// Ready is closed when the waiter was chosen, or has failed.
func (q *Queued) Ready() <-chan struct{} { return q.w.ready }

// Take goes on as a caller does who sees that first.
func (q *Queued) Take() (s *Share, ok bool) {
	defer q.q.registry.unuse(q.q)
	if q.w.err != nil {
		return nil, false
	}
	return q.w.shares[0], q.w.begin()
}

// GiveUp goes on as a caller does who sees first that its context has ended.
func (q *Queued) GiveUp() {
	defer q.q.registry.unuse(q.q)
	q.q.giveUp(q.w)
}

// Again goes on as an Acquire, or a TryAcquire, does whose share was lost
// before it was taken. It reports whether it is queued once more.
func (q *Queued) Again(try bool) bool {
	q.w = newWaiter(context.Background(), q.w.line, try)
	return q.q.rejoin(q.w)
}

// Use keeps the queue from being dropped, as a caller does who is about to
// leave.
func (l *Line) Use() (unuse func(), err error) {
	q, err := l.queues.use(l)
	if err != nil {
		return nil, err
	}
	return func() { l.queues.unuse(q) }, nil
}

// Queues returns the number of queues that are kept.
func (l *Line) Queues() int {
	l.queues.mu.Lock()
	defer l.queues.mu.Unlock()
	return len(l.queues.queues)
}

// GrantAfter joins the line, where nobody else stands, and calls before just as
// the znode is first.
func (l *Line) GrantAfter(ctx context.Context, before func()) error {
	q, err := l.queues.use(l)
	if err != nil {
		return err
	}
	defer q.registry.unuse(q)
	sess, err := q.client.AwaitSession(ctx)
	if err != nil {
		return err
	}
	a := &acquisition{queue: q, ctx: ctx, stop: func() {}}
	c, err := a.join(sess)
	if err != nil {
		return err
	}
	before()
	return a.grant(c)
}

// LetIn reports whether a grant is given to a waiter, with which before is done
// once it was made: it was lost, or the waiter has left.
func (l *Line) LetIn(ctx context.Context, before func(lose func(error), leave func())) (admitted bool, err error) {
	q, err := l.queues.use(l)
	if err != nil {
		return false, err
	}
	defer q.registry.unuse(q)
	w := newWaiter(context.Background(), l, false)
	a := &acquisition{queue: q, ctx: ctx, stop: func() {}}
	q.update(func() { w.at, q.acquisition = q.waiters.PushBack(w), a })
	leave := sync.OnceFunc(func() { q.giveUp(w) })
	defer leave()
	sess, err := q.client.AwaitSession(ctx)
	if err != nil {
		return false, err
	}
	c, err := a.join(sess)
	if err != nil {
		return false, err
	}
	g, err := c.claim(ctx)
	if err != nil {
		return false, err
	}
	before(g.lose, leave)
	err = a.grantFirst(c, g)
	q.mu.Lock()
	defer q.mu.Unlock()
	return w.shares != nil, err
}

// HandedOff makes s's znode one that was handed off so often.
func (s *Share) HandedOff(handoffs uint32) {
	s.grant.queue.mu.Lock()
	defer s.grant.queue.mu.Unlock()
	s.handoffs, s.grant.handoffs = handoffs, handoffs
}

// WaitingBehind returns what the error of a wait behind a znode in dir says.
func WaitingBehind(dir, name string, session int64) string {
	return (&waitingFor{name, session}).in(dir)
}

// Lose ends the grant of s, as the session's goroutine does that reports its
// loss.
func (s *Share) Lose(reason error) { s.grant.lose(reason) }

// LeaveAndLose leaves s, and ends its grant before anybody who was chosen for
// it goes on.
func (s *Share) LeaveAndLose(reason error) {
	s.grant.queue.update(func() {
		s.leaveLocked(context.Background(), false)
		s.grant.loseLocked(failed, reason)
	})
}

// Leaving returns the number of departures from l's line that are announced.
func (l *Line) Leaving() int { return len(l.queues.departures.at(l.key.path)) }
