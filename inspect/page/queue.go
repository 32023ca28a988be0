package page

import "fmt"

// queue is a drawing of a line: who waits for whom. A waiter waits for one that
// is ahead of it: a reader for the last writer, all others for the next. The
// first waiter of a semaphore waits for any permit.
type queue struct {
	Width, Height int
	Boxes         []box
	Arrows        []arrow
	More          int // waiters that are not drawn
}

// box is a contender.
type box struct {
	X, Y, Width, Height int
	Label, Note, Title  string
	Holds               bool
}

// TextX is where its text begins, and the next ones the two rows of text.
func (b box) TextX() int { return b.X + 10 }

// LabelY is the row of the label.
func (b box) LabelY() int { return b.Y + 18 }

// NoteY is the row of the note.
func (b box) NoteY() int { return b.Y + 34 }

// arrow leads from who waits to what it waits for.
type arrow struct {
	Path   string // of SVG
	Unsure bool
}

// mostDrawn is how many holders and waiters are drawn, each.
const mostDrawn = 10

// The measures of the drawing, in pixels.
const (
	boxWidth  = 300
	boxHeight = 44
	boxGap    = 22
	aside     = 60 // room for the arrows that pass other boxes
)

func queueOf(l *line) *queue {
	holders, waiters := l.Holders[:min(len(l.Holders), mostDrawn)], l.Waiters[:min(len(l.Waiters), mostDrawn)]
	if len(holders)+len(waiters) == 0 {
		return nil
	}
	left := 1
	for i := range waiters {
		if ahead := waitsFor(l, holders, waiters[:i+1]); len(ahead) > 0 && ahead[0] < len(holders)+i-1 {
			left = aside
		}
	}
	q := &queue{Width: left + boxWidth + 1, More: l.Waiting - len(waiters)}
	draw := func(c *contender, note string, holds bool) {
		who := c.Who
		if who == "" {
			who = c.Name
		}
		q.Boxes = append(q.Boxes, box{left, 1 + len(q.Boxes)*(boxHeight+boxGap), boxWidth, boxHeight, short(who, 38), note + ", " + c.Mode, who + ", " + c.Name, holds})
	}
	for i := range holders {
		draw(&holders[i], "holds", true)
	}
	for i := range waiters {
		note := fmt.Sprintf("waits, place %d", i+1)
		if waiters[i].Unsure {
			note = fmt.Sprintf("holds or waits, place %d", i+1)
		}
		draw(&waiters[i], note, false)
		for _, ahead := range waitsFor(l, holders, waiters[:i+1]) {
			q.Arrows = append(q.Arrows, arrow{q.way(len(q.Boxes)-1, ahead), waiters[i].Unsure})
		}
	}
	q.Height = len(q.Boxes)*(boxHeight+boxGap) - boxGap + 2
	return q
}

// waitsFor returns what the last of the waiters waits for: places in the order
// of holders and waiters.
func waitsFor(l *line, holders, waiters []contender) (ahead []int) {
	last := len(waiters) - 1
	if waiters[last].Mode == "shared" && !l.Semaphore {
		for i := last - 1; i >= 0; i-- {
			if waiters[i].Mode != "shared" {
				return []int{len(holders) + i}
			}
		}
	} else if last > 0 {
		return []int{len(holders) + last - 1}
	}
	for i := range holders {
		if l.Semaphore && i < len(holders)-1 { // any permit will do
			continue
		}
		if waiters[last].Mode != "shared" || holders[i].Mode != "shared" || l.Semaphore {
			ahead = append(ahead, i)
		}
	}
	return ahead
}

// way leads from a box up to another one: straight, or around those between.
func (q *queue) way(from, to int) string {
	a, b := q.Boxes[from], q.Boxes[to]
	if from == to+1 {
		x := a.X + a.Width/2
		return fmt.Sprintf("M%d %dV%d", x, a.Y, b.Y+b.Height+5)
	}
	x, out := a.X, a.X-12-min(4*(from-to), 44)
	return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x, a.Y+a.Height/2, out, a.Y, out, b.Y+b.Height, x-5, b.Y+b.Height/2)
}

// short returns the beginning of a text.
func short(text string, most int) string {
	if all := []rune(text); len(all) > most {
		return string(all[:most-1]) + "…"
	}
	return text
}
