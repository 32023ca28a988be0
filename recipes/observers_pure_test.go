package recipes

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

	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// Recipes describe leases if an observer has any function for them.
func TestWantLeases(t *testing.T) {
	wanted := []string{"AcquireStart", "AcquireEnd", "Released", "Lost", "LostReleased", "Overran", "Revoked"}
	kind := reflect.TypeFor[Observer]()
	for i := range kind.NumField() {
		var one Observer
		name, field := kind.Field(i).Name, reflect.ValueOf(&one).Elem().Field(i)
		field.Set(reflect.MakeFunc(field.Type(), func([]reflect.Value) []reflect.Value { return nil }))
		if want, got := slices.Contains(wanted, name), queued(Observer{}, one).wantLeases(); got != want {
			t.Errorf("with %s alone: %t, want %t", name, got, want)
		}
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
					tt.tell(queued(all...))
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
			if ends++; a.Path != "/a" || !errors.Is(r.Err, errObserverExited) || r.Waited != time.Second {
				t.Errorf("%+v of %+v", r, a)
			}
		}
		o := queued(Observer{AcquireEnd: end}, Observer{AcquireEnd: end, AcquireStart: func(context.Context, Acquire) context.Context {
			time.Sleep(time.Second)
			runtime.Goexit()
			return nil
		}}, Observer{AcquireEnd: end})
		go o.startAcquire(t.Context(), Acquire{Path: "/a"})
		time.Sleep(time.Minute)
		synctest.Wait()
		if ends != 2 {
			t.Errorf("%d ends, want those of the two that heard of the beginning", ends)
		}
	})
}

// queued returns observers that have a queue each.
func queued(all ...Observer) (list observerList) {
	for _, o := range all {
		list = append(list, managed.Observed[Observer]{By: &o, Events: supplied.NewQueue(1, 1, zap.NewNop(), nil)})
	}
	return list
}
