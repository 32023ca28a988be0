package framework

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// straySearch looks for strays in one directory: znodes of protected creates
// whose callers were told that they have failed. All strays of a directory
// share one goroutine, and each round costs a sync and a list. An id is
// forgotten once its znode was found, or was looked for often enough.
type straySearch struct {
	session *session
	dir     string
	changed chan struct{} // a token: ids were added, or the last one was removed

	ids map[string]*stray // guarded by session.mu
}

// stray is an id under which a znode may still appear.
type stray struct {
	looks int       // that have not found it
	due   time.Time // when the next one is
}

// strayLooks is how often an id is looked for. The first look is at once, the
// second after a third of a session timeout, and each further pause is twice as
// long as the one before: about 85 session timeouts in all.
const strayLooks = 9

// expectStrays starts to look for the znodes with these ids. Any other list of
// the directory in this session also finds them.
func (s *session) expectStrays(dir string, ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	h := s.straySearches[dir]
	isNew := h == nil
	if isNew {
		h = &straySearch{session: s, dir: dir, changed: make(chan struct{}, 1), ids: make(map[string]*stray)}
		if s.straySearches == nil {
			s.straySearches = make(map[string]*straySearch)
		}
		s.straySearches[dir] = h
	}
	for _, id := range ids {
		h.ids[id] = &stray{due: time.Now()}
	}
	if isNew {
		s.core.tasks.Go(h.run) // begun before the session is over: Close waits for it
	} else {
		h.wake()
	}
}

func (h *straySearch) wake() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// run returns after the last id, or at the end of the session.
func (h *straySearch) run() {
	var looked time.Time // zero: not yet
	for {
		wait, ok := h.next(looked)
		switch {
		case !ok:
			return
		case wait <= 0:
			looked = time.Now()
			h.search(looked)
			continue
		}
		select {
		case <-h.session.over:
		case <-h.changed:
		case <-time.After(wait):
		}
	}
}

// next returns how long to wait for the next look. There is a pause after each
// look, so that ids that are added one by one share looks. If there is nothing
// left to look for, it ends the search and reports false.
func (h *straySearch) next(looked time.Time) (time.Duration, bool) {
	s := h.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || len(h.ids) == 0 {
		delete(s.straySearches, h.dir)
		return 0, false
	}
	var due time.Time
	for _, one := range h.ids {
		if due.IsZero() || one.due.Before(due) {
			due = one.due
		}
	}
	if earliest := looked.Add(s.evidence.Timeout() / 32); !looked.IsZero() && due.Before(earliest) {
		due = earliest
	}
	return time.Until(due), true
}

// search lists the directory. The list discards the strays that it shows.
func (h *straySearch) search(now time.Time) {
	s := h.session
	s.mu.Lock()
	var due []string // chosen before the list, which may not show what is added later
	for id, one := range h.ids {
		if !one.due.After(now) {
			due = append(due, id)
		}
	}
	s.mu.Unlock()
	_, err := scope{core: s.core, in: s, patient: true}.search(context.Background(), h.dir)
	answered := err == nil || zkerr.Classify(errors.Unwrap(err)) == zkerr.Final // what is refused is not asked for without end

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range due {
		one, ok := h.ids[id]
		if !ok {
			continue
		}
		pause := s.evidence.Timeout() / 3
		if answered {
			if one.looks++; one.looks == strayLooks {
				delete(h.ids, id)
				continue
			}
			pause <<= one.looks - 1
		}
		one.due = time.Now().Add(pause)
	}
}

// lookForStrays looks once for the strays in a directory whose names begin with
// name, behind their protection. left is nil if none is there; otherwise one is
// being removed, and left is closed when it is gone.
func (w scope) lookForStrays(ctx context.Context, dir, name string) (left <-chan struct{}, err error) {
	full := w.root.Fix(dir)
	if _, err := w.search(ctx, full); err != nil {
		return nil, err
	}
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	for path, gone := range w.in.discarding {
		parent, child := layout.Split(path)
		if _, base, ok := layout.CutProtection(child); ok && parent == full && strings.HasPrefix(base, name) {
			return gone, nil
		}
	}
	return nil, nil
}

// discardStrays discards the strays that a list shows.
func (s *session) discardStrays(dir string, names []string) {
	s.mu.Lock()
	var found []string
	if h := s.straySearches[dir]; h != nil {
		for _, name := range names {
			id := idOf(name)
			if _, ok := h.ids[id]; ok {
				found = append(found, name)
				delete(h.ids, id)
			}
		}
		if len(h.ids) == 0 {
			h.wake()
		}
	}
	s.mu.Unlock()
	for _, name := range found {
		s.discard(layout.Join(dir, name))
	}
}
