package framework

import (
	"time"

	"go.uber.org/zap"
)

// WithObserver sets functions that are called at events, for metrics. Default:
// none.
func WithObserver(o Observer) Option { return func(c *config) { c.observer = o } }

// Observer has functions that are called at events. Each may be nil, and may
// block. If a function panics, the panic is logged, and the function is called
// again at the next event.
//
// Granted, Released and Overran are called on the goroutine that acquired,
// released or worked, and delay it. If several leases are released together,
// they may be called on several goroutines at once. All other functions are
// called one at a time, in the order of the events, on a goroutine of the
// client. While one of them blocks, later events wait in memory. When thousands
// of Request, Batched and Retried events wait, further ones are dropped, and
// Dropped reports how many. No other event is ever dropped.
type Observer struct {
	// StateChanged is called with every change of the state. Listeners may be
	// called earlier.
	StateChanged func(StateChange)
	// Request is called for each request that has ended, with its name
	// ("create", "list", ...), how long it took, and the error of the wire
	// client.
	Request func(op string, took time.Duration, err error)
	// Batched is called for each multi in which writes of contenders have shared
	// a request, with the number of its operations. For Request that is one
	// "multi", and its operations do not count.
	Batched func(operations int)
	// Retried is called when an operation is retried after err.
	Retried func(op string, err error)
	// Dropped is called with the number of Request, Batched and Retried events
	// that were dropped since the previous call.
	Dropped func(events int)
	// Abandoned is called when the client gives a connection up: because the
	// server does not answer, the leader is out of reach, or the wire client
	// hangs.
	Abandoned func(session int64, why error)

	// Granted is called for each lease that an Acquire returns, also when a
	// lock is re-entered, with the path of the lock and how long the caller has
	// waited. For each lease either Released or Lost is called once, with how
	// long it was held. A lease of several locks counts once for each of them,
	// a lease of several permits of a semaphore once.
	Granted  func(path string, waited time.Duration)
	Released func(path string, held time.Duration)
	Lost     func(path string, held time.Duration, err error)
	// Overran is called when work under Do returns after its lock may have been
	// granted to others, with how long after.
	Overran func(path string, by time.Duration)
}

// requestEvents is how many Request, Batched and Retried events may wait.
const requestEvents = 4096

// guarded returns an observer whose functions may be called anywhere: none of
// them panics, and only those that are called on the user's goroutine may
// block.
func (o Observer) guarded(log *zap.Logger) (Observer, *callQueue) {
	events := newCallQueue(requestEvents, log)
	if o.Dropped != nil {
		dropped := o.Dropped
		events.report = func(n int) { dropped(n) }
	}
	g := Observer{Dropped: o.Dropped}
	if fn := o.StateChanged; fn != nil {
		g.StateChanged = func(c StateChange) { events.post(func() { fn(c) }) }
	}
	if fn := o.Request; fn != nil {
		g.Request = func(op string, took time.Duration, err error) { events.offer(func() { fn(op, took, err) }) }
	}
	if fn := o.Batched; fn != nil {
		g.Batched = func(operations int) { events.offer(func() { fn(operations) }) }
	}
	if fn := o.Retried; fn != nil {
		g.Retried = func(op string, err error) { events.offer(func() { fn(op, err) }) }
	}
	if fn := o.Abandoned; fn != nil {
		g.Abandoned = func(session int64, why error) { events.post(func() { fn(session, why) }) }
	}
	if fn := o.Lost; fn != nil {
		g.Lost = func(path string, held time.Duration, err error) { events.post(func() { fn(path, held, err) }) }
	}
	if fn := o.Granted; fn != nil {
		g.Granted = func(path string, waited time.Duration) { events.call(func() { fn(path, waited) }) }
	}
	if fn := o.Released; fn != nil {
		g.Released = func(path string, held time.Duration) { events.call(func() { fn(path, held) }) }
	}
	if fn := o.Overran; fn != nil {
		g.Overran = func(path string, by time.Duration) { events.call(func() { fn(path, by) }) }
	}
	return g, events
}
