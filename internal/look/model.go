package look

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect"
)

// Model makes rows of the looks that it is shown. It remembers from one look to
// the next who has held what. The zero Model has seen none.
type Model struct {
	Now   time.Time      // when the latest look was true
	Lines []inspect.Line // sorted by path

	free   []inspect.Line // nobody is in line now, but somebody was granted lately
	seen   map[string]*history
	counts map[string]childCount
	newest int64   // the greatest czxid of a directory that was seen
	weight float64 // how much of the average of grants was seen: 0 after the first look, and soon almost 1
}

// history is what was seen of a directory, which may be that of a line.
type history struct {
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

// Update shows the model what a look has found.
func (m *Model) Update(look Look) {
	first, elapsed := m.seen == nil, max(0, look.At.Sub(m.Now).Seconds())
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
	seen, newest := make(map[string]*history, len(look.counts)), m.newest
	for path, t := range look.counts {
		newest = max(newest, t.directory.Czxid)
		l, before := lines[path], m.seen[path]
		h := m.see(l, before, look.At)
		dir := granting(path, h.semaphore, look.counts)
		now := look.counts[dir]
		if st, ok := look.stands[path]; ok {
			h.stand = st
		} else {
			h.stand.turn = turnOf(nil, now)
		}
		earlier, ok := m.counts[dir]
		if ok = ok && earlier.directory == now.directory && before != nil; !ok && !first && now.directory.Czxid > m.newest { // it was created since
			earlier, before, ok = childCount{}, &history{stand: stand{turn: atFirst}}, true
		}
		if ok {
			h.grants = h.grants*keep + float64(granted(h, before, now, earlier))*each
		}
		if l == nil && h.recipe != "" && m.rate(h) >= rarely {
			m.free = append(m.free, inspect.Line{Path: path, Exists: true, Recipe: h.recipe, Semaphore: h.semaphore})
		}
		seen[path] = h
	}
	m.Now, m.Lines, m.seen, m.counts, m.newest = look.At, look.Lines, seen, look.counts, newest
}

// see returns the history of a directory after one more look. l is nil if it
// has nobody in line, and before is nil if it was not there in the look before.
func (m *Model) see(l *inspect.Line, before *history, at time.Time) *history {
	h := &history{}
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
func (m *Model) rate(h *history) float64 {
	if m.weight == 0 {
		return 0
	}
	return h.grants / m.weight
}

// Seen reports whether the model was shown a look.
func (m *Model) Seen() bool { return m.seen != nil }

// Since returns since when a holder of a line holds. If the model has not seen
// the grant, it is since when the holder has been in line, and exact is false.
func (m *Model) Since(l *inspect.Line, holder *inspect.Contender) (since time.Time, exact bool) {
	if h := m.seen[l.Path]; h != nil && !h.holders[holder.Path].IsZero() {
		return h.holders[holder.Path], true
	}
	return holder.Since, false
}

// Directory returns the id of the transaction that created the directory of a
// line, as it was listed, and 0 if that is not known.
func (m *Model) Directory(l *inspect.Line) int64 {
	return m.counts[granting(l.Path, l.Semaphore, m.counts)].directory.Czxid
}

func hasKey[V any](m map[string]V, key string) bool {
	_, ok := m[key]
	return ok
}

// Order is what rows are sorted by.
type Order int

const (
	ByWaiting Order = iota // the most contended first
	ByGrants
	ByHeld   // held for the longest time first
	ByOldest // the longest wait first
	ByPath
	ByWaitingAndAge // the most waiters first, and of as many the one held for the longest time
	ByAge           // held for the longest time first, although not all holders were read
)

// Rows returns the rows whose path contains a text, sorted.
func (m *Model) Rows(by Order, filter string) []Row {
	var rows []Row
	for _, some := range [][]inspect.Line{m.Lines, m.free} {
		for i := range some {
			if strings.Contains(some[i].Path, filter) {
				rows = append(rows, m.row(&some[i]))
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		order := 0
		switch by {
		case ByWaiting:
			order = cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Grants, a.Grants))
		case ByGrants:
			order = cmp.Compare(b.Grants, a.Grants)
		case ByHeld:
			order = cmp.Compare(b.HeldFor, a.HeldFor)
		case ByOldest:
			order = cmp.Compare(b.Oldest, a.Oldest)
		case ByWaitingAndAge:
			order = cmp.Or(cmp.Compare(b.Waiting, a.Waiting), a.compareAge(&b))
		case ByAge:
			order = a.compareAge(&b)
		}
		return cmp.Or(order, cmp.Compare(a.Path, b.Path))
	})
	return rows
}

// Details is how many contenders are read of each line that is shown.
const Details = 10

// Wanted says of how many contenders of each line the details are needed: of
// the lines that are shown, and of all that are sorted by an age.
func (m *Model) Wanted(shown []Row, by Order, filter string) map[string]int {
	most := map[string]int{}
	for i := range m.Lines {
		switch l := &m.Lines[i]; {
		case !strings.Contains(l.Path, filter):
		case by == ByHeld && len(l.Holders) > 0:
			most[l.Path] = 1
		case by == ByOldest && len(l.Waiting) > 0:
			most[l.Path] = len(l.Holders) + 1 // holders are read first
		}
	}
	for i := range shown {
		most[shown[i].Path] = max(most[shown[i].Path], Details)
	}
	return most
}

// Line returns the line at a path, if it is there.
func (m *Model) Line(at string) *inspect.Line {
	for i := range m.Lines {
		if m.Lines[i].Path == at {
			return &m.Lines[i]
		}
	}
	return nil
}

// Waiting returns how many contenders wait in all.
func (m *Model) Waiting() int {
	sum := 0
	for i := range m.Lines {
		sum += len(m.Lines[i].Waiting)
	}
	return sum
}
