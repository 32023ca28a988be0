package timelines

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// timeline is a drawing: a lane for each party, with bars and numbered moments,
// and below what the numbers mean.
type timeline struct {
	title   string
	lanes   []string
	length  time.Duration
	bars    []bar
	moments []moment
}

// bar is how long something lasts.
type bar struct {
	lane     string
	from, to time.Duration
	kind     string // a class of the style below
	text     string
}

// moment is when something happens.
type moment struct {
	lane string
	at   time.Duration
	text string
}

const (
	width, left, right = 760, 90, 20
	top, lane, line    = 40, 52, 20
)

// style has the colors for light and dark.
const style = `text{font:13px sans-serif;fill:#1f2328}
.axis{stroke:#8c959f;stroke-width:1}
.holds{fill:#2da44e}.margin{fill:#d4a72c}.over{fill:#d0d7de}.waits{fill:#54aeff}.cut{fill:#cf222e}
.dot{fill:#1f2328}.number{fill:#fff;font-size:11px;text-anchor:middle}.inside{fill:#1f2328;font-size:12px;text-anchor:middle}
.tick{font-size:11px;text-anchor:middle}
@media(prefers-color-scheme:dark){text,.dot{fill:#e6edf3}.number{fill:#0d1117}.inside{fill:#0d1117}.axis{stroke:#6e7681}.over{fill:#8c959f}}
`

// svg returns the drawing.
func (l *timeline) svg() string {
	x := func(at time.Duration) float64 {
		return left + float64(width-left-right)*at.Seconds()/l.length.Seconds()
	}
	y := map[string]int{}
	for i, name := range l.lanes {
		y[name] = top + i*lane
	}
	bottom := top + len(l.lanes)*lane
	height := bottom + 30 + len(l.moments)*line
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&out, "<title id=\"title\">%s</title>\n<style>\n%s</style>\n", html.EscapeString(l.title), style)
	for at := time.Duration(0); at <= l.length; at += 2 * time.Second {
		fmt.Fprintf(&out, `<line class="axis" x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke-dasharray="2 4"/><text class="tick" x="%.1f" y="%d">%d s</text>`+"\n",
			x(at), top-14, x(at), bottom-10, x(at), top-20, int(at.Seconds()))
	}
	for _, name := range l.lanes {
		fmt.Fprintf(&out, `<text x="4" y="%d">%s</text>`+"\n", y[name]+17, html.EscapeString(name))
	}
	for _, b := range l.bars {
		fmt.Fprintf(&out, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="24" rx="3"/>`, b.kind, x(b.from), y[b.lane], x(b.to)-x(b.from))
		fmt.Fprintf(&out, `<text class="inside" x="%.1f" y="%d">%s</text>`+"\n", (x(b.from)+x(b.to))/2, y[b.lane]+17, html.EscapeString(b.text))
	}
	for i, m := range l.moments {
		fmt.Fprintf(&out, `<circle class="dot" cx="%.1f" cy="%d" r="9"/><text class="number" x="%.1f" y="%d">%d</text>`, x(m.at), y[m.lane]+32, x(m.at), y[m.lane]+36, i+1)
		fmt.Fprintf(&out, `<text x="%d" y="%d">%d.</text><text x="%d" y="%d">%.1f s</text><text x="%d" y="%d">%s</text>`+"\n",
			4, bottom+20+i*line, i+1, 30, bottom+20+i*line, m.at.Seconds(), left, bottom+20+i*line, html.EscapeString(m.text))
	}
	out.WriteString("</svg>\n")
	return out.String()
}
