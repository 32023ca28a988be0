package look

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
func lookAt(at time.Time, lines ...inspect.Line) Look {
	counts := map[string]childCount{}
	for _, l := range lines {
		created := int32(0)
		for _, c := range slices.Concat(l.Holders, l.Waiting) {
			created = max(created, int32(c.Created))
		}
		here := int32(len(l.Holders) + len(l.Waiting))
		counts[l.Path] = childCount{directory: version.Created{Czxid: 1}, changes: 2*created - here, children: here}
	}
	look := Look{Forest: inspect.Forest{Exists: true, Lines: lines}, counts: counts, stands: map[string]stand{}, At: at, Current: true}
	for i := range lines {
		look.stands[lines[i].Path] = standOf(&lines[i], counts)
	}
	return look
}

func TestRow(t *testing.T) {
	var m Model
	m.Update(lookAt(topBegan.Add(time.Minute), topLine("/a", 1, 2, 3)))
	got := m.Rows(ByWaiting, "")[0]
	want := Row{Path: "/a", Recipe: "mutex", Holder: "owner 1", Holders: 1, HeldFor: 59, Waiting: 2, Oldest: 58, Sessions: 3, detailed: true, aged: true}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.HeldText() != "<59s" { // its grant was not seen
		t.Errorf("held %s", got.HeldText())
	}
	m.Update(lookAt(topBegan.Add(2*time.Minute), topLine("/a", 2, 3)))
	m.Update(lookAt(topBegan.Add(3*time.Minute), topLine("/a", 2, 3)))
	if got := m.Rows(ByWaiting, "")[0]; got.HeldText() != "1m00s" || !got.HeldExact || got.Holder != "owner 2" || got.Oldest != 177 {
		t.Errorf("got %+v, held %s", got, got.HeldText())
	}
	// Without details there is nothing that was not seen.
	bare := topLine("/b", 1, 2)
	bare.Holders[0] = inspect.Contender{Path: "/b/1", Holds: true}
	bare.Waiting[0] = inspect.Contender{Path: "/b/2"}
	m = Model{}
	m.Update(lookAt(topBegan, bare))
	if got := m.Rows(ByWaiting, "")[0]; got.HeldText() != "-" || got.SessionsText() != "-" || got.HolderText() != "-" || !got.AtLeast {
		t.Errorf("got %+v, held %s", got, got.HeldText())
	}
}

// Grants are counted by the znodes that begin to hold, and averaged. A line
// that is seen for the first time, after the first look, was granted.
func TestGrants(t *testing.T) {
	var m Model
	now := topBegan
	m.Update(lookAt(now, topLine("/a", 1)))
	if got := m.Rows(ByGrants, "")[0].Grants; got != 0 {
		t.Errorf("%v grants/s at first", got)
	}
	for n := 2; n < 200; n++ { // two a second
		now = now.Add(500 * time.Millisecond)
		m.Update(lookAt(now, topLine("/a", n), topLine("/still", 1000)))
	}
	rows := m.Rows(ByGrants, "")
	if got := rows[0]; got.Path != "/a" || math.Abs(got.Grants-2) > 0.1 {
		t.Errorf("got %+v", got)
	}
	if got := rows[1]; got.Grants > 0.01 || !got.HeldExact {
		t.Errorf("got %+v", got)
	}
	m.Update(lookAt(now.Add(time.Minute), topLine("/a", 199)))
	if got := m.Rows(ByGrants, "")[0].Grants; got > 0.1 {
		t.Errorf("%v grants/s a minute later", got)
	}
}

func TestOrderAndFilter(t *testing.T) {
	var m Model
	m.Update(lookAt(topBegan.Add(time.Minute), topLine("/a", 1), topLine("/b", 1, 2, 3), topLine("/c/x", 1, 2)))
	m.Update(lookAt(topBegan.Add(61*time.Second), topLine("/a", 5), topLine("/b", 1, 2, 3), topLine("/c/x", 1, 2)))
	for _, test := range []struct {
		by     Order
		filter string
		want   string
	}{
		{ByWaiting, "", "/b /c/x /a"},
		{ByGrants, "", "/a /b /c/x"},
		{ByHeld, "", "/b /c/x /a"},
		{ByOldest, "", "/b /c/x /a"},
		{ByPath, "", "/a /b /c/x"},
		{ByWaiting, "c/", "/c/x"},
		{ByWaiting, "none", ""},
	} {
		var got []string
		for _, r := range m.Rows(test.by, test.filter) {
			got = append(got, r.Path)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("by %v with %q: %q, want %q", test.by, test.filter, got, test.want)
		}
	}
}

// TestByAge: lines of which not all were read are ordered by what is known of
// their ages. Those that were held at the first look are held for the longest
// time, and of these the ones that were read come first.
func TestByAge(t *testing.T) {
	unread := func(path string, waiting int) inspect.Line {
		l := inspect.Line{Path: path, Holders: []inspect.Contender{{Path: path + "/1", Holds: true}}}
		for i := range waiting {
			l.Waiting = append(l.Waiting, inspect.Contender{Path: fmt.Sprint(path, "/", 2+i)})
		}
		return l
	}
	var m Model
	old := []inspect.Line{topLine("/read/late", 9), topLine("/read/soon", 3), unread("/unread", 0), unread("/unread-2", 2)}
	m.Update(lookAt(topBegan.Add(time.Minute), append(old, topLine("/seen", 1, 2), topLine("/seen-2", 1, 2))...))
	m.Update(lookAt(topBegan.Add(2*time.Minute), append(old, topLine("/seen", 2), topLine("/seen-2", 1, 2))...))
	free := inspect.Line{Path: "/free", Waiting: []inspect.Contender{{Path: "/free/1"}}}
	m.Update(lookAt(topBegan.Add(3*time.Minute), append(old, topLine("/seen", 2), topLine("/seen-2", 2, 3, 4), free)...))
	for by, want := range map[Order]string{
		ByAge:           "/read/soon /read/late /unread /unread-2 /seen /seen-2 /free",
		ByWaitingAndAge: "/unread-2 /seen-2 /free /read/soon /read/late /unread /seen",
	} {
		var got, known []string
		for _, r := range m.Rows(by, "") {
			got = append(got, r.Path)
			if r.AgeKnown() {
				known = append(known, r.Path)
			}
		}
		if strings.Join(got, " ") != want || len(known) != 5 {
			t.Errorf("by %v: %q, want %q; ages known of %q", by, got, want, known)
		}
	}
}

func TestTexts(t *testing.T) {
	for _, test := range []struct {
		s    float64
		want string
	}{{0, "0s"}, {1.26, "1.3s"}, {61, "1m01s"}, {3600, "1h00m"}, {90000, "25h00m"}, {200000, "2d"}} {
		if got := Seconds(test.s, true); got != test.want {
			t.Errorf("%v: %s, want %s", test.s, got, test.want)
		}
	}
	rows := []Row{{Holders: 2, Limit: 3}, {Holders: 2, semaphore: true}, {Holders: 2}, {Holders: 1, Holder: "__REVOKE__"}, {Holder: "\x1b[2J", Holders: 1}, {Sessions: 3, AtLeast: true}, {Sessions: 2}}
	var got []string
	for _, r := range rows {
		if r.Sessions > 0 {
			got = append(got, r.SessionsText())
		} else {
			got = append(got, r.HolderText())
		}
	}
	if want := []string{"2 of 3 permits", "2 permits", "2 holders", "asked to release", `"\x1b[2J"`, "3+", "2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
