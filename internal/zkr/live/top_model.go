package live

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// topModel makes rows of the states that it is shown. It remembers from one
// state to the next who has held what.
type topModel struct {
	now    time.Time
	lines  []inspect.Line
	free   []inspect.Line // nobody is in line now, but somebody was granted lately
	seen   map[string]*topHistory
	counts map[string]childCount
	newest int64   // the greatest czxid of a directory that was seen
	weight float64 // how much of the average of grants was seen: 0 after the first look, and soon almost 1
}

// topHistory is what was seen of a directory, which may be that of a line.
type topHistory struct {
	recipe    string // empty: nobody was seen in line
	semaphore bool
	holders   map[string]time.Time // by znode: when it was granted; zero: before the line was first seen
	stand     stand
	grants    float64 // seen each second, lately, as if there had been none before zkr looked
}

// lately is the time over which grants are averaged.
const lately = 10 * time.Second

// rarely is how many grants a second show a line that nobody is in.
const rarely = 0.05

// update shows the model what a look has found.
func (m *topModel) update(look topLook) {
	first, elapsed := m.seen == nil, max(0, look.at.Sub(m.now).Seconds())
	keep, each := 1.0, 0.0 // what is left of the average, and what a grant adds to it
	if !first {
		keep, each = math.Exp(-elapsed/lately.Seconds()), 1/lately.Seconds()
		if elapsed > 0 {
			each = (1 - keep) / elapsed
		}
	}
	lines := make(map[string]*inspect.Line, len(look.Lines))
	for i := range look.Lines {
		lines[look.Lines[i].Path] = &look.Lines[i]
	}
	m.weight = m.weight*keep + 1 - keep
	m.free = nil
	seen, newest := make(map[string]*topHistory, len(look.counts)), m.newest
	for path, t := range look.counts {
		newest = max(newest, t.directory.Czxid)
		l, before := lines[path], m.seen[path]
		h := m.see(l, before, look.at)
		dir := granting(path, h.semaphore, look.counts)
		now := look.counts[dir]
		if st, ok := look.stands[path]; ok {
			h.stand = st
		} else {
			h.stand.turn = turnOf(nil, now)
		}
		earlier, ok := m.counts[dir]
		if ok = ok && earlier.directory == now.directory && before != nil; !ok && !first && now.directory.Czxid > m.newest { // it was created since
			earlier, before, ok = childCount{}, &topHistory{stand: stand{turn: atFirst}}, true
		}
		if ok {
			h.grants = h.grants*keep + float64(granted(h, before, now, earlier))*each
		}
		if l == nil && h.recipe != "" && m.rate(h) >= rarely {
			m.free = append(m.free, inspect.Line{Path: path, Exists: true, Recipe: h.recipe, Semaphore: h.semaphore})
		}
		seen[path] = h
	}
	m.now, m.lines, m.seen, m.counts, m.newest = look.at, look.Lines, seen, look.counts, newest
}

// see returns the history of a directory after one more look. l is nil if it
// has nobody in line, and before is nil if it was not there in the look before.
func (m *topModel) see(l *inspect.Line, before *topHistory, at time.Time) *topHistory {
	h := &topHistory{}
	if before != nil {
		h.recipe, h.semaphore, h.grants = before.recipe, before.semaphore, before.grants
	}
	if l == nil {
		return h
	}
	h.recipe, h.semaphore, h.holders = l.Recipe, l.Semaphore, make(map[string]time.Time, len(l.Holders))
	for _, c := range l.Holders {
		since, held := time.Time{}, m.seen == nil
		if before != nil {
			since, held = before.holders[c.Path], hasKey(before.holders, c.Path)
		}
		if !held {
			since = at
		}
		h.holders[c.Path] = since
	}
	return h
}

// rate returns the grants per second of a line, 0 if there was only one look.
func (m *topModel) rate(h *topHistory) float64 {
	if m.weight == 0 {
		return 0
	}
	return h.grants / m.weight
}

func hasKey[V any](m map[string]V, key string) bool {
	_, ok := m[key]
	return ok
}

// topRow is what is shown of one line.
type topRow struct {
	Path      string  `json:"path"`
	Recipe    string  `json:"recipe"`
	Holder    string  `json:"holder"`                     // the data of the first holder
	Host      string  `json:"host,omitempty"`             // of the first holder, if its znode says it
	Asked     bool    `json:"asked_to_release,omitempty"` // the first holder
	Holders   int     `json:"holders"`                    // of a semaphore: the permits that are held
	Limit     int     `json:"max_leases,omitempty"`
	HeldFor   float64 `json:"held_s"`     // how long the first holder has held, in seconds
	HeldExact bool    `json:"held_exact"` // zkr saw the grant; otherwise it is the age of the znode, the time in line included
	Waiting   int     `json:"waiting"`
	Oldest    float64 `json:"oldest_s"` // how long the first waiter has been in line
	Grants    float64 `json:"grants_per_s"`
	Sessions  int     `json:"sessions"`           // different ones
	AtLeast   bool    `json:"at_least,omitempty"` // there may be more sessions: not all contenders were read
	Conflict  string  `json:"conflict,omitempty"` // see zkr inspect

	semaphore bool
	rated     bool // Grants is known
	detailed  bool // its first holder was read
	aged      bool // Oldest is known
}

