package framework

import (
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// courier calls functions that the user supplied, one at a time, in the order in
// which they were handed over, on a goroutine that exists only while there is
// something to call. Handing one over never waits: the functions may block for
// as long as they like, and delay only those behind them.
type courier struct {
	most   int         // optional calls that may wait
	report func(n int) // called with how many were dropped; nil: nobody wants to know
	log    *zap.Logger // hears of panics

	mu       sync.Mutex // guards what follows
	waiting  []errand
	optional int // of waiting
	dropped  int // since the last report
	running  bool
}

// errand is a call that waits for its turn.
type errand struct {
	fn       func()
	optional bool
}

func newCourier(most int, log *zap.Logger) *courier { return &courier{most: most, log: log} }

// post hands fn over. It is never dropped.
func (c *courier) post(fn func()) { c.add(errand{fn: fn}) }

// offer hands fn over, unless too many of its kind wait: then it is dropped and
// counted.
func (c *courier) offer(fn func()) { c.add(errand{fn: fn, optional: true}) }

func (c *courier) add(e errand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.optional {
		if c.optional == c.most {
			c.dropped++
			return
		}
		c.optional++
	}
	c.waiting = append(c.waiting, e)
	if !c.running {
		c.running = true
		go c.run()
	}
}

// run makes the calls that wait, and ends when none does.
func (c *courier) run() {
	ended := false
	defer func() {
		if !ended { // a function has ended this goroutine: what waits goes on on another
			go c.run()
		}
	}()
	for {
		c.mu.Lock()
		errands, dropped := c.waiting, c.dropped
		c.waiting, c.dropped = nil, 0
		if c.running = len(errands) > 0 || dropped > 0; !c.running {
			ended = true
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		for i, e := range errands {
			c.deliver(e, errands[i+1:])
		}
		if dropped > 0 && c.report != nil {
			c.call(func() { c.report(dropped) })
		}
	}
}

// deliver makes one call. If fn ends the goroutine, as t.FailNow does, the rest is
// put back.
func (c *courier) deliver(e errand, rest []errand) {
	returned := false
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.optional {
			c.optional--
		}
		if !returned {
			c.waiting = append(slices.Clone(rest), c.waiting...)
		}
	}()
	c.call(e.fn)
	returned = true
}

// call calls fn here and now. A panic of fn is logged and goes no further.
func (c *courier) call(fn func()) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("a function of the user's panicked", zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	fn()
}

// flush waits until everything that was handed over before has been called, and
// reports whether that was so before patience ran out.
func (c *courier) flush(patience <-chan time.Time) bool {
	done := make(chan struct{})
	c.post(func() { close(done) })
	select {
	case <-done:
		return true
	case <-patience:
		return false
	}
}
