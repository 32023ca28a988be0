package line

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A gate is where the goroutines of this process queue, in the order in which
// they come, for a place in one line. It is dropped when nobody uses it.
//
// There is a driver exactly while somebody waits and nothing that has its turn will
// serve him: a hold that is alone, or one for which a look decides whether it may be
// shared. Each change of either ends with driveLocked.
type gate struct {
	registry *registry
	key      Key
	client   *framework.Client
	path     string // for messages
	dir      string // whose children are the line
	rule     Rule
	cfg      Config
	lingers  atomic.Bool              // what is created from now on may linger
	obstacle atomic.Pointer[obstacle] // nil: nothing is waited for in line

	users int // guarded by registry.mu: callers in enter, and the hold

	mu      sync.Mutex // guards what follows, and the state of the gate's holds
	waiters list.List  // of *waiter
	came    uint64     // how many have queued
	driver  *driver    // nil: none
	holds   int        // that have their turn here: were not lost, and have not left
	seat    *hold      // the latest of them, which may serve others; nil: none
}

// waiter is a goroutine that waits at home.
type waiter struct {
	line   *Line
	number uint64        // in the order of their coming
	try    bool          // it leaves rather than wait for somebody else
	ready  chan struct{} // closed: places or err is set, and it is in the queue no more
	gone   chan struct{} // closed: it has left the queue
	places []*Place
	err    error
	at     *list.Element // nil: not in the queue
}

func newWaiter(l *Line, try bool) *waiter {
	return &waiter{line: l, try: try, ready: make(chan struct{}), gone: make(chan struct{})}
}

// driver is the identity of a goroutine that stands in line for the gate: one
// that was told to stop, and is slow to, can never act for the next.
type driver struct {
	stop  context.CancelFunc
	tries uint64        // guarded by gate.mu: the number of the last for whom it tries what it is about
	waits bool          // guarded by gate.mu: who only tries has no hope behind it
	kick  chan struct{} // a token: somebody who only tries has come
}

func (g *gate) enter(ctx context.Context, l *Line, try bool) ([]*Place, error) {
	if p := g.walkIn(l); p != nil {
		if p.begin() {
			return []*Place{p}, nil
		}
		p.quit()
	}
	w := newWaiter(l, try)
	if !g.queue(w) {
		return nil, ErrBusy
	}
	for {
		select {
		case <-w.ready:
		case <-ctx.Done():
			err := g.gaveUp(ctx)
			g.leave(w)
			return nil, err
		}
		switch {
		case w.err != nil:
			return nil, w.err
		case w.begin():
			return w.places, nil
		}
		// Lost between the choice and now, unused: it costs this caller its place in
		// line, not its call, and not its place at home either.
		w.quit()
		w = newWaiter(l, try)
		if !g.requeue(w) {
			return nil, ErrBusy
		}
	}
}

// begin takes what w was chosen for, all or none.
func (w *waiter) begin() bool {
	for _, p := range w.places {
		if !p.begin() {
			return false
		}
	}
	return true
}

func (w *waiter) quit() {
	for _, p := range w.places {
		p.quit()
	}
}

// queue puts w behind everybody else, or reports false if w only tries and would
// have to wait here already.
func (g *gate) queue(w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.try && g.busyLocked() {
		return false
	}
	w.at = g.waiters.PushBack(w)
	w.number = g.countLocked()
	g.driveLocked()
	if w.try && g.driver != nil {
		select {
		case g.driver.kick <- struct{}{}:
		default:
		}
	}
	return true
}

// busyLocked reports whether one who came now would have to wait for another of
// this process.
func (g *gate) busyLocked() bool {
	if g.rule.alone() {
		taken := g.holds > 0 && !g.seat.unusedLocked() // the only one
		return taken || g.waiters.Len() > 0
	}
	return g.driver != nil && g.driver.waits
}

// requeue puts w before everybody else, or reports false as queue does: whoever
// came in the meantime may stand in line, and a try does not wait there.
func (g *gate) requeue(w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.try && g.busyLocked() {
		return false
	}
	w.at = g.waiters.PushFront(w)
	w.number = g.countLocked()
	g.driveLocked()
	return true
}

// leave takes w, whose caller has given up, out of the queue. If w was chosen
// already, the choice is passed on.
func (g *gate) leave(w *waiter) {
	g.mu.Lock()
	if w.at != nil {
		g.removeLocked(w)
		if g.seat != nil && g.waiters.Len() == 0 {
			g.seat.resumeOrLeaveLocked() // it may have been kept for w alone
		}
		g.mu.Unlock()
		return
	}
	if w.places == nil { // it failed just now, which its caller need not hear
		g.mu.Unlock()
		return
	}
	if p := w.places[0]; p.h.err == nil && g.waiters.Len() > 0 && g.rule.alone() {
		g.chooseLocked(p.h)
		p.outLocked()
		p.settleLocked(nil)
		g.mu.Unlock()
		return
	}
	g.mu.Unlock()
	w.quit()
}

