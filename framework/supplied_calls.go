package framework

import (
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// callQueue calls functions that the user supplied, one at a time and in order,
// on a goroutine that exists only while calls wait. Adding a call never blocks:
// a function may block for as long as it likes, and delays only the calls
// behind it.
type callQueue struct {
	report func(n int) // called with how many were dropped; may be nil
	log    *zap.Logger // for panics

	mu      sync.Mutex // guards what follows
	waiting []queuedCall
	often   places // of offer
	rare    places // of post
	dropped int    // since the last report
	running bool
}

// places is how many calls of a kind may wait.
type places struct{ most, taken int }

type queuedCall struct {
	fn    func()
	place *places // that it takes; nil: none
}

// newCallQueue returns a queue in which so many calls of offer, and of post,
// may wait.
func newCallQueue(offers, posts int, log *zap.Logger) *callQueue {
	return &callQueue{often: places{most: offers}, rare: places{most: posts}, log: log}
}

// offer adds a call of fn, for what happens often. If too many of these wait,
// it is dropped and counted, and offer reports false.
func (c *callQueue) offer(fn func()) (added bool) { return c.add(queuedCall{fn, &c.often}) }

// post is offer for what happens rarely.
func (c *callQueue) post(fn func()) { c.add(queuedCall{fn, &c.rare}) }

// keep is offer that never drops fn. The caller bounds how many of these wait.
func (c *callQueue) keep(fn func()) { c.add(queuedCall{fn: fn}) }

func (c *callQueue) add(e queuedCall) (added bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := e.place; p != nil {
		if p.taken >= p.most {
			c.dropped++
			return false
		}
		p.taken++
	}
	c.waiting = append(c.waiting, e)
	if !c.running {
		c.running = true
		go c.run()
	}
	return true
}

// run makes the calls that wait, and returns when there are none.
func (c *callQueue) run() {
	ended := false
	defer func() {
		if !ended { // a function has ended this goroutine: another one goes on
			go c.run()
		}
	}()
	for {
		c.mu.Lock()
		calls := c.waiting
		c.waiting = nil
		if c.running = len(calls) > 0 || c.dropped > 0; !c.running {
			ended = true
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		for i, e := range calls {
			c.deliver(e, calls[i+1:])
		}
		c.reportDrops()
	}
}

// reportDrops tells how many calls were dropped since the last report.
func (c *callQueue) reportDrops() {
	c.mu.Lock()
	dropped := c.dropped
	c.dropped = 0
	c.mu.Unlock()
	if dropped > 0 && c.report != nil {
		c.call(func() { c.report(dropped) })
	}
}

// deliver makes one call. If the function ends the goroutine, as t.FailNow
// does, the rest is put back.
func (c *callQueue) deliver(e queuedCall, rest []queuedCall) {
	returned := false
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.place != nil {
			e.place.taken--
		}
		if !returned {
			c.waiting = append(slices.Clone(rest), c.waiting...)
		}
	}()
	c.call(e.fn)
	returned = true
}

// call calls fn on this goroutine. A panic of fn is logged.
func (c *callQueue) call(fn func()) { _ = supplied.Call(c.log, fn) }

// flush waits until all calls that were added before have returned, and what
// was dropped before is reported. It reports false if patience ends first.
func (c *callQueue) flush(patience <-chan time.Time) bool {
	for range 2 { // the report comes after the calls that were waiting at the time
		done := make(chan struct{})
		c.keep(func() { close(done) })
		select {
		case <-done:
		case <-patience:
			return false
		}
	}
	return true
}
