package page

import (
	"maps"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/look"
)

// times is who has held which line, as looked at.
type times struct {
	bars map[string][]*bar // by line, in the order of their beginnings
	gaps []span            // when nobody looked, or what was seen is forgotten; from the zero time on
	last time.Time         // the latest look
	size int               // bars in all
}

// bar is a holder, for as long as it was seen.
type bar struct {
	span
	path string // of the znode
	who  string // escaped
}

type span struct{ From, To time.Time }

const (
	mostBars = 10_000
	mostGaps = 1000
	aGap     = 15 * time.Second // between two looks
	window   = 10 * time.Minute // of a drawing
)

func newTimes() *times { return &times{bars: map[string][]*bar{}} }

// see notes who holds.
func (t *times) see(m *look.Model) {
	now, before := m.Now, t.last
	if t.size >= mostBars {
		t.forget()
	}
	if before.IsZero() || now.Sub(before) > aGap {
		t.gaps = append(t.gaps, span{before, now})
		t.gaps = t.gaps[max(0, len(t.gaps)-mostGaps):]
		before = time.Time{} // no bar goes on
	}
	for i := range m.Lines {
		t.seeLine(&m.Lines[i], before, now)
	}
	t.last = now
}

func (t *times) seeLine(l *inspect.Line, before, now time.Time) {
	open := map[string]*bar{}
	for _, b := range t.bars[l.Path] {
		if b.To.Equal(before) {
			open[b.path] = b
		}
	}
	for i := range l.Holders {
		holder := &l.Holders[i]
		b := open[holder.Path]
		if b == nil && t.size >= mostBars {
			continue
		}
		if b == nil {
			b = &bar{span: span{From: now}, path: holder.Path}
			t.bars[l.Path] = append(t.bars[l.Path], b)
			t.size++
		}
		b.To = now
		if holder.Created != 0 && b.who == "" {
			b.who = whoOf(holder)
		}
	}
}

// forget keeps the later three quarters of the bars, and those that last.
func (t *times) forget() {
	var ends []time.Time
	for _, bars := range t.bars {
		for _, b := range bars {
			ends = append(ends, b.To)
		}
	}
	slices.SortFunc(ends, time.Time.Compare)
	oldest := ends[len(ends)/4]
	t.size = 0
	var forgotten time.Time // the latest end
	for path, bars := range t.bars {
		bars = slices.DeleteFunc(bars, func(b *bar) bool {
			if !b.To.Before(t.last) || b.To.After(oldest) {
				return false
			}
			if b.To.After(forgotten) {
				forgotten = b.To
			}
			return true
		})
		t.bars[path] = bars
		t.size += len(bars)
	}
	maps.DeleteFunc(t.bars, func(_ string, bars []*bar) bool { return len(bars) == 0 })
	if forgotten.IsZero() {
		return
	}
	t.gaps = slices.DeleteFunc(t.gaps, func(g span) bool { return !g.To.After(forgotten) })
	if len(t.gaps) > 0 && t.gaps[0].From.Before(forgotten) {
		t.gaps[0].From = time.Time{}
	} else {
		t.gaps = slices.Insert(t.gaps, 0, span{To: forgotten})
	}
}

// timeline is a drawing of who has held a line.
type timeline struct {
	span
	Height int
	Bars   []drawn
	Gaps   []drawn
	Latest []drawn  // the last bars, the latest first
	Marks  []string // times below the drawing, evenly apart
}

// drawn is a bar or a gap.
type drawn struct {
	span
	X, Y, Width float64
	Who         string
	Tone        int
	Open        bool // it lasts
}

// The measures of the drawing, in pixels.
const (
	timeWidth = 720.0
	barHeight = 22
	mostRows  = 8
	tones     = 4
)

// of returns the timeline of a line, or nil if nothing was seen.
func (t *times) of(path string, now time.Time) *timeline {
	bars := t.bars[path]
	if len(bars) == 0 {
		return nil
	}
	const step = 5 * time.Second
	end := t.last.Truncate(step).Add(step)
	d := &timeline{span: span{end.Add(-window), end}}
	at := func(when time.Time) float64 {
		return timeWidth * min(1, max(0, float64(when.Sub(d.From))/float64(window)))
	}
	var rows []time.Time // when each is free again
	for i, b := range bars {
		if b.To.Before(d.From) {
			continue
		}
		row := slices.IndexFunc(rows, func(free time.Time) bool { return !free.After(b.From) })
		switch {
		case row >= 0:
			rows[row] = b.To
		case len(rows) < mostRows:
			row = len(rows)
			rows = append(rows, b.To)
		default: // there is no room for it
			row = mostRows
		}
		one := drawn{span: b.span, X: at(b.From), Y: float64(row * barHeight), Who: b.who, Tone: i % tones, Open: b.To.Equal(t.last)}
		to := at(b.To)
		if one.Open {
			to = timeWidth
		}
		one.Width = max(1, to-one.X)
		if row < mostRows {
			if one.Open {
				rows[row] = end
			}
			d.Bars = append(d.Bars, one)
		}
		d.Latest = append([]drawn{one}, d.Latest...)
		d.Latest = d.Latest[:min(len(d.Latest), 10)]
	}
	d.Height = max(1, len(rows)) * barHeight
	for _, g := range t.gaps {
		if g.To.After(d.From) {
			if g.From.Before(d.From) {
				g.From = d.From
			}
			d.Gaps = append(d.Gaps, drawn{span: g, X: at(g.From), Width: at(g.To) - at(g.From)})
		}
	}
	for i := range 5 {
		d.Marks = append(d.Marks, d.From.Add(time.Duration(i)*window/5).Format(time.TimeOnly))
	}
	return d
}
