package framework

import (
	"time"

	"go.uber.org/zap"
)

// WithObserver sets functions to be called at events, for metrics.
func WithObserver(o Observer) Option { return func(c *config) { c.observer = o } }

// Observer hears of events. Each function is optional, and may block: it delays
// only the caller of Acquire or Release (Granted, Released, Overran) or later
// events (all others). A function that panics is logged, and called again at the
// next event.
//
// Granted, Released and Overran are called on the goroutine that acquired,
// released or worked; where several leases are released together, on several. All
// others are called one at a time, in the order of the
// events, on a goroutine of the client's. While one of them blocks, events wait
// in memory. Request and Retried are dropped when thousands of them wait, and
// Dropped counts them later; no other event is ever dropped.
type Observer struct {
	// StateChanged is called with every change, in order; listeners may be first.
	StateChanged func(StateChange)
	// Request is called for each request that ended: its name ("create", "list",
	// ...), how long it took, and the error of the wire.
	Request func(op string, took time.Duration, err error)
	// Retried is called when an operation is tried again after err.
	Retried func(op string, err error)
	// Dropped is called with the number of Request and Retried events that were
	// dropped since it was called last.
	Dropped func(events int)
	// Abandoned is called when a connection is given up by the client: a mute
	// server, a stalled leader, a wedged wire client.
	Abandoned func(session int64, why error)

	// Granted is called for each lease that an Acquire returns, a re-entered one
	// included, with the path of the lock and how long the caller waited. A lease
	// has exactly one end: either Released or Lost, with how long it was held. A
	// lease of several locks is counted by its parts, one of several permits once.
	Granted  func(path string, waited time.Duration)
	Released func(path string, held time.Duration)
	Lost     func(path string, held time.Duration, err error)
	// Overran is called when work under Do has returned after others could have
	// been granted its lock, with how long after.
	Overran func(path string, by time.Duration)
}

// requestEvents is how many Request and Retried events wait at most.
const requestEvents = 4096

// guarded returns the observer with functions that may be called anywhere: they
// neither block nor panic, except that those which are called on the user's own
// goroutine may block it.
func (o Observer) guarded(log *zap.Logger) (Observer, *courier) {
	events := newCourier(requestEvents, log)
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
