package live

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// Lines of the screen that are not for rows.
const (
	topHeader = 2 // the state, and the titles
	topFooter = 1 // the keys
)

// room returns how many rows the screen has room for.
func (s *topScreen) room() int {
	_, height := s.screen.Size()
	return max(0, height-topHeader-topFooter)
}

// topHelp is what ? shows.
var topHelp = []string{
	"up, k and down, j         choose the row above or below",
	"PgUp, b and PgDn, space   a page up or down",
	"Home, g and End, G        the first or the last row",
	"Enter                     the holders and waiters of the row; the same keys scroll them",
	"Esc, q                    back from there",
	"s and S                   sort by the next or the previous of: " + strings.Join(topOrders.Names, ", "),
	"/                         show only paths with a text; Enter keeps it, Esc clears it",
	"q, Ctrl-C                 quit",
	"",
	"HELD with a < includes the holder's wait. GRANTS/s are averaged over ten seconds.",
	"A - means not known, or not read yet.",
}

func (s *topScreen) draw() {
	s.screen.Clear()
	width, height := s.screen.Size()
	s.put(0, 0, width, s.header(), tcell.StyleDefault.Bold(true))
	keys, position := "? keys  Enter contenders  s sort  / filter  q quit", ""
	switch {
	case s.helping:
		keys = "any key goes back"
		for i, text := range topHelp[:min(len(topHelp), s.room())] {
			s.put(0, topHeader+i, width, text, tcell.StyleDefault)
		}
	case s.follows != "":
		keys = "? keys  q back  Ctrl-C quit"
		position = s.drawContenders(width)
	default:
		position = s.drawRows(width)
	}
	if s.typing {
		keys = "filter: " + escape.Text(s.filter) + "_  (Enter to keep, Esc to clear)"
	}
	if position != "" {
		keys = position + "  " + keys
	}
	s.put(0, height-1, width, keys, tcell.StyleDefault.Reverse(true))
	s.screen.Show()
}

// header says what is shown, and whether it is up to date.
func (s *topScreen) header() string {
	state := fmt.Sprintf("%s, %d waiting", look.Count(len(s.model.Lines), "line"), s.model.Waiting())
	switch {
	case !s.from.Connected():
		state = "NOT CONNECTED, " + state
		if s.looked && !s.model.Now.IsZero() { // the watches have told all changes until the last answer
			state += fmt.Sprintf(" %s ago", look.Seconds(time.Since(s.from.Heard()).Seconds(), true))
		}
	case !s.looked:
		state = "first look"
	case s.err != nil:
		state = "FAILED: " + cli.Complaint(s.err)
	case !s.found.Exists:
		state = "does not exist"
	case len(s.found.Unreadable) > 0:
		state += fmt.Sprintf(", %s may not be read", look.Count(len(s.found.Unreadable), "znode"))
	}
	header := fmt.Sprintf("zkr top %s: %s; %s", escape.Text(s.path), state, look.Count(s.from.Sent(), "request"))
	if s.rate > 0 {
		header += fmt.Sprintf(", at most %d/s", s.rate)
	}
	header += "; by " + topOrders.Names[s.order]
	if s.filter != "" {
		header += "; only " + escape.Text(s.filter)
	}
	return header + "; " + serversText(s.from.Client.Servers(), time.Now())
}

// lately is for how long a server that has failed counts as failing.
const lately = 2 * time.Minute

// serversText says which of the servers the client is connected to, how many
// others there are, and how many have failed lately.
func serversText(all []framework.ServerStatus, now time.Time) string {
	at, listed, failing := "no server", 0, 0
	for _, s := range all {
		if s.From != framework.ServerRemoved {
			listed++
		}
		switch {
		case s.Connected != "" && s.From == framework.ServerRemoved:
			at = s.Name + " (removed)"
		case s.Connected != "":
			at = s.Name
		case s.Failure != nil && now.Sub(s.FailureAt) < lately:
			failing++
		}
	}
	text := fmt.Sprintf("at %s of %d", at, listed)
	if failing > 0 {
		text += fmt.Sprintf(", %d failing", failing)
	}
	return text
}

