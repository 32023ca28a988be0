package live

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// topScreen shows rows on a terminal, and obeys keys. One goroutine collects,
// the other one draws.
type topScreen struct {
	*top
	screen tcell.Screen
	from   *look.Collector

	// What follows belongs to the goroutine that draws.
	model    look.Model
	err      error // of the last look
	chosen   string
	offset   int    // of the first row on the screen
	follows  string // the line whose contenders are shown
	scrolled int    // how many of them are above the screen
	typing   bool   // the filter
	helping  bool   // the keys are shown
	looked   bool   // at least once
	found    look.Look

	mu     sync.Mutex // guards wanted
	wanted map[string]int
	wake   chan struct{} // has an element when more is wanted
}

func newTopScreen(t *top, screen tcell.Screen, from *look.Collector) *topScreen {
	return &topScreen{top: t, screen: screen, from: from, wake: make(chan struct{}, 1)}
}

// lookEnd is the end of a look.
type lookEnd struct {
	found look.Look
	err   error
}

// run shows rows until q is pressed or ctx ends.
func (s *topScreen) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var collecting sync.WaitGroup
	defer collecting.Wait()
	defer cancel()
	looks := make(chan lookEnd)
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
			if l.err == nil && l.found.Current { // otherwise the rows stay as they were
				s.found = l.found
				s.model.Update(l.found)
			}
		case <-tick.C: // shows how the first look goes on, and that the ensemble is lost
		case event, ok := <-events:
			if !ok {
				return cli.Failed(errors.New("the terminal is gone"))
			}
			if err := s.obey(event); errors.Is(err, errQuit) {
				return nil
			}
		}
	}
}

// collect looks again and again, until ctx ends.
func (s *topScreen) collect(ctx context.Context, looks chan<- lookEnd) {
	for {
		s.mu.Lock()
		wanted := maps.Clone(s.wanted)
		s.mu.Unlock()
		found, err := s.from.Collect(ctx, wanted)
		select {
		case looks <- lookEnd{found, err}:
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
	if s.helping { // any key ends the help
		s.helping = false
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
	case tcell.KeyHome:
		s.move(-toTheEnd)
	case tcell.KeyEnd:
		s.move(toTheEnd)
	case tcell.KeyEnter:
		if s.follows == "" {
			s.follows, s.scrolled = s.chosen, 0
		}
	case tcell.KeyEscape:
		s.follows = ""
	case tcell.KeyRune:
		return s.obeyLetter(key.Rune())
	}
	return nil
}

// toTheEnd is more than any list is long.
const toTheEnd = 1 << 30

func (s *topScreen) obeyLetter(letter rune) error {
	orders := look.Order(len(topOrders.Names))
	switch letter {
	case 'q':
		if s.follows == "" {
			return errQuit
		}
		s.follows = ""
	case 's':
		s.order = (s.order + 1) % orders
	case 'S':
		s.order = (s.order + orders - 1) % orders
	case '/':
		s.typing = s.follows == ""
	case '?', 'h':
		s.helping = true
	case 'j':
		s.move(1)
	case 'k':
		s.move(-1)
	case ' ':
		s.move(s.room())
	case 'b':
		s.move(-s.room())
	case 'g':
		s.move(-toTheEnd)
	case 'G':
		s.move(toTheEnd)
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

// move chooses another row, or scrolls the contenders of a line.
func (s *topScreen) move(by int) {
	if s.follows != "" {
		s.scrolled += by // drawContenders limits it
		return
	}
	rows := s.model.Rows(s.order, s.filter)
	if len(rows) == 0 {
		return
	}
	at := max(0, s.index(rows))
	s.chosen = rows[min(max(0, at+by), len(rows)-1)].Path
}

// index returns the index of the chosen row, or -1.
func (s *topScreen) index(rows []look.Row) int {
	for i := range rows {
		if rows[i].Path == s.chosen {
			return i
		}
	}
	return -1
}
