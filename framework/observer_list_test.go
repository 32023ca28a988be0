package framework

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
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

// Each observer is told once of each event of a lease, with the values of the
// caller's context. What the caller does waits for it; a loss and a revocation
// do not wait. An observer that panics, or ends the goroutine, keeps no other
// one from being told.
func TestObserversOfLeases(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(context.Background(), key{}, "caller")
	for name, tt := range map[string]struct {
		waits bool
		tell  func(o observerList)
	}{
		"AcquireStart": {true, func(o observerList) { o.startAcquire(ctx, Acquire{}) }},
		"AcquireEnd": {true, func(o observerList) {
			during, end := o.startAcquire(ctx, Acquire{})
			if during != ctx {
				t.Error("another context, though nobody has changed it")
			}
			end(AcquireResult{})
		}},
		"Released":     {true, func(o observerList) { o.released(ctx, Release{}) }},
		"LostReleased": {true, func(o observerList) { o.lostReleased(ctx, Loss{}) }},
		"Overran":      {true, func(o observerList) { o.overran(ctx, Overrun{}) }},
		"Lost":         {false, func(o observerList) { o.lost(ctx, Loss{}) }},
		"Revoked":      {false, func(o observerList) { o.revoked(ctx, Revocation{}) }},
	} {
		for _, how := range []string{"returns", "panics", "exits", "blocks"} {
			synctest.Test(t, func(t *testing.T) {
				free := make(chan struct{})
				var told [3]int
				all := make([]Observer, 4) // the last one wants nothing
				for i := range told {
					field := reflect.ValueOf(&all[i]).Elem().FieldByName(name)
					field.Set(reflect.MakeFunc(field.Type(), func(in []reflect.Value) []reflect.Value {
						if told[i]++; in[0].Interface().(context.Context).Value(key{}) != "caller" {
							t.Errorf("%s: without the values of the context", name)
						}
						if i == 1 {
							switch how {
							case "panics":
								panic(how)
							case "exits":
								runtime.Goexit()
							case "blocks":
								<-free
							}
						}
						return in[:field.Type().NumOut()] // the context, of AcquireStart
					}))
				}
				returned := false
				go func() {
					tt.tell(newObservers(all, zap.NewNop()))
					returned = true
				}()
				synctest.Wait()
				if want := how != "blocks" && how != "exits" || !tt.waits; returned != want {
					t.Errorf("%s, an observer %s: returned %t", name, how, returned)
				}
				close(free)
				synctest.Wait()
				want := [3]int{1, 1, 1}
				if name == "AcquireStart" && how == "exits" {
					want[2] = 0 // the call ends with the goroutine
				}
				if told != want {
					t.Errorf("%s, an observer %s: told %v times, want %v", name, how, told, want)
				}
			})
		}
	}
}

// A call during which an observer ends the goroutine has its end reported, to
// those that heard of its beginning, with how long it took.
func TestAnObserverThatExitsEndsItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := 0
		end := func(_ context.Context, a Acquire, r AcquireResult) {
			if ends++; a.Path != "/a" || !errors.Is(r.Err, errExited) || r.Waited != time.Second {
				t.Errorf("%+v of %+v", r, a)
			}
		}
		o := newObservers([]Observer{{AcquireEnd: end}, {AcquireEnd: end, AcquireStart: func(context.Context, Acquire) context.Context {
			time.Sleep(time.Second)
			runtime.Goexit()
			return nil
		}}, {AcquireEnd: end}}, zap.NewNop())
		go o.startAcquire(t.Context(), Acquire{Path: "/a"})
		time.Sleep(time.Minute)
		synctest.Wait()
		if ends != 2 {
			t.Errorf("%d ends, want those of the two that heard of the beginning", ends)
		}
	})
}
