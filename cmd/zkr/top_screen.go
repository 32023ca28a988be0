package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/zkrecipes/zkrecipes/recipes/inspect"
)

// topScreen shows rows on a terminal, and obeys keys. One goroutine collects, the
// other one draws.
type topScreen struct {
	*top
	screen    tcell.Screen
	from      *collector
	connected func() bool

	// What follows belongs to the goroutine that draws.
	model   topModel
	err     error // of the last look
	chosen  string
	offset  int    // of the first row on the screen
	follows string // the line whose contenders are shown
	typing  bool   // the filter
	looked  bool   // at least once
	found   inspect.Forest

	mu     sync.Mutex // guards wanted
	wanted map[string]int
	wake   chan struct{} // has an element when more is wanted
}

// topLook is the result of a look.
type topLook struct {
	at    time.Time
	found inspect.Forest
	err   error
}

func newTopScreen(t *top, screen tcell.Screen, from *collector, connected func() bool) *topScreen {
	return &topScreen{top: t, screen: screen, from: from, connected: connected, wake: make(chan struct{}, 1)}
}

// run shows rows until q is pressed or ctx ends.
func (s *topScreen) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var collecting sync.WaitGroup
	defer collecting.Wait()
	defer cancel()
	looks := make(chan topLook)
	collecting.Go(func() { s.collect(ctx, looks) })

	events, quit := make(chan tcell.Event), make(chan struct{})
	defer close(quit)
	go s.screen.ChannelEvents(events, quit) // ends with quit, or when the screen ends
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	for {
		s.draw()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case l := <-looks:
			s.looked, s.err = true, l.err
			if l.err == nil {
				s.found = l.found
				s.model.update(l.at, l.found.Lines)
			}
		case <-tick.C: // shows how the first look goes on, and that the ensemble is lost
		case event, ok := <-events:
			if !ok {
				return failed(errors.New("the terminal is gone"))
			}
			if err := s.obey(event); errors.Is(err, errQuit) {
				return nil
			}
		}
	}
}

