package locks_test

import (
	"maps"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Who is never followed by himself, though he always finds nobody there, takes the
// list along all the time: he has one round trip to wait for, and no watch.
func TestTakingTurnsCostsNoSecondRoundTrip(t *testing.T) {
	const way = 10 * time.Millisecond
	for _, test := range []struct {
		name  string
		takes func(t *testing.T, w *world) [2]recipes.Acquirer
	}{
		{"two processes", func(_ *testing.T, w *world) [2]recipes.Acquirer {
			return [2]recipes.Acquirer{w.mutex(w.client("a")), w.mutex(w.client("b"))}
		}},
		{"a reader and a writer", func(t *testing.T, w *world) [2]recipes.Acquirer {
			rw, err := rwlock.New(w.client("a"), lockPath)
			if err != nil {
				t.Fatal(err)
			}
			return [2]recipes.Acquirer{rw.Reader(), rw.Writer()}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				both := test.takes(t, w)
				release(t, acquire(t, t.Context(), both[0])) // makes the path
				w.Latency(way)
				for i := range 60 {
					began := time.Now()
					l := acquire(t, t.Context(), both[i%2])
					if took := time.Since(began); took != 2*way {
						t.Errorf("cycle %d: %v", i, took)
					}
					release(t, l)
				}
				if got := w.Watches(); len(got) > 0 {
					t.Errorf("watches: %v", got)
				}
				w.empty()
			})
		})
	}
}

// It is the process that is regular, whatever the values that it makes.
func TestAllValuesOfALockAreRegular(t *testing.T) {
	for _, test := range []struct {
		name  string
		value func(t *testing.T, w *world) func() recipes.Acquirer
	}{
		{"a new mutex each time", func(_ *testing.T, w *world) func() recipes.Acquirer {
			c := w.client("a")
			return func() recipes.Acquirer { return w.mutex(c) }
		}},
		{"by its key", func(t *testing.T, w *world) func() recipes.Acquirer {
			keyed, err := locks.NewKeyed(w.client("a"), "/app")
			if err != nil {
				t.Fatal(err)
			}
			return func() recipes.Acquirer { return keyed.Key("lock") }
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				value := test.value(t, w)
				for range 10 {
					release(t, acquire(t, t.Context(), value()))
				}
				w.recount()
				for range 10 {
					release(t, acquire(t, t.Context(), value()))
				}
				want := map[testutil.Op]int{testutil.OpCreate: 10, testutil.OpDelete: 10}
				if got := without(w.Requests(), testutil.OpSync); !maps.Equal(got, want) {
					t.Errorf("requests: %v, want %v", got, want)
				}
			})
		})
	}
}

// One who is followed by himself for a while, and then is not, has a second round trip
// once, and begins anew.
func TestOneSurpriseCostsOneRoundTrip(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const way = 10 * time.Millisecond
		a, b := w.mutex(w.client("a")), w.mutex(w.client("b"))
		late := 0
		for range 20 {
			for range 15 {
				release(t, acquire(t, t.Context(), a))
			}
			release(t, acquire(t, t.Context(), b))
			w.Latency(way)
			for range 5 {
				began := time.Now()
				l := acquire(t, t.Context(), a)
				if time.Since(began) != 2*way {
					late++
				}
				release(t, l)
			}
			w.Latency(0)
		}
		if late != 20 {
			t.Errorf("%d second round trips, want one for each of 20 surprises", late)
		}
		w.empty()
	})
}

// A directory whose data change all the time is not watched all the time.
func TestADirectoryThatChangesIsWatchedNowAndThen(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		m, other := w.mutex(w.client("a")), w.client("b")
		release(t, acquire(t, t.Context(), m)) // makes the path
		w.recount()
		const cycles = 90
		for range cycles {
			release(t, acquire(t, t.Context(), m))
			if _, err := other.Set(t.Context(), lockPath, nil, -1); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.Requests()[testutil.OpGetData]; n == 0 || n > cycles/8 {
			t.Errorf("%d looks at the directory in %d cycles", n, cycles)
		}
		w.empty()
	})
}
