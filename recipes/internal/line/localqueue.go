package line

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"

	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// A localQueue is where the goroutines of this process wait, in the order in
// which they come, before one znode of theirs joins the line. It is dropped
// when nobody uses it.
//
// An acquisition runs exactly while somebody waits, and neither of these is
// there:
//   - an exclusive grant, which will serve the waiter or leave;
//   - a shared grant, for which a look decides whether the waiter may share it.
//
// Each change of either ends with serveLocked.
type localQueue struct {
	registry *registry
	key      key
	client   *managed.Client            // of the first Line that used the queue: the view of all that belongs to the queue
	path     string                     // for messages
	dir      string                     // whose children are in line
	rule     *Rule                      // of that Line
	cfg      *Config                    // the same
	waitsFor atomic.Pointer[waitingFor] // nil: nothing is waited for in line
	idle     atomic.Int32               // how many grants are

	users int // guarded by registry.mu: callers in enter, and grants in use

	mu          sync.Mutex // guards what follows, and the state of the queue's grants
	after       []func()   // to be called once mu is free: see update
	waiters     list.List  // of *waiter
	joined      uint64     // how many have
	acquisition *acquisition
	grants      int    // in use: held, idle, or being removed
	current     *grant // the latest of them, which may serve other callers; nil: none
}

// update calls change with mu held and then, without it, what change has put
// off by later: calls of user code, and requests.
func (q *localQueue) update(change func()) {
	q.mu.Lock()
	change()
	after := q.after
	q.after = nil
	q.mu.Unlock()
	for _, fn := range after {
		fn()
	}
}

// later puts fn off until mu is free. It must be called within update.
func (q *localQueue) later(fn func()) { q.after = append(q.after, fn) }

// waiter is a goroutine that waits in-process.
type waiter struct {
	line   *Line
	values context.Context // of its caller, for the observers
	number uint64          // in the order in which waiters came
	try    bool            // it leaves rather than wait for another holder
	ready  chan struct{}   // closed: shares or err is set, and it has left the queue
	gone   chan struct{}   // closed: it has left the queue; nil where nobody waits for that
	shares []*Share
	err    error
	at     *list.Element // nil: not in the queue
}

func newWaiter(ctx context.Context, l *Line, try bool) *waiter {
	w := &waiter{line: l, values: ctx, try: try, ready: make(chan struct{})}
	if l.rule.Permits != nil {
		w.gone = make(chan struct{})
	}
	return w
}

func (q *localQueue) enter(ctx context.Context, l *Line, try bool) ([]*Share, error) {
	if s := q.shareAtOnce(l); s != nil {
		if s.begin() {
			return []*Share{s}, nil
		}
		s.Leave(ctx)
	}
	ended := ctx.Done() // before w is in the queue: ctx may be user code, which may panic
	w := newWaiter(ctx, l, try)
	if !q.join(w) {
		return nil, ErrBusy
	}
	for {
		select {
		case <-w.ready:
		case <-ended:
			defer q.giveUp(w) // also if ctx panics
			return nil, q.timedOut(ctx, l)
		}
		switch {
		case w.err != nil:
			return nil, w.err
		case w.begin():
			return w.shares, nil
		}
		// Lost between the choice and now, unused. That costs this caller its place
		// in line, but not its call, and not its place in the local queue.
		w.giveBack()
		w = newWaiter(ctx, l, try)
		if !q.rejoin(w) {
			return nil, ErrBusy
		}
	}
}

// begin takes the shares that w was chosen for, all or none.
func (w *waiter) begin() bool {
	for _, s := range w.shares {
		if !s.begin() {
			return false
		}
	}
	return true
}

// giveBack leaves the shares that w was chosen for.
func (w *waiter) giveBack() {
	for _, s := range w.shares {
		s.giveBack(w.values)
	}
}

// join puts w at the end of the queue. It reports false if w only tries and
// would have to wait here already.
func (q *localQueue) join(w *waiter) (joined bool) {
	q.update(func() {
		if joined = q.addLocked(w, q.waiters.PushBack); joined && w.try && q.acquisition != nil {
			q.acquisition.hurry()
		}
	})
	return joined
}

