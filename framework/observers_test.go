package framework

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
)

// While an observer blocks, so many events of other kinds may wait that further
// ones are dropped. The end of a request used to be among these, although its
// start was told.
func TestNoRequestIsToldByHalf(t *testing.T) {
	free := make(chan struct{})
	var started, ended, lost, dropped int
	observers := newObservers([]Observer{{
		RequestStart: func(ctx context.Context, _ Request) context.Context {
			<-free
			started++
			return ctx
		},
		RequestEnd: func(context.Context, Request, RequestResult) { ended++ },
		Lost:       func(context.Context, Loss) { lost++ },
		Dropped:    func(d Drop) { dropped += d.Events },
	}}, zap.NewNop())
	const more = 10
	var ends []func(error)
	for range requestEvents + more {
		ends = append(ends, observers.startRequest(t.Context(), Request{Began: time.Now()}))
	}
	for range otherEvents + more {
		observers.Lost(t.Context(), Loss{})
	}
	for _, end := range ends {
		end(nil)
	}
	close(free)
	if !observers.flush(nil) {
		t.Fatal("not told")
	}
	if started != ended || started < requestEvents || started+lost+dropped != requestEvents+otherEvents+2*more {
		t.Errorf("%d requests have started, %d ended, %d losses, %d dropped", started, ended, lost, dropped)
	}
}

// Without observers, telling them of what the client does allocates nothing.
// Recipes do not tell them then.
func TestNoObserversAllocateNothing(t *testing.T) {
	var none Observers
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	allocated := testing.AllocsPerRun(100, func() {
		if none.Values(ctx) != context.Background() || none.wantRequests() {
			t.Error("somebody observes requests")
		}
		none.retried(ctx, Retry{})
		none.batched(Batch{})
		none.stateChanged(StateChange{})
		none.abandoned(Abandonment{})
	})
	if allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
}

// Recipes describe leases if an observer has any function for them.
func TestWantLeases(t *testing.T) {
	wanted := []string{"AcquireStart", "AcquireEnd", "Released", "Lost", "LostReleased", "Overran", "Revoked"}
	kind := reflect.TypeFor[Observer]()
	for i := range kind.NumField() {
		var one Observer
		name, field := kind.Field(i).Name, reflect.ValueOf(&one).Elem().Field(i)
		field.Set(reflect.MakeFunc(field.Type(), func([]reflect.Value) []reflect.Value { return nil }))
		if want, got := slices.Contains(wanted, name), newObservers([]Observer{{}, one}, zap.NewNop()).WantLeases(); got != want {
			t.Errorf("with %s alone: %t, want %t", name, got, want)
		}
	}
}
