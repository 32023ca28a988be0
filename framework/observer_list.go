package framework

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// observerList is the observers of a client. A method passes one event to all
// of them. No method panics, and without observers the methods do nothing. See
// Observer for what is called where.
type observerList []*observer

// observer is one of them.
type observer struct {
	Observer
	events *supplied.Queue // calls what is not called in place
}

// How many events of an observer may wait: requests, batches, retries and reads
// of caches; and all others.
const (
	requestEvents = 4096
	otherEvents   = 65536
)

func newObservers(all []Observer, log *zap.Logger) observerList {
	var observers observerList
	for _, each := range all {
		var report func(n int)
		if each.Dropped != nil {
			report = func(n int) { each.Dropped(Drop{Events: n}) }
		}
		observers = append(observers, &observer{each, supplied.NewQueue(requestEvents, otherEvents, log, report)})
	}
	return observers
}

// values returns a context that has the values of ctx and never ends, for
// requests that nobody waits for. If nobody observes requests or retries it has
// no values either, which costs nothing. It calls nothing of ctx, which may be
// user code.
func (o observerList) values(ctx context.Context) context.Context {
	for _, each := range o {
		if each.RequestStart != nil || each.RequestEnd != nil || each.Retried != nil {
			return context.WithoutCancel(ctx)
		}
	}
	return context.Background()
}

// wantLeases reports whether any observer has a function for calls of Acquire
// or for leases. If none has, a recipe need not describe them.
func (o observerList) wantLeases() bool {
	for _, each := range o {
		if each.AcquireStart != nil || each.AcquireEnd != nil || each.Released != nil || each.Lost != nil ||
			each.LostReleased != nil || each.Overran != nil || each.Revoked != nil {
			return true
		}
	}
	return false
}

// startAcquire reports that a call of Acquire begins. It returns the context
// for the rest of the call, and a function that must be called with the result.
// If an observer ends the goroutine, StartAcquire reports the end itself.
func (o observerList) startAcquire(ctx context.Context, a Acquire) (during context.Context, end func(AcquireResult)) {
	began := time.Now()
	contexts := make([]context.Context, 0, len(o))
	end = func(r AcquireResult) {
		r.Waited = time.Since(began)
		for i, ctx := range contexts {
			if fn := o[i].AcquireEnd; fn != nil {
				defer o[i].events.Call(func() { fn(ctx, a, r) }) // deferred: if one ends the goroutine, the others are called
			}
		}
	}
	started := false
	defer func() {
		if !started {
			end(AcquireResult{Err: errExited})
		}
	}()
	for i, each := range o {
		contexts = append(contexts, ctx)
		ctx = start(ctx, each, each.AcquireStart, a)
		contexts[i] = ctx
	}
	started = true
	return ctx, end
}

// errExited is the result of a call during which an observer has ended the
// goroutine.
var errExited = errors.New("an observer has ended the goroutine")

// start calls a function that begins something, and returns ctx with the values
// that the function has added.
func start[T any](ctx context.Context, o *observer, fn func(context.Context, T) context.Context, what T) context.Context {
	if fn == nil {
		return ctx
	}
	values := ctx
	o.events.Call(func() {
		if returned := fn(ctx, what); returned != nil {
			returned.Value(probe{}) // a nil pointer panics here, and not in the caller's Acquire
			values = returned
		}
	})
	if same(values, ctx) {
		return ctx
	}
	return observedContext{ctx, context.WithoutCancel(values)} // its cause of ending is not the caller's
}

// probe is a key that no context has.
type probe struct{}

// same reports whether a and b are one context. Contexts of the caller's own
// types may not be comparable.
func same(a, b context.Context) bool { return reflect.ValueOf(a).Comparable() && a == b }

// observedContext is a context with more values: an observer must not take the
// caller's cancellation away, nor the leases that the context carries.
type observedContext struct {
	context.Context
	values context.Context
}

func (c observedContext) Value(key any) any {
	if value := c.values.Value(key); value != nil {
		return value
	}
	return c.Context.Value(key)
}

// released reports a release, and waits for the observers.
func (o observerList) released(ctx context.Context, r Release) {
	for _, each := range o {
		if fn := each.Released; fn != nil {
			defer each.events.Call(func() { fn(ctx, r) }) // deferred: if one ends the goroutine, the others are called
		}
	}
}

// lost reports a loss. It does not wait for the observers.
func (o observerList) lost(ctx context.Context, l Loss) {
	for _, each := range o {
		if fn := each.Lost; fn != nil {
			each.events.Post(func() { fn(ctx, l) })
		}
	}
}