// rejoin is join at the front of the queue. A try may find others in line by
// now, and does not wait for them.
func (q *localQueue) rejoin(w *waiter) (joined bool) {
	q.update(func() { joined = q.addLocked(w, q.waiters.PushFront) })
	return joined
}

func (q *localQueue) addLocked(w *waiter, push func(any) *list.Element) bool {
	if w.try && q.busyLocked() {
		return false
	}
	w.at = push(w)
	q.joined++
	w.number = q.joined
	q.serveLocked()
	return true
}

// busyLocked reports whether a new caller would have to wait for another of
// this process.
func (q *localQueue) busyLocked() bool {
	if q.rule.exclusive() {
		taken := q.grants > 0 && !q.current.unusedLocked() // the only one
		return taken || q.waiters.Len() > 0
	}
	return q.acquisition != nil && q.acquisition.blocked
}

// giveUp takes w, whose caller has given up, out of the queue. If w was chosen
// already, the choice is passed on.
func (q *localQueue) giveUp(w *waiter) {
	q.update(func() {
		switch {
		case w.at != nil:
			q.removeLocked(w)
			if q.current != nil && q.waiters.Len() == 0 {
				q.current.resumeOrLeaveLocked() // it may have been kept for w alone
			}
		case w.shares == nil: // it has failed, which its caller need not hear
		case w.shares[0].grant.loss == nil && q.waiters.Len() > 0 && q.rule.exclusive():
			s := w.shares[0]
			q.chooseLocked(s.how, s.grant)
			s.markLeftLocked()
			s.settleLocked(nil)
		default:
			q.later(w.giveBack)
		}
	})
}

// serveLocked serves the waiters by a grant that is there already, or else by
// an acquisition.
func (q *localQueue) serveLocked() {
	switch {
	case q.acquisition != nil || q.waiters.Len() == 0:
	case q.rule.exclusive() && q.grants > 0:
		q.expectLocked()
	case !q.shareCurrentLocked():
		q.acquisition = newAcquisition(q, q.firstLocked().values)
		go q.acquisition.run()
	}
}

// chooseAllLocked gives the grants to the first waiter. Where a grant is shared
// it also gives it to the next waiters, as long as they have the same MaxHold.
func (q *localQueue) chooseAllLocked(how How, grants ...*grant) {
	first := q.firstLocked().line
	q.chooseLocked(how, grants...)
	for q.rule.shares && q.waiters.Len() > 0 && q.firstLocked().line.cfg.MaxHold == first.cfg.MaxHold {
		q.chooseLocked(ByShare, grants...)
	}
}

// chooseLocked gives the first waiter a share of each grant.
func (q *localQueue) chooseLocked(how How, grants ...*grant) {
	w := q.firstLocked()
	q.removeLocked(w)
	for _, g := range grants {
		w.shares = append(w.shares, g.shareLocked(w.line, how))
	}
	close(w.ready)
}

func (q *localQueue) firstLocked() *waiter { return q.waiters.Front().Value.(*waiter) }

// removeLocked takes w out of the queue. With the last waiter goes the
// acquisition, which withdraws its znode.
func (q *localQueue) removeLocked(w *waiter) {
	q.waiters.Remove(w.at)
	w.at = nil
	if w.gone != nil {
		close(w.gone)
	}
	if q.waiters.Len() == 0 && q.acquisition != nil {
		q.acquisition.endLocked()
	}
}

// refuseLocked fails the waiters that which picks.
func (q *localQueue) refuseLocked(which func(*waiter) bool, err error) {
	var next *list.Element
	for e := q.waiters.Front(); e != nil; e = next {
		next = e.Next()
		if w := e.Value.(*waiter); which(w) {
			q.removeLocked(w)
			w.err = w.line.shown(err)
			close(w.ready)
		}
	}
}

// addGrantLocked counts g among the grants in use.
func (q *localQueue) addGrantLocked(g *grant) {
	g.onLocked(granted)
	g.counted = true
	q.grants++
	q.registry.reuse(q)
}

// dropGrantLocked ends g's use of the queue, at its loss or when it has left:
// an acquisition joins the line for the waiters.
func (q *localQueue) dropGrantLocked(g *grant) {
	if !g.counted {
		return
	}
	g.counted = false
	q.grants--
	if q.current == g {
		q.current = nil
	}
	q.serveLocked()
	q.registry.unuse(q)
}
