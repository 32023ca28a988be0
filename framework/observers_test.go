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
		observers.lost(t.Context(), Loss{})
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
	var none observerList
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	allocated := testing.AllocsPerRun(100, func() {
		if none.values(ctx) != context.Background() || none.wantRequests() {
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
		if want, got := slices.Contains(wanted, name), newObservers([]Observer{{}, one}, zap.NewNop()).wantLeases(); got != want {
			t.Errorf("with %s alone: %t, want %t", name, got, want)
		}
	}
}

// Requests that nobody waits for carry the values of their context if an
// observer gets them, and requests are described if one gets those.
func TestWhoGetsRequests(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, 1))
	cancel()
	kind := reflect.TypeFor[Observer]()
	for i := range kind.NumField() {
		var one Observer
		name, field := kind.Field(i).Name, reflect.ValueOf(&one).Elem().Field(i)
		field.Set(reflect.MakeFunc(field.Type(), func([]reflect.Value) []reflect.Value { return nil }))
		o := newObservers([]Observer{{}, one}, zap.NewNop())
		requests := name == "RequestStart" || name == "RequestEnd"
		if got := o.wantRequests(); got != requests {
			t.Errorf("with %s alone: requests are wanted %t", name, got)
		}
		values := o.values(ctx)
		if got := values.Value(key{}) != nil; got != (requests || name == "Retried") || values.Done() != nil {
			t.Errorf("with %s alone: has the values %t, ends %t", name, got, values.Done() != nil)
		}
	}
}

// The context of an observer adds values to that of the caller, and takes none
// away.
func TestObservedContext(t *testing.T) {
	type key int
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key(1), "caller"))
	defer cancel()
	o := newObservers([]Observer{{}}, zap.NewNop())[0]
	begin := func(fn func(context.Context, int) context.Context) context.Context { return start(ctx, o, fn, 7) }
	for name, fn := range map[string]func(context.Context, int) context.Context{
		"no function": nil,
		"nothing":     func(context.Context, int) context.Context { return nil },
		"the same":    func(ctx context.Context, _ int) context.Context { return ctx },
		"a panic":     func(context.Context, int) context.Context { panic("odd") },
		"a nil pointer": func(context.Context, int) context.Context {
			var none *struct{ context.Context }
			return none
		},
	} {
		if got := begin(fn); got != ctx {
			t.Errorf("%s: another context", name)
		}
	}
	got := begin(func(_ context.Context, what int) context.Context {
		ended, cancel := context.WithCancel(context.WithValue(context.Background(), key(2), what))
		cancel()
		return ended
	})
	if got.Value(key(1)) != "caller" || got.Value(key(2)) != 7 || got.Value(key(3)) != nil || got.Err() != nil || got.Done() != ctx.Done() {
		t.Errorf("%v, %v, %v", got.Value(key(1)), got.Value(key(2)), got.Err())
	}
}