// collect looks again and again, until ctx ends.
func (s *topScreen) collect(ctx context.Context, looks chan<- topLook) {
	for {
		s.mu.Lock()
		wanted := maps.Clone(s.wanted)
		s.mu.Unlock()
		found, err := s.from.collect(ctx, wanted)
		select {
		case looks <- topLook{time.Now(), found, err}:
		case <-ctx.Done():
			return
		}
		pause := time.NewTimer(s.interval)
		select {
		case <-pause.C:
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

// want says which lines are shown, so that their contenders are read.
func (s *topScreen) want(lines map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if maps.Equal(s.wanted, lines) {
		return
	}
	s.wanted = lines
	select {
	case s.wake <- struct{}{}:
	default: // it is awake already
	}
}

// obey does what a key says. It returns errQuit at the end.
func (s *topScreen) obey(event tcell.Event) error {
	key, ok := event.(*tcell.EventKey)
	if !ok {
		if _, resized := event.(*tcell.EventResize); resized {
			s.screen.Sync()
		}
		return nil
	}
	switch {
	case key.Key() == tcell.KeyCtrlC:
		return errQuit
	case s.typing:
		s.edit(key)
		return nil
	}
	switch key.Key() {
	case tcell.KeyUp:
		s.move(-1)
	case tcell.KeyDown:
		s.move(1)
	case tcell.KeyPgUp:
		s.move(-s.room())
	case tcell.KeyPgDn:
		s.move(s.room())
	case tcell.KeyEnter:
		s.follows = s.chosen
	case tcell.KeyEscape:
		s.follows = ""
	case tcell.KeyRune:
		return s.obeyLetter(key.Rune())
	}
	return nil
}

func (s *topScreen) obeyLetter(letter rune) error {
	switch letter {
	case 'q':
		if s.follows == "" {
			return errQuit
		}
		s.follows = ""
	case 's':
		s.order = (s.order + 1) % topOrder(len(topOrders.names))
	case '/':
		s.typing = true
	case 'j':
		s.move(1)
	case 'k':
		s.move(-1)
	}
	return nil
}

// edit changes the filter.
func (s *topScreen) edit(key *tcell.EventKey) {
	switch key.Key() {
	case tcell.KeyEnter:
		s.typing = false
	case tcell.KeyEscape:
		s.typing, s.filter = false, ""
	case tcell.KeyBackspace, tcell.KeyBackspace2:
		if text := []rune(s.filter); len(text) > 0 {
			s.filter = string(text[:len(text)-1])
		}
	case tcell.KeyRune:
		s.filter += string(key.Rune())
	}
}

// move chooses another row.
func (s *topScreen) move(by int) {
	rows := s.model.rows(s.order, s.filter)
	if len(rows) == 0 {
		return
	}
	at := max(0, s.index(rows))
	s.chosen = rows[min(max(0, at+by), len(rows)-1)].Path
}

// index returns the index of the chosen row, or -1.
func (s *topScreen) index(rows []topRow) int {
	for i := range rows {
		if rows[i].Path == s.chosen {
			return i
		}
	}
	return -1
}

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

func (s *topScreen) draw() {
	s.screen.Clear()
	width, height := s.screen.Size()
	s.put(0, 0, width, s.header(), tcell.StyleDefault.Bold(true))
	keys := "up/down choose  Enter contenders  s sort  / filter  q quit"
	if s.follows != "" {
		keys = "q back  Ctrl-C quit"
		s.drawContenders(width)
	} else {
		s.drawRows(width)
	}
	if s.typing {
		keys = "filter: " + printable(s.filter) + "_  (Enter to keep, Esc to clear)"
	}
	s.put(0, height-1, width, keys, tcell.StyleDefault.Reverse(true))
	s.screen.Show()
}

// header says what is shown, and whether it is up to date.
func (s *topScreen) header() string {
	state := fmt.Sprintf("%s, %d waiting", count(len(s.model.lines), "line"), s.model.waiting())
	switch {
	case !s.connected():
		state = "NOT CONNECTED, " + state
		if s.looked {
			state += fmt.Sprintf(" %s ago", seconds(time.Since(s.model.now).Seconds(), !s.model.now.IsZero()))
		}
	case !s.looked:
		state = "first look"
	case s.err != nil:
		state = "FAILED: " + complaint(s.err)
	case !s.found.Exists:
		state = "does not exist"
	case len(s.found.Unreadable) > 0:
		state += fmt.Sprintf(", %s may not be read", count(len(s.found.Unreadable), "znode"))
	}
	header := fmt.Sprintf("zkr top %s: %s; %s", printable(s.path), state, count(s.from.sent(), "request"))
	if s.rate > 0 {
		header += fmt.Sprintf(", at most %d/s", s.rate)
	}
	header += "; by " + topOrders.names[s.order]
	if s.filter != "" {
		header += "; only " + printable(s.filter)
	}
	return header
}

func (s *topScreen) drawRows(width int) {
	rows := s.model.rows(s.order, s.filter)
	room := s.room()
	at := s.index(rows)
	if at < 0 && len(rows) > 0 {
		at, s.chosen = 0, rows[0].Path
	}
	s.offset = max(min(s.offset, at, len(rows)-room), at-room+1, 0)
	columns, first := columnsFor(width)
	s.putColumns(1, columns, first, tcell.StyleDefault.Underline(true), func(c topColumn) string { return c.title })
	wanted := map[string]int{}
	for i := 0; i < room && s.offset+i < len(rows); i++ {
		r := &rows[s.offset+i]
		wanted[r.Path] = detailsShown
		style := tcell.StyleDefault.Bold(r.Waiting > 0)
		if r.Path == s.chosen {
			style = style.Reverse(true)
		}
		s.putColumns(topHeader+i, columns, first, style, func(c topColumn) string { return c.text(r) })
	}
	s.want(wanted)
}

// putColumns puts one text for each column.
func (s *topScreen) putColumns(y int, columns []topColumn, first int, style tcell.Style, text func(topColumn) string) {
	x := 0
	for _, c := range columns {
		width := c.width
		if width == 0 {
			width = first
		}
		s.put(x, y, width-1, text(c), style)
		x += width
	}
}

// drawContenders shows the contenders of one line, in order.
func (s *topScreen) drawContenders(width int) {
	s.want(map[string]int{s.follows: detailsFollowed})
	l := s.model.line(s.follows)
	if l == nil {
		s.put(0, 1, width, printable(s.follows)+": nobody holds it or waits", tcell.StyleDefault)
		return
	}
	shown := snapshotOf(l, s.model.now)
	s.put(0, 1, width, printable(l.Path)+": "+printable(shown.headline()), tcell.StyleDefault.Underline(true))
	y, room := topHeader, topHeader+s.room()
	row := func(place string, c contender) {
		if y >= room {
			return
		}
		data := c.Data
		s.put(0, y, width, fmt.Sprintf("%-10s %-9s %-9s session %s  %s  %s", place, c.Mode, seconds(c.AgeSeconds, true), c.Session, readable(data), printable(c.name)), tcell.StyleDefault)
		y++
	}
	for _, c := range shown.Holders {
		row("holds", c)
	}
	for i, c := range shown.Waiting {
		row(fmt.Sprintf("waits, %d.", i+1), c)
	}
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
