package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/inspect"
)

// topModel makes rows of the states that it is shown. It remembers from one state
// to the next who has held what.
type topModel struct {
	now   time.Time
	lines []inspect.Line
	seen  map[string]*topHistory // by path
}

// topHistory is what was seen of one line.
type topHistory struct {
	holders map[string]time.Time // by znode: when it was granted; zero: before the line was first seen
	grants  float64              // seen each second, lately
}

// lately is the time over which grants are averaged.
const lately = 10 * time.Second

// update shows the model the lines at a moment.
func (m *topModel) update(now time.Time, lines []inspect.Line) {
	first := m.seen == nil
	elapsed := now.Sub(m.now)
	seen := make(map[string]*topHistory, len(lines))
	for i := range lines {
		l := &lines[i]
		before := m.seen[l.Path]
		h := &topHistory{holders: make(map[string]time.Time, len(l.Holders))}
		granted := 0
		for _, c := range l.Holders {
			at, held := time.Time{}, first
			if before != nil {
				at, held = before.holders[c.Path], hasKey(before.holders, c.Path)
			}
			if !held {
				at = now
				granted++
			}
			h.holders[c.Path] = at
		}
		if before != nil {
			h.grants = before.grants
		}
		if !first && elapsed > 0 {
			keep := math.Exp(-elapsed.Seconds() / lately.Seconds())
			h.grants = h.grants*keep + float64(granted)/elapsed.Seconds()*(1-keep)
		}
		seen[l.Path] = h
	}
	m.now, m.lines, m.seen = now, lines, seen
}

func hasKey[V any](m map[string]V, key string) bool {
	_, ok := m[key]
	return ok
}

// topRow is what is shown of one line.
type topRow struct {
	Path      string  `json:"path"`
	Recipe    string  `json:"recipe"`
	Holder    string  `json:"holder"` // the data of the first holder
	Holders   int     `json:"holders"`
	Limit     int     `json:"max_leases,omitempty"`
	HeldFor   float64 `json:"held_s"`     // how long the first holder has held, in seconds
	HeldExact bool    `json:"held_exact"` // zkr saw the grant; otherwise it is the age of the znode, the time in line included
	Waiting   int     `json:"waiting"`
	Oldest    float64 `json:"oldest_s"` // how long the first waiter has been in line
	Grants    float64 `json:"grants_per_s"`
	Sessions  int     `json:"sessions"`           // different ones
	AtLeast   bool    `json:"at_least,omitempty"` // there may be more sessions: not all contenders were read
	Conflict  string  `json:"conflict,omitempty"` // see zkr inspect
	Detailed  bool    `json:"-"`                  // its contenders were read
}

func (m *topModel) row(l *inspect.Line) topRow {
	r := topRow{
		Path: l.Path, Recipe: l.Recipe, Holders: len(l.Holders), Limit: l.Limit, Waiting: len(l.Waiting),
		Grants: m.seen[l.Path].grants, Conflict: l.Conflict,
	}
	age := func(since time.Time) float64 { return max(0, m.now.Sub(since).Seconds()) }
	if len(l.Holders) > 0 {
		first := l.Holders[0]
		r.Holder = string(first.Data)
		if granted := m.seen[l.Path].holders[first.Path]; !granted.IsZero() {
			r.HeldFor, r.HeldExact = age(granted), true
		} else if !first.Since.IsZero() {
			r.HeldFor = age(first.Since)
		}
		r.Detailed = first.Created != 0
	}
	if len(l.Waiting) > 0 && !l.Waiting[0].Since.IsZero() {
		r.Oldest = age(l.Waiting[0].Since)
	}
	sessions := map[int64]bool{}
	for _, c := range slices.Concat(l.Holders, l.Waiting) {
		if c.Created != 0 {
			sessions[c.Session] = true
		} else {
			r.AtLeast = true
		}
	}
	r.Sessions = len(sessions)
	return r
}

// topOrder is what rows are sorted by.
type topOrder int

const (
	byWaiting topOrder = iota // the most contended first
	byGrants
	byHeld
	byPath
)

