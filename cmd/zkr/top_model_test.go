package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/inspect"
)

var topBegan = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// topLine returns a line whose contenders are known by their numbers: the first
// holds. They joined one second after each other.
func topLine(path string, numbers ...int) inspect.Line {
	l := inspect.Line{Path: path, Exists: true, Recipe: "mutex"}
	for i, n := range numbers {
		c := inspect.Contender{
			Path: fmt.Sprintf("%s/%d", path, n), Holds: i == 0, Session: int64(n), Created: int64(n),
			Since: topBegan.Add(time.Duration(n) * time.Second), Data: []byte(fmt.Sprintf("owner %d", n)),
		}
		if c.Holds {
			l.Holders = append(l.Holders, c)
		} else {
			l.Waiting = append(l.Waiting, c)
		}
	}
	return l
}

func TestTopRow(t *testing.T) {
	var m topModel
	m.update(topBegan.Add(time.Minute), []inspect.Line{topLine("/a", 1, 2, 3)})
	got := m.rows(byWaiting, "")[0]
	want := topRow{Path: "/a", Recipe: "mutex", Holder: "owner 1", Holders: 1, HeldFor: 59, Waiting: 2, Oldest: 58, Sessions: 3, Detailed: true}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.held() != "<59s" { // its grant was not seen
		t.Errorf("held %s", got.held())
	}
	m.update(topBegan.Add(2*time.Minute), []inspect.Line{topLine("/a", 2, 3)})
	m.update(topBegan.Add(3*time.Minute), []inspect.Line{topLine("/a", 2, 3)})
	if got := m.rows(byWaiting, "")[0]; got.held() != "1m00s" || !got.HeldExact || got.Holder != "owner 2" || got.Oldest != 177 {
		t.Errorf("got %+v, held %s", got, got.held())
	}
	// Without details there is nothing that was not seen.
	bare := topLine("/b", 1, 2)
	bare.Holders[0] = inspect.Contender{Path: "/b/1", Holds: true}
	bare.Waiting[0] = inspect.Contender{Path: "/b/2"}
	m = topModel{}
	m.update(topBegan, []inspect.Line{bare})
	if got := m.rows(byWaiting, "")[0]; got.held() != "-" || got.sessions() != "-" || got.holder() != "-" || !got.AtLeast {
		t.Errorf("got %+v, held %s", got, got.held())
	}
}

// Grants are counted by the znodes that begin to hold, and averaged. A line that
// is seen for the first time, after the first look, was granted.
func TestTopGrants(t *testing.T) {
	var m topModel
	now := topBegan
	m.update(now, []inspect.Line{topLine("/a", 1)})
	if got := m.rows(byGrants, "")[0].Grants; got != 0 {
		t.Errorf("%v grants/s at first", got)
	}
	for n := 2; n < 200; n++ { // two a second
		now = now.Add(500 * time.Millisecond)
		m.update(now, []inspect.Line{topLine("/a", n), topLine("/still", 1000)})
	}
	rows := m.rows(byGrants, "")
	if got := rows[0]; got.Path != "/a" || math.Abs(got.Grants-2) > 0.1 {
		t.Errorf("got %+v", got)
	}
	if got := rows[1]; got.Grants > 0.01 || !got.HeldExact {
		t.Errorf("got %+v", got)
	}
	m.update(now.Add(time.Minute), []inspect.Line{topLine("/a", 199)})
	if got := m.rows(byGrants, "")[0].Grants; got > 0.1 {
		t.Errorf("%v grants/s a minute later", got)
	}
}

func TestTopOrderAndFilter(t *testing.T) {
	var m topModel
	m.update(topBegan, []inspect.Line{topLine("/a", 1), topLine("/b", 1, 2, 3), topLine("/c/x", 1, 2)})
	m.update(topBegan.Add(time.Second), []inspect.Line{topLine("/a", 5), topLine("/b", 1, 2, 3), topLine("/c/x", 1, 2)})
	for _, test := range []struct {
		by     topOrder
		filter string
		want   string
	}{
		{byWaiting, "", "/b /c/x /a"},
		{byGrants, "", "/a /b /c/x"},
		{byHeld, "", "/b /c/x /a"},
		{byPath, "", "/a /b /c/x"},
		{byWaiting, "c/", "/c/x"},
		{byWaiting, "none", ""},
	} {
		var got []string
		for _, r := range m.rows(test.by, test.filter) {
			got = append(got, r.Path)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("by %v with %q: %q, want %q", test.by, test.filter, got, test.want)
		}
	}
}

// Columns that have no room are left out, the least important first.
func TestTopColumns(t *testing.T) {
	for _, test := range []struct{ width, columns, first int }{
		{120, 7, 55}, {80, 6, 24}, {60, 4, 21}, {40, 3, 25}, {27, 2, 21}, {10, 1, 10}, {0, 1, 1},
	} {
		columns, first := columnsFor(test.width)
		if len(columns) != test.columns || first != test.first {
			t.Errorf("in %d: %d columns, the first has %d; want %d and %d", test.width, len(columns), first, test.columns, test.first)
		}
	}
}

func TestTopTexts(t *testing.T) {
	for _, test := range []struct {
		s    float64
		want string
	}{{0, "0s"}, {1.26, "1.3s"}, {61, "1m01s"}, {3600, "1h00m"}, {90000, "25h00m"}, {200000, "2d"}} {
		if got := seconds(test.s, true); got != test.want {
			t.Errorf("%v: %s, want %s", test.s, got, test.want)
		}
	}
	rows := []topRow{{Holders: 2, Limit: 3}, {Holders: 2}, {Holder: "\x1b[2J", Holders: 1}, {Sessions: 3, AtLeast: true}, {Sessions: 2}}
	got := []string{rows[0].holder(), rows[1].holder(), rows[2].holder(), rows[3].sessions(), rows[4].sessions()}
	if want := []string{"2 of 3 permits", "2 holders", `"\x1b[2J"`, "3+", "2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