// lostReleased reports the release of a lost lease, and waits for the
// observers.
func (o observerList) lostReleased(ctx context.Context, l Loss) {
	for _, each := range o {
		if fn := each.LostReleased; fn != nil {
			defer each.events.Call(func() { fn(ctx, l) })
		}
	}
}

// overran reports an overrun, and waits for the observers.
func (o observerList) overran(ctx context.Context, over Overrun) {
	for _, each := range o {
		if fn := each.Overran; fn != nil {
			defer each.events.Call(func() { fn(ctx, over) })
		}
	}
}

// revoked reports a revocation. It does not wait for the observers.
func (o observerList) revoked(ctx context.Context, r Revocation) {
	for _, each := range o {
		if fn := each.Revoked; fn != nil {
			each.events.Post(func() { fn(ctx, r) })
		}
	}
}

func (o observerList) wantRequests() bool {
	for _, each := range o {
		if each.RequestStart != nil || each.RequestEnd != nil {
			return true
		}
	}
	return false
}

// startRequest reports that a request begins. end must be called with the
// answer. Neither waits for the observers.
func (o observerList) startRequest(ctx context.Context, r Request) (end func(error)) {
	ends := make([]func(RequestResult), 0, len(o))
	for _, each := range o {
		if end := each.startRequest(ctx, r); end != nil {
			ends = append(ends, end)
		}
	}
	return func(err error) {
		result := RequestResult{Took: time.Since(r.Began), Code: ErrorCode(err), Err: err}
		for _, end := range ends {
			end(result)
		}
	}
}

// startRequest returns nil if the observer does not get the request's end.
func (o *observer) startRequest(ctx context.Context, r Request) (end func(RequestResult)) {
	switch {
	case o.RequestStart == nil && o.RequestEnd == nil:
		return nil
	case o.RequestStart == nil:
		return func(result RequestResult) {
			o.events.Offer(func() { o.RequestEnd(ctx, r, result) })
		}
	}
	if !o.events.Offer(func() { ctx = start(ctx, o, o.RequestStart, r) }) || o.RequestEnd == nil {
		return nil
	}
	return func(result RequestResult) {
		o.events.Keep(func() { o.RequestEnd(ctx, r, result) }) // its start was not dropped
	}
}

func (o observerList) retried(ctx context.Context, r Retry) {
	for _, each := range o {
		if fn := each.Retried; fn != nil {
			each.events.Offer(func() { fn(ctx, r) })
		}
	}
}

func (o observerList) batched(b Batch) {
	for _, each := range o {
		if fn := each.Batched; fn != nil {
			each.events.Offer(func() { fn(b) })
		}
	}
}

func (o observerList) opened() {
	for _, each := range o {
		if each.Opened != nil {
			each.events.Post(each.Opened)
		}
	}
}

func (o observerList) stateChanged(change StateChange) {
	for _, each := range o {
		if fn := each.StateChanged; fn != nil {
			each.events.Post(func() { fn(change) })
		}
	}
}

func (o observerList) abandoned(a Abandonment) {
	for _, each := range o {
		if fn := each.Abandoned; fn != nil {
			each.events.Post(func() { fn(a) })
		}
	}
}

// flush waits until the observers have got all events. It returns false if
// patience ends first.
func (o observerList) flush(patience <-chan time.Time) bool {
	for _, each := range o {
		if !each.events.Flush(patience) {
			return false
		}
	}
	return true
}

// observed makes a call of the wire client, and reports it to the observers,
// and a delete also to what counts ephemeral znodes.
func observed[T any](ctx context.Context, s *session, ask Request, call func(*zk.Conn) (T, error)) (T, error) {
	end := s.startObserved(ctx, ask)
	value, err := call(s.conn)
	end(err)
	if ask.Op == request.NameDelete {
		s.core.ephemerals.onDelete(ask.Path, err)
	}
	return value, err
}

// startObserved reports to the observers that a request begins, and returns a
// function that must be called when it has ended. ask has Op and Path, and
// Operations and Began unless these are 1 and now.
func (s *session) startObserved(ctx context.Context, ask Request) (end func(error)) {
	if !s.core.observers.wantRequests() {
		return func(error) {}
	}
	ask.Operations = max(ask.Operations, 1)
	if ask.Session, ask.Server = s.sessionID(), s.conn.Server(); ask.Began.IsZero() {
		ask.Began = time.Now()
	}
	return s.core.observers.startRequest(ctx, ask)
}
