package live

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/version"
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

// lookAt returns a look at lines of topLine. Of each line, as many contenders
// were created as the greatest number says.
func lookAt(at time.Time, lines ...inspect.Line) topLook {
	counts := map[string]childCount{}
	for _, l := range lines {
		created := int32(0)
		for _, c := range slices.Concat(l.Holders, l.Waiting) {
			created = max(created, int32(c.Created))
		}
		here := int32(len(l.Holders) + len(l.Waiting))
		counts[l.Path] = childCount{directory: version.Created{Czxid: 1}, changes: 2*created - here, children: here}
	}
	look := topLook{Forest: inspect.Forest{Exists: true, Lines: lines}, counts: counts, stands: map[string]stand{}, at: at, current: true}
	for i := range lines {
		look.stands[lines[i].Path] = standOf(&lines[i], counts)
	}
	return look
}

func TestTopRow(t *testing.T) {
	var m topModel
	m.update(lookAt(topBegan.Add(time.Minute), topLine("/a", 1, 2, 3)))
	got := m.rows(byWaiting, "")[0]
	want := topRow{Path: "/a", Recipe: "mutex", Holder: "owner 1", Holders: 1, HeldFor: 59, Waiting: 2, Oldest: 58, Sessions: 3, detailed: true, aged: true}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.held() != "<59s" { // its grant was not seen
		t.Errorf("held %s", got.held())
	}
	m.update(lookAt(topBegan.Add(2*time.Minute), topLine("/a", 2, 3)))
	m.update(lookAt(topBegan.Add(3*time.Minute), topLine("/a", 2, 3)))
	if got := m.rows(byWaiting, "")[0]; got.held() != "1m00s" || !got.HeldExact || got.Holder != "owner 2" || got.Oldest != 177 {
		t.Errorf("got %+v, held %s", got, got.held())
	}
	// Without details there is nothing that was not seen.
	bare := topLine("/b", 1, 2)
	bare.Holders[0] = inspect.Contender{Path: "/b/1", Holds: true}
	bare.Waiting[0] = inspect.Contender{Path: "/b/2"}
	m = topModel{}
	m.update(lookAt(topBegan, bare))
	if got := m.rows(byWaiting, "")[0]; got.held() != "-" || got.sessions() != "-" || got.holder() != "-" || !got.AtLeast {
		t.Errorf("got %+v, held %s", got, got.held())
	}
}

// Grants are counted by the znodes that begin to hold, and averaged. A line
// that is seen for the first time, after the first look, was granted.
func TestTopGrants(t *testing.T) {
	var m topModel
	now := topBegan
	m.update(lookAt(now, topLine("/a", 1)))
	if got := m.rows(byGrants, "")[0].Grants; got != 0 {
		t.Errorf("%v grants/s at first", got)
	}
	for n := 2; n < 200; n++ { // two a second
		now = now.Add(500 * time.Millisecond)
		m.update(lookAt(now, topLine("/a", n), topLine("/still", 1000)))
	}
	rows := m.rows(byGrants, "")
	if got := rows[0]; got.Path != "/a" || math.Abs(got.Grants-2) > 0.1 {
		t.Errorf("got %+v", got)
	}
	if got := rows[1]; got.Grants > 0.01 || !got.HeldExact {
		t.Errorf("got %+v", got)
	}
	m.update(lookAt(now.Add(time.Minute), topLine("/a", 199)))
	if got := m.rows(byGrants, "")[0].Grants; got > 0.1 {
		t.Errorf("%v grants/s a minute later", got)
	}
}

func TestTopOrderAndFilter(t *testing.T) {
	var m topModel
	m.update(lookAt(topBegan.Add(time.Minute), topLine("/a", 1), topLine("/b", 1, 2, 3), topLine("/c/x", 1, 2)))
	m.update(lookAt(topBegan.Add(61*time.Second), topLine("/a", 5), topLine("/b", 1, 2, 3), topLine("/c/x", 1, 2)))
	for _, test := range []struct {
		by     topOrder
		filter string
		want   string
	}{
		{byWaiting, "", "/b /c/x /a"},
		{byGrants, "", "/a /b /c/x"},
		{byHeld, "", "/b /c/x /a"},
		{byOldest, "", "/b /c/x /a"},
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

// Wide columns shrink before any column is left out, and are the first to go.
func TestTopColumns(t *testing.T) {
	for _, test := range []struct {
		width, longest int
		want           string
	}{
		{140, 10, "LOCK 54 WAIT 6 HELD 9 HOLDER 28 HOST 17 OLDEST 8 GRANTS/s 9 SESSIONS 9"},
		{100, 0, "LOCK 20 WAIT 6 HELD 9 HOLDER 22 HOST 17 OLDEST 8 GRANTS/s 9 SESSIONS 9"},
		{100, 35, "LOCK 36 WAIT 6 HELD 9 HOLDER 11 HOST 12 OLDEST 8 GRANTS/s 9 SESSIONS 9"},
		{100, 200, "LOCK 40 WAIT 6 HELD 9 HOLDER 11 HOST 8 OLDEST 8 GRANTS/s 9 SESSIONS 9"},
		{80, 0, "LOCK 20 WAIT 6 HELD 9 HOLDER 11 HOST 8 OLDEST 8 GRANTS/s 9 SESSIONS 9"},
		{79, 0, "LOCK 20 WAIT 6 HELD 9 HOLDER 18 OLDEST 8 GRANTS/s 9 SESSIONS 9"},
		{71, 0, "LOCK 30 WAIT 6 HELD 9 OLDEST 8 GRANTS/s 9 SESSIONS 9"},
		{60, 0, "LOCK 28 WAIT 6 HELD 9 OLDEST 8 GRANTS/s 9"},
		{50, 0, "LOCK 26 WAIT 6 HELD 9 GRANTS/s 9"},
		{40, 0, "LOCK 25 WAIT 6 HELD 9"},
		{27, 0, "LOCK 21 WAIT 6"},
		{10, 0, "LOCK 10"},
		{0, 0, "LOCK 1"},
	} {
		columns, first := columnsFor(test.width, test.longest)
		columns[0].width = first
		var got []string
		for _, c := range columns {
			got = append(got, c.title, fmt.Sprint(c.width))
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("in %d: %s, want %s", test.width, text, test.want)
		}
	}
	if len(leftOut) != len(topColumns)-1 || topColumns[3].width != 28 {
		t.Error("a column is never left out, or has changed for good")
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
	for _, test := range []struct {
		path string
		room int
		want string
	}{{"/a/b", 4, "/a/b"}, {"/long/path/1", 8, "…/path/1"}, {"/größe/1", 4, "…e/1"}, {"/ab", 1, "/ab"}} {
		if got := tail(test.path, test.room); got != test.want {
			t.Errorf("%s in %d: %s, want %s", test.path, test.room, got, test.want)
		}
	}
	rows := []topRow{{Holders: 2, Limit: 3}, {Holders: 2, semaphore: true}, {Holders: 2}, {Holders: 1, Holder: "__REVOKE__"}, {Holder: "\x1b[2J", Holders: 1}, {Sessions: 3, AtLeast: true}, {Sessions: 2}}
	var got []string
	for _, r := range rows {
		if r.Sessions > 0 {
			got = append(got, r.sessions())
		} else {
			got = append(got, r.holder())
		}
	}
	if want := []string{"2 of 3 permits", "2 permits", "2 holders", "asked to release", `"\x1b[2J"`, "3+", "2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