var topOrders = enumFlag[topOrder]{names: []string{"waiting", "grants", "held", "path"}, values: []topOrder{byWaiting, byGrants, byHeld, byPath}}

// rows returns the rows whose path contains a text, sorted.
func (m *topModel) rows(by topOrder, filter string) []topRow {
	var rows []topRow
	for i := range m.lines {
		if strings.Contains(m.lines[i].Path, filter) {
			rows = append(rows, m.row(&m.lines[i]))
		}
	}
	slices.SortStableFunc(rows, func(a, b topRow) int {
		order := 0
		switch by {
		case byWaiting:
			order = cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Grants, a.Grants))
		case byGrants:
			order = cmp.Compare(b.Grants, a.Grants)
		case byHeld:
			order = cmp.Compare(m.heldSince(a.Path), m.heldSince(b.Path))
		}
		return cmp.Or(order, cmp.Compare(a.Path, b.Path))
	})
	return rows
}

// heldSince returns when the line's first holder was seen to be granted, in a form
// to compare. Those that held from the beginning come first, and free lines last.
// It needs no details, which most lines do not have.
func (m *topModel) heldSince(path string) int64 {
	first := int64(math.MaxInt64)
	for _, at := range m.seen[path].holders {
		if at.IsZero() {
			return math.MinInt64
		}
		first = min(first, at.UnixNano())
	}
	return first
}

// line returns the line at a path, if it is there.
func (m *topModel) line(at string) *inspect.Line {
	for i := range m.lines {
		if m.lines[i].Path == at {
			return &m.lines[i]
		}
	}
	return nil
}

// waiting returns how many contenders wait in all.
func (m *topModel) waiting() int {
	sum := 0
	for i := range m.lines {
		sum += len(m.lines[i].Waiting)
	}
	return sum
}

// topColumn is a column of the table.
type topColumn struct {
	title string
	width int // 0: what is left
	text  func(r *topRow) string
}

// topColumns are in the order in which they are given up when there is no room,
// the last one first.
var topColumns = []topColumn{
	{"LOCK", 0, func(r *topRow) string { return printable(r.Path) }},
	{"WAIT", 6, func(r *topRow) string { return fmt.Sprint(r.Waiting) }},
	{"HELD", 9, func(r *topRow) string { return r.held() }},
	{"HOLDER", 24, func(r *topRow) string { return r.holder() }},
	{"OLDEST", 8, func(r *topRow) string { return seconds(r.Oldest, r.Detailed && r.Waiting > 0) }},
	{"GRANTS/s", 9, func(r *topRow) string { return fmt.Sprintf("%.1f", r.Grants) }},
	{"SESSIONS", 9, func(r *topRow) string { return r.sessions() }},
}

// narrowest is the least width of the column without one.
const narrowest = 20

// columnsFor returns the columns for a width, and the width of the first.
func columnsFor(width int) (columns []topColumn, first int) {
	columns = topColumns
	for {
		first = width
		for _, c := range columns[1:] {
			first -= c.width
		}
		if first >= narrowest || len(columns) == 1 {
			return columns, max(1, first)
		}
		columns = columns[:len(columns)-1]
	}
}

func (r *topRow) held() string {
	if !r.Detailed && !r.HeldExact {
		return "-"
	}
	text := seconds(r.HeldFor, r.Holders > 0)
	if !r.HeldExact && r.Holders > 0 {
		return "<" + text // it includes the time in line
	}
	return text
}

func (r *topRow) holder() string {
	switch {
	case r.Limit > 0:
		return fmt.Sprintf("%d of %d permits", r.Holders, r.Limit)
	case r.Holders > 1:
		return fmt.Sprintf("%d holders", r.Holders)
	default:
		return readable(r.Holder)
	}
}

func (r *topRow) sessions() string {
	switch {
	case r.Sessions == 0:
		return "-"
	case r.AtLeast:
		return fmt.Sprintf("%d+", r.Sessions)
	default:
		return fmt.Sprint(r.Sessions)
	}
}

// seconds shows a time in a few characters, and "-" if it is not known.
func seconds(s float64, known bool) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case !known:
		return "-"
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
