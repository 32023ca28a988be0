package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// observerList is the observers of a client. A method passes one event to all
// of them. No method panics. See Observer for what is called where.
type observerList []managed.Observed[Observer]

// observersOf returns the observers of a client, none if no one of them has a
// function: then nothing need be described.
func observersOf(c *managed.Client) observerList {
	all := observerList(managed.ObserversOf[Observer](c))
	if !all.wantLeases() {
		return nil
	}
	return all
}

// wantLeases reports whether any observer has a function.
func (o observerList) wantLeases() bool {
	for _, each := range o {
		if each.By.AcquireStart != nil || each.By.AcquireEnd != nil || each.By.Released != nil || each.By.Lost != nil ||
			each.By.LostReleased != nil || each.By.Overran != nil || each.By.Revoked != nil {
			return true
		}
	}
	return false
}

// startAcquire reports that a call of Acquire begins. It returns the context
// for the rest of the call, and a function that must be called with the result.
// If an observer ends the goroutine, startAcquire reports the end itself.
func (o observerList) startAcquire(ctx context.Context, a Acquire) (during context.Context, end func(AcquireResult)) {
	began := time.Now()
	contexts := make([]context.Context, 0, len(o))
	end = func(r AcquireResult) {
		r.Waited = time.Since(began)
		for i, ctx := range contexts {
			if fn := o[i].By.AcquireEnd; fn != nil {
				defer o[i].Events.Call(func() { fn(ctx, a, r) }) // deferred: if one ends the goroutine, the others are called
			}
		}
	}
	started := false
	defer func() {
		if !started {
			end(AcquireResult{Err: errObserverExited})
		}
	}()
	for i, each := range o {
		contexts = append(contexts, ctx)
		if fn := each.By.AcquireStart; fn != nil {
			ctx = each.Events.Values(ctx, func(ctx context.Context) context.Context { return fn(ctx, a) })
		}
		contexts[i] = ctx
	}
	started = true
	return ctx, end
}

// errObserverExited is the result of a call during which an observer has ended
// the goroutine.
var errObserverExited = errors.New("an observer has ended the goroutine")

// released reports a release, and waits for the observers.
func (o observerList) released(ctx context.Context, r Release) {
	for _, each := range o {
		if fn := each.By.Released; fn != nil {
			defer each.Events.Call(func() { fn(ctx, r) }) // deferred: if one ends the goroutine, the others are called
		}
	}
}

// lost reports a loss. It does not wait for the observers.
func (o observerList) lost(ctx context.Context, l Loss) {
	for _, each := range o {
		if fn := each.By.Lost; fn != nil {
			each.Events.Post(func() { fn(ctx, l) })
		}
	}
}

// lostReleased reports the release of a lost lease, and waits for the
// observers.
func (o observerList) lostReleased(ctx context.Context, l Loss) {
	for _, each := range o {
		if fn := each.By.LostReleased; fn != nil {
			defer each.Events.Call(func() { fn(ctx, l) })
		}
	}
}

// overran reports an overrun, and waits for the observers.
func (o observerList) overran(ctx context.Context, over Overrun) {
	for _, each := range o {
		if fn := each.By.Overran; fn != nil {
			defer each.Events.Call(func() { fn(ctx, over) })
		}
	}
}

// revoked reports a revocation. It does not wait for the observers.
func (o observerList) revoked(ctx context.Context, r Revocation) {
	for _, each := range o {
		if fn := each.By.Revoked; fn != nil {
			each.Events.Post(func() { fn(ctx, r) })
		}
	}
}