// drawRows draws the rows, and returns the position among them.
func (s *topScreen) drawRows(width int) string {
	rows := s.model.Rows(s.order, s.filter)
	room := s.room()
	at := s.index(rows)
	if at < 0 && len(rows) > 0 {
		at, s.chosen = 0, rows[0].Path
	}
	s.offset = max(min(s.offset, at, len(rows)-room), at-room+1, 0)
	longest := 0
	for i := range rows {
		longest = max(longest, len(rows[i].Path))
	}
	columns, first := columnsFor(width, longest)
	s.putColumns(1, columns, first, tcell.StyleDefault.Underline(true), func(c topColumn) string { return c.title })
	shown := rows[min(s.offset, len(rows)):min(s.offset+room, len(rows))]
	for i := range shown {
		r := &shown[i]
		style := tcell.StyleDefault.Bold(r.Waiting > 0)
		if r.Path == s.chosen {
			style = style.Reverse(true)
		}
		s.putColumns(topHeader+i, columns, first, style, func(c topColumn) string { return c.text(r) })
	}
	s.want(s.model.Wanted(shown, s.order, s.filter))
	if len(rows) == 0 {
		return ""
	}
	return fmt.Sprintf("row %d of %d", at+1, len(rows))
}

// putColumns puts one text for each column.
func (s *topScreen) putColumns(y int, columns []topColumn, first int, style tcell.Style, text func(topColumn) string) {
	x := 0
	for _, c := range columns {
		width, shown := c.width, text(c)
		if width == 0 {
			width, shown = first, tail(text(c), first-1)
		}
		s.put(x, y, width-1, shown, style)
		x += width
	}
}

// tail shows the end of a path that is too long, which tells it from others.
func tail(path string, room int) string {
	all := []rune(path)
	if len(all) <= room || room < 2 {
		return path
	}
	return "…" + string(all[len(all)-room+1:])
}

// drawContenders shows the contenders of one line, in order, and returns which
// of them are on the screen.
func (s *topScreen) drawContenders(width int) string {
	s.want(map[string]int{s.follows: detailsFollowed})
	l := s.model.Line(s.follows)
	if l == nil {
		s.put(0, 1, width, escape.Text(s.follows)+": nobody holds it or waits", tcell.StyleDefault)
		return ""
	}
	shown := snapshotOf(l, s.model.Now)
	s.put(0, 1, width, escape.Text(l.Path)+": "+escape.Text(shown.headline()), tcell.StyleDefault.Underline(true))
	all := slices.Concat(shown.Holders, shown.Waiting)
	s.scrolled = max(0, min(s.scrolled, len(all)-s.room()))
	end := min(len(all), s.scrolled+s.room())
	for i, c := range all[s.scrolled:end] {
		place := "holds"
		if !c.Holds {
			place = fmt.Sprintf("waits, %d.", s.scrolled+i+1-len(shown.Holders))
		}
		age, session, data := look.Seconds(c.AgeSeconds, true), c.Session, c.Who()
		if c.created.Czxid == 0 { // not read: see detailsFollowed
			age, session, data = "-", "-", "-"
		}
		s.put(0, topHeader+i, width, fmt.Sprintf("%-10s %-9s %-9s session %s  %s  %s", place, c.Mode, age, session, data, escape.Text(c.name)), tcell.StyleDefault)
	}
	if end == s.scrolled {
		return ""
	}
	return fmt.Sprintf("%d to %d of %d", s.scrolled+1, end, len(all))
}

// put puts a text into a row, as far as there is room.
func (s *topScreen) put(x, y, room int, text string, style tcell.Style) {
	for used := 0; text != "" && used < room; {
		rest, width := s.screen.Put(x+used, y, text, style)
		if width == 0 || len(rest) == len(text) {
			return
		}
		text = rest
		used += width
	}
}
