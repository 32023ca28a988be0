package managed

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	life "github.com/zkrecipes/zkrecipes/internal/managed/session"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// Observer has functions that are called for the events of the client itself.
// The Observer of framework says when, and where; each may be nil.
type Observer struct {
	RequestStart func(context.Context, ops.Request) context.Context
	RequestEnd   func(context.Context, ops.Request, RequestResult)
	Retried      func(context.Context, ops.Retry)
	Batched      func(operations int)

	EphemeralsChanged func(ephemerals.Change)
	Opened            func()
	StateChanged      func(StateChange)
	Abandoned         func(Abandonment)
	Moved             func(Move)
	GuardianLost      func(error)
	Dropped           func(events int)
}

// Abandonment is the end of a connection that the client has given up.
type Abandonment struct {
	Session int64
	Reason  life.Reason
	Err     error
}

// Move is a move to another server, as framework.Move says.
type Move struct {
	Session int64
	From    string
	To      string
	Err     error
}

// observers are those of a client. They do not change after New.
type observers struct {
	client observerList
	of     map[any]any       // each type's, by its observersOf
	queues []*supplied.Queue // one for each group
}

// Observed is one of the observers of a client.
type Observed[T any] struct {
	By     *T
	Events *supplied.Queue // calls what is not called in place
}

type observersOf[T any] struct{}

func of[T any](all map[any]any) []Observed[T] {
	these, _ := all[observersOf[T]{}].([]Observed[T])
	return these
}

// group is the observers of one option of New. They share a queue.
type group []func(all map[any]any, events *supplied.Queue)

// How many events of a group may wait: requests, batches, retries, reads of
// caches and counters; and all others.
const (
	requestEvents = 4096
	otherEvents   = 65536
)

func newObservers(groups []group, log *zap.Logger) observers {
	made := observers{of: make(map[any]any)}
	for _, group := range groups {
		if len(group) == 0 {
			continue
		}
		var own []Observed[Observer] // of the group
		events := supplied.NewQueue(requestEvents, otherEvents, log, func(dropped int) { reportDrop(own, dropped) })
		before := len(of[Observer](made.of))
		for _, join := range group {
			join(made.of, events)
		}
		own = of[Observer](made.of)[before:]
		made.queues = append(made.queues, events)
	}
	made.client = of[Observer](made.of)
	return made
}

// reportDrop tells the observers of a group how many of its events were
// dropped.
func reportDrop(group []Observed[Observer], dropped int) {
	for _, each := range slices.Backward(group) {
		if fn := each.By.Dropped; fn != nil {
			defer each.Events.Call(func() { fn(dropped) }) // deferred: if one ends the goroutine, the others are called
		}
	}
}

// flush waits until the observers have got all events. It returns false if
// patience ends first.
func (o observers) flush(patience <-chan time.Time) bool {
	for _, events := range o.queues {
		if !events.Flush(patience) {
			return false
		}
	}
	return true
}

// observerList is the client's own observers. A method passes one event to all
// of them. No method panics, and without observers the methods do nothing. See
// the Observer of framework for what is called where.
type observerList []Observed[Observer]

// Values returns a context that has the values of ctx and never ends, for
// requests that nobody waits for. If nobody observes requests or retries it has
// no values either, which costs nothing. It calls nothing of ctx, which may be
// user code.
func (o observerList) Values(ctx context.Context) context.Context {
	for _, each := range o {
		if each.By.RequestStart != nil || each.By.RequestEnd != nil || each.By.Retried != nil {
			return context.WithoutCancel(ctx)
		}
	}
	return context.Background()
}

func (o observerList) Observes() bool {
	for _, each := range o {
		if each.By.RequestStart != nil || each.By.RequestEnd != nil {
			return true
		}
	}
	return false
}

// Began reports that a request begins. end must be called with the
// answer. Neither waits for the observers.
func (o observerList) Began(ctx context.Context, r ops.Request) (end func(error)) {
	ends := make([]func(RequestResult), 0, len(o))
	for _, each := range o {
		if end := startRequest(ctx, each, r); end != nil {
			ends = append(ends, end)
		}
	}
	return func(err error) {
		result := RequestResult{Took: time.Since(r.Began), Code: zkerr.Name(err), Err: err}
		for _, end := range ends {
			end(result)
		}
	}
}

// startRequest returns nil if the observer does not get the request's end.
func startRequest(ctx context.Context, o Observed[Observer], r ops.Request) (end func(RequestResult)) {
	switch {
	case o.By.RequestStart == nil && o.By.RequestEnd == nil:
		return nil
	case o.By.RequestStart == nil:
		return func(result RequestResult) {
			o.Events.Offer(func() { o.By.RequestEnd(ctx, r, result) })
		}
	}
	if !o.Events.Offer(func() {
		ctx = o.Events.Values(ctx, func(ctx context.Context) context.Context { return o.By.RequestStart(ctx, r) })
	}) || o.By.RequestEnd == nil {
		return nil
	}
	return func(result RequestResult) {
		o.Events.Keep(func() { o.By.RequestEnd(ctx, r, result) }) // its start was not dropped
	}
}

func (o observerList) Retried(ctx context.Context, r ops.Retry) {
	for _, each := range o {
		if fn := each.By.Retried; fn != nil {
			each.Events.Offer(func() { fn(ctx, r) })
		}
	}
}

func (o observerList) Batched(operations int) {
	for _, each := range o {
		if fn := each.By.Batched; fn != nil {
			each.Events.Offer(func() { fn(operations) })
		}
	}
}

func (o observerList) opened() {
	for _, each := range o {
		if each.By.Opened != nil {
			each.Events.Post(each.By.Opened)
		}
	}
}

func (o observerList) stateChanged(change StateChange) {
	for _, each := range o {
		if fn := each.By.StateChanged; fn != nil {
			each.Events.Post(func() { fn(change) })
		}
	}
}

func (o observerList) EphemeralsChanged(change ephemerals.Change) {
	for _, each := range o {
		if fn := each.By.EphemeralsChanged; fn != nil {
			each.Events.Post(func() { fn(change) })
		}
	}
}

func (o observerList) abandoned(a Abandonment) {
	for _, each := range o {
		if fn := each.By.Abandoned; fn != nil {
			each.Events.Post(func() { fn(a) })
		}
	}
}

func (o observerList) moved(m Move) {
	for _, each := range o {
		if fn := each.By.Moved; fn != nil {
			each.Events.Post(func() { fn(m) })
		}
	}
}

func (o observerList) guardianLost(err error) {
	for _, each := range o {
		if fn := each.By.GuardianLost; fn != nil {
			each.Events.Post(func() { fn(err) })
		}
	}
}

// RequestResult is how a request has ended, as framework.RequestResult says.
type RequestResult struct {
	Took time.Duration
	Code string
	Err  error
}