// chooseAllLocked gives what has its turn to all who may have it at once: where it
// is shared, to those who wait now and would have to give it back after the same
// time.
func (g *gate) chooseAllLocked(holds []*hold) {
	first := g.firstLocked().line
	g.chooseLocked(holds...)
	for g.rule.Mode == layout.Shared && g.waiters.Len() > 0 && g.firstLocked().line.cfg.MaxHold == first.cfg.MaxHold {
		g.chooseLocked(holds...)
	}
}

// chooseLocked gives the first waiter a place on each.
func (g *gate) chooseLocked(holds ...*hold) {
	w := g.firstLocked()
	g.removeLocked(w)
	for _, h := range holds {
		w.places = append(w.places, h.placeLocked(w.line))
	}
	close(w.ready)
}

func (g *gate) firstLocked() *waiter { return g.waiters.Front().Value.(*waiter) }

// removeLocked takes w out of the queue. With the last waiter goes the driver,
// which withdraws its znode.
func (g *gate) removeLocked(w *waiter) {
	g.waiters.Remove(w.at)
	w.at = nil
	close(w.gone)
	if g.waiters.Len() == 0 && g.driver != nil {
		g.driver.stop()
		g.driver = nil
	}
}

// driveLocked goes on with those who wait: by what has its turn already, or else by
// a driver.
func (g *gate) driveLocked() {
	if g.driver != nil || g.waiters.Len() == 0 {
		return
	}
	if g.rule.alone() && g.holds > 0 {
		g.expectLocked()
		return
	}
	if g.joinLocked() {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	g.driver = &driver{stop: stop, kick: make(chan struct{}, 1)}
	go g.drive(ctx, g.driver)
}

// admit ends d by giving what has its turn to those whose turn it is. It reports
// false, and changes nothing, if any of it was lost already, or nobody waits for d
// any more, or the first by now needs another number of them.
func (g *gate) admit(d *driver, holds ...*hold) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.driver != d || g.rule.Take != nil && g.firstLocked().line.rule.Take.N != len(holds) {
		return false
	}
	for _, h := range holds {
		if h.err != nil {
			return false
		}
	}
	g.driver = nil
	for _, h := range holds {
		g.seatLocked(h)
	}
	if g.rule.Take == nil {
		g.seat = holds[0]
	}
	g.chooseAllLocked(holds)
	g.driveLocked()
	return true
}

// seatLocked has h use the gate, until vacateLocked.
func (g *gate) seatLocked(h *hold) {
	h.seated = true
	g.holds++
	g.registry.reuse(g)
}

// vacateLocked ends h's use of the gate, at its loss or when it has left: those
// who wait here stand in line again.
func (g *gate) vacateLocked(h *hold) {
	if !h.seated {
		return
	}
	h.seated = false
	g.holds--
	if g.seat == h {
		g.seat = nil
	}
	g.driveLocked()
	g.registry.unuse(g)
}

func (g *gate) countLocked() uint64 {
	g.came++
	return g.came
}

// tries notes that d begins anew, for all who wait by now.
func (g *gate) tries(d *driver) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d.tries = g.came
}

// fail ends d by giving err to all for whom it began. Whoever came later, when the
// time or the retries that led to err were used up in part, is tried for anew.
func (g *gate) fail(d *driver, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.driver != d {
		return
	}
	g.driver = nil
	d.stop()
	g.refuseAllLocked(func(w *waiter) bool { return w.number <= d.tries }, err)
	g.driveLocked()
}

// triesFirst reports whether the first to be served by d only tries.
func (g *gate) triesFirst(d *driver) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.driver == d && g.firstLocked().try
}

// first is the first to be served by d, nil if nobody waits for it any more.
func (g *gate) first(d *driver) *waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.driver != d {
		return nil
	}
	return g.firstLocked()
}

// trying are those who only try.
func (g *gate) trying() (all []*waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for e := g.waiters.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*waiter); w.try {
			all = append(all, w)
		}
	}
	return all
}

// refuse ends the wait of one, if it still waits for d.
func (g *gate) refuse(d *driver, w *waiter, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.driver == d && w.at != nil {
		g.refuseLocked(w, err)
	}
}

// busy ends the wait of all who only try. It reports whether anybody goes on
// waiting for d.
func (g *gate) busy(d *driver) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.driver != d {
		return false
	}
	d.waits = true
	g.refuseAllLocked(func(w *waiter) bool { return w.try }, ErrBusy)
	return g.driver == d
}

func (g *gate) refuseAllLocked(which func(*waiter) bool, err error) {
	var next *list.Element
	for e := g.waiters.Front(); e != nil; e = next {
		next = e.Next()
		if w := e.Value.(*waiter); which(w) {
			g.refuseLocked(w, err)
		}
	}
}

func (g *gate) refuseLocked(w *waiter, err error) {
	g.removeLocked(w)
	w.err = err
	close(w.ready)
}
