package measure_test

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// README.md says how long an outage a lease survives, with the default options
// in a quick network: settled when it is older than young, and fresh before.
const (
	young   = 3500 * time.Millisecond
	settled = 4000 * time.Millisecond
	fresh   = 2300 * time.Millisecond
	phases  = 12 // of the idle client's pings
)

// acquired calls f with a lease of a client that was idle before, in each phase
// of its pings.
func acquired(t *testing.T, f func(t *testing.T, w *bubble.World, lease *recipes.Lease)) {
	for phase := range time.Duration(phases) {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c := w.Connect("a", framework.WithSessionTimeout(framework.DefaultSessionTimeout))
			time.Sleep(time.Minute + phase*framework.DefaultSessionTimeout/3/phases)
			m, err := locks.NewMutex(c, "/outage")
			if err != nil {
				t.Fatal(err)
			}
			lease, err := m.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			f(t, w, lease)
			_ = lease.Release(t.Context()) // lost, where the outage was longer
		}, testutil.WithMembers(3))
	}
}

// The time until a lease is declared lost never falls below what README.md
// says, and it comes close to that. The time between heartbeats is rounded up
// to a nanosecond, and the oldest contact is three of them old.
func TestOutageThatALeaseSurvives(t *testing.T) {
	const margin = framework.DefaultSessionTimeout / 10
	leastFresh, leastSettled := time.Hour, time.Hour
	acquired(t, func(t *testing.T, _ *bubble.World, lease *recipes.Lease) {
		for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(7 * time.Millisecond) {
			left := time.Until(lease.Deadline()) - margin
			if time.Since(begin) < young {
				leastFresh = min(leastFresh, left)
			} else {
				leastSettled = min(leastSettled, left)
			}
		}
	})
	const near, rounded = 100 * time.Millisecond, 3 * time.Nanosecond
	if leastFresh < fresh || leastFresh > fresh+near {
		t.Errorf("a fresh lease survives %v, README.md says %v", leastFresh, fresh)
	}
	if leastSettled < settled-rounded || leastSettled > settled+near {
		t.Errorf("a lease survives %v, README.md says %v", leastSettled, settled)
	}
}

// A lease outlives a disconnect that is a little shorter than that, and is lost
// in one that is longer than the session timeout.
func TestDisconnectThatALeaseSurvives(t *testing.T) {
	for _, test := range []struct {
		age, outage time.Duration
		held        bool
	}{
		{time.Second, fresh - 200*time.Millisecond, true},
		{young, settled - 200*time.Millisecond, true},
		{time.Minute, settled - 200*time.Millisecond, true},
		{time.Minute, framework.DefaultSessionTimeout, false},
	} {
		acquired(t, func(t *testing.T, w *bubble.World, lease *recipes.Lease) {
			time.Sleep(test.age)
			w.ClientNet("a").Cut()
			time.Sleep(test.outage)
			w.ClientNet("a").Heal()
			time.Sleep(time.Minute)
			if lease.Held() != test.held {
				t.Errorf("age %v, disconnected for %v: held: %v", test.age, test.outage, lease.Held())
			}
		})
	}
}
