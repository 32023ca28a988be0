package page

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/look"
)

// TestWaitsFor: what the last of those that wait waits for, in places among
// holders and waiters.
func TestWaitsFor(t *testing.T) {
	of := func(modes ...string) (all []contender) {
		for _, mode := range modes {
			all = append(all, contender{Mode: mode})
		}
		return all
	}
	const r, w = "shared", "exclusive"
	for _, tt := range []struct {
		name             string
		semaphore        bool
		holders, waiters []contender
		want             []int
	}{
		{"the first writer waits for the holder", false, of(w), of(w), []int{0}},
		{"a writer waits for all readers", false, of(r, r), of(w), []int{0, 1}},
		{"a writer waits for who is before it", false, of(w), of(w, r, w), []int{2}},
		{"a reader waits for the holder", false, of(w), of(r), []int{0}},
		{"a reader waits for no reader", false, of(w), of(r, r), []int{0}},
		{"a reader waits for the last writer", false, of(r), of(w, w, r, r), []int{2}},
		{"for the last of the permits", true, of("", "", ""), of(""), []int{2}},
		{"for who is before it at the semaphore", true, of("", ""), of("", ""), []int{2}},
		{"nobody holds", false, nil, of(w), nil},
	} {
		if got := waitsFor(&line{Semaphore: tt.semaphore}, tt.holders, tt.waiters); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestNamesOfACycle: who cannot see the drawing hears it from the first one
// that waits around to it again.
func TestNamesOfACycle(t *testing.T) {
	c := cycle{Nodes: []node{{Title: "a"}, {Title: "/x"}, {Title: "b"}, {Title: "/y"}}}
	if got, want := c.Names(), "a waits for /x, held by b; b waits for /y, held by a"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestHas: a page is shown when the lines, and all that it names, were looked
// at.
func TestHas(t *testing.T) {
	none, things := settings{}, settings{named: []named{{kind: "counter"}}}
	var seen state
	seen.model.Update(look.Look{})
	for _, tt := range []struct {
		topic string
		page  settings
		state state
		at    time.Time // of the look at things
		want  bool
	}{
		{"", none, state{}, time.Time{}, false},
		{"", none, seen, time.Time{}, true},
		{"", things, seen, time.Time{}, false},
		{"", things, state{}, time.Unix(1, 0), false},
		{"", things, seen, time.Unix(1, 0), true},
		{"line", things, state{}, time.Time{}, false},
		{"line", things, seen, time.Time{}, true},
		{"ensemble", none, state{}, time.Time{}, false},
		{"deadlocks", none, state{}, time.Time{}, false},
		{"ensemble", none, state{err: errors.New("no connection")}, time.Time{}, true},
	} {
		p := &Page{settings: tt.page, shown: &tt.state, thingsAt: tt.at}
		if got, _ := p.has(tt.topic); got != tt.want {
			t.Errorf("%q with %d things, looked at %v, error %v: %v", tt.topic, len(tt.page.named), tt.at, tt.state.err, got)
		}
	}
}
