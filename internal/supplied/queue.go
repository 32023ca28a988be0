package supplied

import (
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Queue calls functions one at a time and in order, on a goroutine that exists
// only while calls wait. To add a call never blocks. A function that is slow
// delays only the calls behind it.
type Queue struct {
	report func(n int) // called with how many were dropped; may be nil
	log    *zap.Logger // for panics

	mu      sync.Mutex // guards what follows
	waiting []queuedCall
	often   places // of Offer
	rare    places // of Post
	dropped int    // since the last report
	running bool
}

// places is how many calls of a kind may wait.
type places struct{ most, taken int }

type queuedCall struct {
	fn    func()
	place *places // that it takes; nil: none
}

// NewQueue returns a queue in which so many calls of Offer, and of Post, may
// wait. report is called with the number of calls that were dropped, after
// those that were not; it may be nil.
func NewQueue(offers, posts int, log *zap.Logger, report func(n int)) *Queue {
	return &Queue{report: report, log: log, often: places{most: offers}, rare: places{most: posts}}
}

// Offer adds a call of fn, for what happens often. If too many of these wait,
// it is dropped and counted, and Offer reports false.
func (c *Queue) Offer(fn func()) (added bool) { return c.add(queuedCall{fn, &c.often}) }

// Post is Offer for what happens rarely.
func (c *Queue) Post(fn func()) { c.add(queuedCall{fn, &c.rare}) }

// Keep is Offer that never drops fn. The caller bounds how many of these wait.
func (c *Queue) Keep(fn func()) { c.add(queuedCall{fn: fn}) }

func (c *Queue) add(e queuedCall) (added bool) {
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
func (c *Queue) run() {
	ended := false
	defer func() {
		if !ended { // a function has ended this goroutine: another one continues
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
func (c *Queue) reportDrops() {
	c.mu.Lock()
	dropped := c.dropped
	c.dropped = 0
	c.mu.Unlock()
	if dropped > 0 && c.report != nil {
		c.Call(func() { c.report(dropped) })
	}
}

// deliver makes one call. If the function ends the goroutine, as t.FailNow
// does, the rest is put back.
func (c *Queue) deliver(e queuedCall, rest []queuedCall) {
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
	c.Call(e.fn)
	returned = true
}

// Call calls fn on this goroutine, not in the queue. A panic of fn is logged.
func (c *Queue) Call(fn func()) { _ = Call(c.log, fn) }

// Flush waits until all calls that were added before have returned, and what
// was dropped before is reported. It reports false if patience ends first.
func (c *Queue) Flush(patience <-chan time.Time) bool {
	for range 2 { // the report comes after the calls that were waiting at the time
		done := make(chan struct{})
		c.Keep(func() { close(done) })
		select {
		case <-done:
		case <-patience:
			return false
		}
	}
	return true
}
