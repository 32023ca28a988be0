package managed

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
)

// While an observer blocks, so many events of other kinds may wait that further
// ones are dropped. The end of a request used to be among these, although its
// start was told.
func TestNoRequestIsToldByHalf(t *testing.T) {
	free := make(chan struct{})
	var started, ended, changed, dropped int
	observers := observing(Observer{
		RequestStart: func(ctx context.Context, _ ops.Request) context.Context {
			<-free
			started++
			return ctx
		},
		RequestEnd:   func(context.Context, ops.Request, RequestResult) { ended++ },
		StateChanged: func(StateChange) { changed++ },
		Dropped:      func(events int) { dropped += events },
	})
	const more = 10
	var ends []func(error)
	for range requestEvents + more {
		ends = append(ends, observers.client.Began(t.Context(), ops.Request{Began: time.Now()}))
	}
	for range otherEvents + more {
		observers.client.stateChanged(StateChange{})
	}
	for _, end := range ends {
		end(nil)
	}
	close(free)
	if !observers.flush(nil) {
		t.Fatal("not told")
	}
	if started != ended || started < requestEvents || started+changed+dropped != requestEvents+otherEvents+2*more {
		t.Errorf("%d requests have started, %d ended, %d changes, %d dropped", started, ended, changed, dropped)
	}
}

// Without observers, telling them of what the client does allocates nothing.
// Recipes do not tell them then.
func TestNoObserversAllocateNothing(t *testing.T) {
	var none observerList
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	allocated := testing.AllocsPerRun(100, func() {
		if none.Values(ctx) != context.Background() || none.Observes() {
			t.Error("somebody observes requests")
		}
		none.Retried(ctx, ops.Retry{})
		none.Batched(2)
		none.stateChanged(StateChange{})
		none.abandoned(Abandonment{})
	})
	if allocated > 0 {
		t.Errorf("%v allocations", allocated)
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
		o := observing(Observer{}, one).client
		requests := name == "RequestStart" || name == "RequestEnd"
		if got := o.Observes(); got != requests {
			t.Errorf("with %s alone: requests are wanted %t", name, got)
		}
		values := o.Values(ctx)
		if got := values.Value(key{}) != nil; got != (requests || name == "Retried") || values.Done() != nil {
			t.Errorf("with %s alone: has the values %t, ends %t", name, got, values.Done() != nil)
		}
	}
}

// Observers that are given together share the limit of what waits. Each of them
// hears how much was dropped, and no other one does.
func TestObserversTogetherShareTheirDrops(t *testing.T) {
	free := make(chan struct{})
	var told [4]int
	observer := func(i int) func(*Config) {
		return func(c *Config) {
			Observe(c, Observer{
				Retried: func(context.Context, ops.Retry) { <-free },
				Dropped: func(events int) {
					if told[i] += events; i == 0 {
						panic("an observer's")
					}
				},
			})
		}
	}
	var cfg Config
	Together(&cfg, observer(0), func(c *Config) { Together(c, observer(1)) })
	observer(2)(&cfg)
	Together[func(*Config)](&cfg)
	observer(3)(&cfg)
	o := newObservers(cfg.groups, zap.NewNop())
	if len(o.queues) != 3 || len(o.client) != 4 {
		t.Fatalf("%d queues for %d observers", len(o.queues), len(o.client))
	}
	const each = requestEvents/2 + 1
	for range each {
		o.client.Retried(t.Context(), ops.Retry{})
	}
	close(free)
	if !o.flush(nil) {
		t.Fatal("not told")
	}
	if told[0] == 0 || told[0] != told[1] || told[0] > 2 || told[2]+told[3] > 0 {
		t.Errorf("dropped %v of %d", told, 2*each)
	}
}

// An option of several that is nil is an error, as any other one.
func TestNoOptionAmongSeveral(t *testing.T) {
	if _, err := Configure(func(c *Config) { Together(c, func(*Config) {}, nil) }); err == nil || !strings.Contains(err.Error(), "option 1: nil") {
		t.Error(err)
	}
}

// observing returns observers that have a queue each.
func observing(all ...Observer) observers {
	var cfg Config
	for _, each := range all {
		Observe(&cfg, each)
	}
	return newObservers(cfg.groups, zap.NewNop())
}
