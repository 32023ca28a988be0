package discovery_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// An instance that goes on failing stays out: the half minute counts from its
// latest failure.
func TestAnInstanceThatGoesOnFailing(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		d := open(t, w.ConnectNext())
		register(t, d, a("x"))
		s := billing(t, d)
		one, err := s.Pick(t.Context())
		must(t, err)
		one.Failed()
		for i := range 10 {
			time.Sleep(25 * time.Second)
			one.Failed()
			for range 2 {
				if got := s.Status().Failed; got != 1 {
					t.Fatalf("round %d: %d are out", i, got)
				}
				time.Sleep(2 * time.Second)
			}
		}
		time.Sleep(30 * time.Second)
		if got := s.Status().Failed; got != 0 {
			t.Errorf("%d are out for good", got)
		}
	})
}

// A Service forgets the failures of instances that are gone.
func TestFailuresAreForgotten(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		d := open(t, w.ConnectNext())
		s := billing(t, d)
		fail := func(times int) bubble.Census {
			for i := range times {
				r := register(t, d, instance{Name: "billing", ID: fmt.Sprint("i", i)})
				var one discovery.Picked[string]
				bubble.AwaitTrue(t, "the instance", func() (ok bool) {
					var err error
					one, err = s.Pick(t.Context())
					return err == nil
				})
				one.Failed()
				must(t, r.Close(t.Context()))
				time.Sleep(time.Minute)
			}
			return w.Count(s)
		}
		before := fail(5)
		if grown := fail(40).Grown(before, 10); len(grown) > 0 {
			t.Errorf("left behind: %v", grown)
		}
	})
}

// A persistent instance is Closed since the first Close.
func TestTheTimeOfTheFirstClose(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		r := register(t, open(t, w.ConnectNext()), instance{Name: "billing", ID: "a", Type: discovery.Static})
		time.Sleep(time.Minute)
		closed := time.Now()
		for range 2 {
			must(t, r.Close(t.Context()))
			if s := r.Status(); s.State != presence.Closed || s.Since.Sub(closed).Abs() > time.Second {
				t.Errorf("%v since %v, closed at %v", s.State, s.Since, closed)
			}
			time.Sleep(time.Minute)
		}
	})
}
