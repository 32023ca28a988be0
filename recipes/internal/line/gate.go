package line

import (
	"container/list"
	"context"
	"sync"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A gate is where the goroutines of this process queue, in the order in which
// they come, for a place in one line. It is dropped when nobody uses it.
//
// There is a driver exactly while somebody waits and nobody holds; where holds are
// shared, while somebody waits. Each change of either ends with driveLocked.
type gate struct {
	registry *registry
	key      Key
	client   *framework.Client
	dir      string
	rule     Rule
	cfg      Config

	users int // guarded by registry.mu: callers in enter, and the hold

	mu      sync.Mutex // guards what follows, and the state of the gate's holds
	waiters list.List  // of *waiter
	driver  *driver    // nil: none
	holds   int        // that have their turn here: were not lost, and have not left
}

// waiter is a goroutine that waits at home.
type waiter struct {
	line  *Line
	try   bool          // it leaves rather than wait for somebody else
	ready chan struct{} // closed: place or err is set, and it is in the queue no more
	place *Place
	err   error
	at    *list.Element // nil: not in the queue
}

// driver is the identity of a goroutine that stands in line for the gate: one
// that was told to stop, and is slow to, can never act for the next.
type driver struct {
	stop  context.CancelFunc
	waits bool // guarded by gate.mu: somebody in line was ahead at the last look
}

func (g *gate) enter(ctx context.Context, l *Line, try bool) (*Place, error) {
	w := &waiter{line: l, try: try, ready: make(chan struct{})}
	if !g.queue(w) {
		return nil, ErrBusy
	}
	for {
		select {
		case <-w.ready:
		case <-ctx.Done():
			g.leave(w)
			return nil, Ended(ctx)
		}
		switch {
		case w.err != nil:
			return nil, w.err
		case w.place.begin():
			return w.place, nil
		}
		// Lost between the choice and now, unused: it costs this caller its place in
		// line, not its call, and not its place at home either.
		w.place.quit()
		w = &waiter{line: l, try: try, ready: make(chan struct{})}
		g.requeue(w)
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
	g.driveLocked()
	return true
}

// busyLocked reports whether one who came now would have to wait for another of
// this process.
func (g *gate) busyLocked() bool {
	if g.rule.Mode == layout.Shared {
		return g.driver != nil && g.driver.waits
	}
	return g.holds > 0 || g.waiters.Len() > 0
}

// requeue puts w before everybody else.
func (g *gate) requeue(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w.at = g.waiters.PushFront(w)
	g.driveLocked()
}

// leave takes w, whose caller has given up, out of the queue. If w was chosen
// already, the choice is passed on.
func (g *gate) leave(w *waiter) {
	g.mu.Lock()
	if w.at != nil {
		g.removeLocked(w)
		g.mu.Unlock()
		return
	}
	if w.place == nil { // it failed just now, which its caller need not hear
		g.mu.Unlock()
		return
	}
	if h := w.place.h; h.err == nil && g.waiters.Len() > 0 && g.rule.Mode == layout.Exclusive {
		g.chooseLocked(h)
		w.place.outLocked()
		w.place.settleLocked(nil)
		g.mu.Unlock()
		return
	}
	g.mu.Unlock()
	w.place.quit()
}

// chooseAllLocked gives h to all who may have it at once: those who wait now, and
// would have to give it back after the same time.
func (g *gate) chooseAllLocked(h *hold) {
	first := g.waiters.Front().Value.(*waiter).line
	g.chooseLocked(h)
	if g.rule.Mode == layout.Exclusive {
		return
	}
	for g.waiters.Len() > 0 && g.waiters.Front().Value.(*waiter).line.cfg.MaxHold == first.cfg.MaxHold {
		g.chooseLocked(h)
	}
}

// chooseLocked gives h to the first waiter.
func (g *gate) chooseLocked(h *hold) {
	w := g.waiters.Front().Value.(*waiter)
	g.removeLocked(w)
	w.place = h.placeLocked(w.line)
	close(w.ready)
}

// removeLocked takes w out of the queue. With the last waiter goes the driver,
// which withdraws its znode.
func (g *gate) removeLocked(w *waiter) {
	g.waiters.Remove(w.at)
	w.at = nil
	if g.waiters.Len() == 0 && g.driver != nil {
		g.driver.stop()
		g.driver = nil
	}
}

// driveLocked starts a driver if one is needed.
func (g *gate) driveLocked() {
	if g.driver != nil || g.waiters.Len() == 0 || g.holds > 0 && g.rule.Mode == layout.Exclusive {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	g.driver = &driver{stop: stop}
	go g.drive(ctx, g.driver)
}

// admit ends d by giving h to those whose turn it is. It reports false, and changes
// nothing, if h was lost already or nobody waits for d any more.
func (g *gate) admit(d *driver, h *hold) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.err != nil || g.driver != d {
		return false
	}
	g.driver = nil
	g.seatLocked(h)
	g.chooseAllLocked(h)
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
	g.driveLocked()
	g.registry.unuse(g)
}

// fail ends d by giving err to all who wait: each of them would meet it too.
func (g *gate) fail(d *driver, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.driver != d {
		return
	}
	for g.waiters.Len() > 0 {
		g.refuseLocked(g.waiters.Front().Value.(*waiter), err)
	}
}

// trying reports whether the first to be served by d only tries.
func (g *gate) trying(d *driver) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.driver == d && g.waiters.Front().Value.(*waiter).try
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
	var next *list.Element
	for e := g.waiters.Front(); e != nil; e = next {
		next = e.Next()
		if w := e.Value.(*waiter); w.try {
			g.refuseLocked(w, ErrBusy)
		}
	}
	return g.driver == d
}

func (g *gate) refuseLocked(w *waiter, err error) {
	g.removeLocked(w)
	w.err = err
	close(w.ready)
}
