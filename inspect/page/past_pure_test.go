package page

import (
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// TestPastIsBounded: of one lock few events are remembered, however many are
// counted.
func TestPastIsBounded(t *testing.T) {
	w, began := NewWatch(), time.Now()
	for i := range 1000 {
		w.noteLocked(recipes.Acquire{Path: "/app/x"}, event{At: began.Add(time.Duration(i)), kind: granted})
		one := w.pasts["/app/x"]
		if size, want := len(one.events), min(i+1, mostEvents); size < want || size > 2*mostEvents {
			t.Fatalf("%d events are remembered of %d", size, i+1)
		}
	}
	one := w.pasts["/app/x"]
	if last := one.events[len(one.events)-1].At; one.granted != 1000 || !last.Equal(began.Add(999)) {
		t.Errorf("granted %d times, the last at %v", one.granted, last)
	}
	if b := one.body(); !b.Since.Equal(began) {
		t.Errorf("since %v, want %v", b.Since, began)
	}
}

// TestPastOfAHeldLock: the past of a lock that is held is not forgotten, and a
// lock that was forgotten is counted from its next event on.
func TestPastOfAHeldLock(t *testing.T) {
	w, began := NewWatch(), time.Now()
	note := func(path string, at time.Duration) {
		w.noteLocked(recipes.Acquire{Path: path}, event{At: began.Add(at), kind: granted})
		w.pasts[path].used = began.Add(at)
	}
	for i := range 2 * mostPasts { // each is held
		path := fmt.Sprint("/held/", i)
		w.leases[recipes.Grant{Znode: path}] = &leased{Acquire: recipes.Acquire{Path: path}}
		note(path, 0)
	}
	for i := range 2 * mostPasts {
		note(fmt.Sprint("/free/", i), time.Duration(i+1))
	}
	if len(w.pasts) != 3*mostPasts {
		t.Errorf("%d locks are remembered", len(w.pasts))
	}
	for i := range 2 * mostPasts {
		if w.pasts[fmt.Sprint("/held/", i)] == nil {
			t.Errorf("/held/%d is forgotten", i)
		}
		if got, want := w.pasts[fmt.Sprint("/free/", i)] != nil, i >= mostPasts; got != want {
			t.Errorf("/free/%d is remembered: %v", i, got)
		}
	}
	clear(w.leases)
	note("/free/0", time.Hour)
	if one := w.pasts["/free/0"]; len(w.pasts) != mostPasts || one.granted != 1 || !one.since.Equal(began.Add(time.Hour)) {
		t.Errorf("of %d locks: granted %d times since %v", len(w.pasts), one.granted, one.since)
	}
}

// TestRounded: a long time is shown to the second, a short one as exactly as
// anybody reads it.
func TestRounded(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1234: "1.23µs", 12345678: "12.3ms", 1234567890: "1.23s", 59876 * time.Millisecond: "59.9s",
		28*time.Hour + 3*time.Minute + 14*time.Second + 159*time.Millisecond: "28h3m14s", 17*time.Minute + 1600*time.Millisecond: "17m2s",
	} {
		if got := rounded(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}