func (m *topModel) row(l *inspect.Line) topRow {
	h := m.seen[l.Path]
	r := topRow{
		Path: l.Path, Recipe: l.Recipe, Holders: len(l.Holders), Limit: l.Limit, Waiting: len(l.Waiting),
		Conflict: l.Conflict, semaphore: l.Semaphore, rated: m.weight > 0,
	}
	if h != nil { // else the line was not listed in the last look
		r.Grants = m.rate(h)
	}
	age := func(since time.Time) float64 { return max(0, m.now.Sub(since).Seconds()) }
	if len(l.Holders) > 0 {
		first := &l.Holders[0]
		r.Holder, r.Host, r.Asked = string(first.Data), hostOf(first), identity.IsRequest(first.Data)
		if h != nil && !h.holders[first.Path].IsZero() {
			r.HeldFor, r.HeldExact = age(h.holders[first.Path]), true
		} else if !first.Since.IsZero() {
			r.HeldFor = age(first.Since)
		}
		r.detailed = first.Created != 0
	}
	if len(l.Waiting) > 0 && !l.Waiting[0].Since.IsZero() {
		r.Oldest, r.aged = age(l.Waiting[0].Since), true
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

// hostOf returns the host of a contender as its znode says it, or "". Its data
// has the host if this module has written it, and the address if Curator has.
// The names of plain read/write locks have the host.
func hostOf(c *inspect.Contender) string {
	if host := identity.Parse(c.Data).Host; host != "" {
		return host
	}
	if address, err := netip.ParseAddr(string(c.Data)); err == nil {
		return address.String()
	}
	if node, ok := layout.Parse(path.Base(c.Path)); ok && node.Family == layout.PlainRW {
		host, _ := strings.CutSuffix(strings.TrimSuffix(strings.TrimSuffix(node.Base, "R-"), "W-"), "-")
		return host
	}
	return ""
}

// topOrder is what rows are sorted by.
type topOrder int

const (
	byWaiting topOrder = iota // the most contended first
	byGrants
	byHeld   // held for the longest time first
	byOldest // the longest wait first
	byPath
)

var topOrders = cli.EnumFlag[topOrder]{
	Names:  []string{"waiting", "grants", "held", "oldest", "path"},
	Values: []topOrder{byWaiting, byGrants, byHeld, byOldest, byPath},
}

// rows returns the rows whose path contains a text, sorted.
func (m *topModel) rows(by topOrder, filter string) []topRow {
	var rows []topRow
	for _, some := range [][]inspect.Line{m.lines, m.free} {
		for i := range some {
			if strings.Contains(some[i].Path, filter) {
				rows = append(rows, m.row(&some[i]))
			}
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
			order = cmp.Compare(b.HeldFor, a.HeldFor)
		case byOldest:
			order = cmp.Compare(b.Oldest, a.Oldest)
		}
		return cmp.Or(order, cmp.Compare(a.Path, b.Path))
	})
	return rows
}

// wanted says of how many contenders of each line the details are needed: of
// the lines that are shown, and of all that are sorted by an age.
func (m *topModel) wanted(shown []topRow, by topOrder, filter string) map[string]int {
	most := map[string]int{}
	for i := range m.lines {
		switch l := &m.lines[i]; {
		case !strings.Contains(l.Path, filter):
		case by == byHeld && len(l.Holders) > 0:
			most[l.Path] = 1
		case by == byOldest && len(l.Waiting) > 0:
			most[l.Path] = len(l.Holders) + 1 // holders are read first
		}
	}
	for i := range shown {
		most[shown[i].Path] = max(most[shown[i].Path], detailsShown)
	}
	return most
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
	least int // a wide column shrinks to this width before any column is left out; 0: it does not
	text  func(r *topRow) string
}

var topColumns = []topColumn{
	{"LOCK", 0, 0, func(r *topRow) string { return cli.Printable(r.Path) }},
	{"WAIT", 6, 0, func(r *topRow) string { return fmt.Sprint(r.Waiting) }},
	{"HELD", 9, 0, func(r *topRow) string { return r.held() }},
	{"HOLDER", 28, 11, func(r *topRow) string { return r.holder() }},
	{"HOST", 17, 8, func(r *topRow) string { return cmp.Or(cli.Printable(r.Host), "-") }},
	{"OLDEST", 8, 0, func(r *topRow) string { return seconds(r.Oldest, r.aged) }},
	{"GRANTS/s", 9, 0, func(r *topRow) string { return r.rate() }},
	{"SESSIONS", 9, 0, func(r *topRow) string { return r.sessions() }},
}

// leftOut are the columns in the order in which they are left out when there is
// no room: the wide ones first.
var leftOut = []string{"HOST", "HOLDER", "SESSIONS", "OLDEST", "GRANTS/s", "HELD", "WAIT"}

// The least width of the column without one, and the width for which the wide
// columns shrink, if a path is that long.
const (
	narrowest = 20
	enough    = 60
)

// columnsFor returns the columns for a width, and how wide the first is, which
// has texts of such a length.
func columnsFor(width, longest int) (columns []topColumn, first int) {
	want := min(max(narrowest, longest+1), enough)
	for gone := 0; ; gone++ {
		columns = slices.DeleteFunc(slices.Clone(topColumns), func(c topColumn) bool { return slices.Contains(leftOut[:gone], c.title) })
		first = width
		for _, c := range columns {
			first -= c.width
		}
		for i := range columns {
			if c := &columns[i]; c.least > 0 && first < want {
				less := min(c.width-c.least, want-first)
				c.width, first = c.width-less, first+less
			}
		}
		if first >= narrowest || gone == len(leftOut) {
			return columns, max(1, first)
		}
	}
}

func (r *topRow) held() string {
	if !r.detailed && !r.HeldExact {
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
	case r.semaphore && r.Holders > 0: // its limit is not known, or not read yet
		return count(r.Holders, "permit")
	case r.Holders > 1:
		return count(r.Holders, "holder")
	default:
		return dataText(r.Holder)
	}
}

// rate shows the grants per second, which are not known after only one look.
func (r *topRow) rate() string {
	if !r.rated {
		return "-"
	}
	return fmt.Sprintf("%.1f", r.Grants)
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
