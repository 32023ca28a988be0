package framework

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
)

// A hunt looks for condemned ids in one directory: one goroutine, and a sync and a
// list a round for all of them, however many there are. An id is forgotten once it
// was found, or was looked for often enough.
type hunt struct {
	session *session
	dir     string
	changed chan struct{} // a token: ids came, or the last one went

	ids map[string]*condemned // guarded by session.mu
}

// condemned is an id that was given up.
type condemned struct {
	looks int       // that have not found it
	due   time.Time // when the next one is
}

// hunts is how often an id is looked for. The first look is at once, the second after
// a third of a session timeout, and each pause after that is twice as long as the one
// before: about 85 session timeouts in all.
const hunts = 9

// condemn remembers ids that were given up, and has them hunted. Every other list of
// the directory in this session helps.
func (s *session) condemn(dir string, ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	h := s.condemned[dir]
	isNew := h == nil
	if isNew {
		h = &hunt{session: s, dir: dir, changed: make(chan struct{}, 1), ids: make(map[string]*condemned)}
		if s.condemned == nil {
			s.condemned = make(map[string]*hunt)
		}
		s.condemned[dir] = h
	}
	for _, id := range ids {
		h.ids[id] = &condemned{due: time.Now()}
	}
	if isNew {
		s.core.tasks.Go(h.run) // begun before the session is over: Close waits for it
	} else {
		h.wake()
	}
}

func (h *hunt) wake() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// run ends with the last id, or with the session.
func (h *hunt) run() {
	var looked time.Time // zero: not yet
	for {
		wait, ok := h.next(looked)
		switch {
		case !ok:
			return
		case wait <= 0:
			looked = time.Now()
			h.look(looked)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-h.session.over:
		case <-h.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// next returns how long to wait for the next look, which is not directly after the
// latest one: ids that come one by one share looks. It reports false, and forgets the
// hunt, when there is nothing left to look for.
func (h *hunt) next(looked time.Time) (time.Duration, bool) {
	s := h.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || len(h.ids) == 0 {
		delete(s.condemned, h.dir)
		return 0, false
	}
	var due time.Time
	for _, c := range h.ids {
		if due.IsZero() || c.due.Before(due) {
			due = c.due
		}
	}
	if earliest := looked.Add(s.timeout / 32); !looked.IsZero() && due.Before(earliest) {
		due = earliest
	}
	return time.Until(due), true
}

// look lists the directory, which removes what the list shows of the condemned.
func (h *hunt) look(now time.Time) {
	s := h.session
	s.mu.Lock()
	var due []string // before the look: what comes later may not have been seen
	for id, c := range h.ids {
		if !c.due.After(now) {
			due = append(due, id)
		}
	}
	s.mu.Unlock()
	w := scope{core: s.core, in: s}
	err := w.sync(context.Background(), h.dir)
	if err == nil {
		_, _, err = w.children(context.Background(), h.dir)
	}
	if errors.Is(err, zk.ErrNoNode) { // so there is nothing in it
		err = nil
	}
	answered := err == nil || judge(errors.Unwrap(err)) == final // a refusal is not asked for ever

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range due {
		c, ok := h.ids[id]
		if !ok {
			continue
		}
		pause := s.timeout / 3
		if answered {
			if c.looks++; c.looks == hunts {
				delete(h.ids, id)
				continue
			}
			pause <<= c.looks - 1
		}
		c.due = time.Now().Add(pause)
	}
}

// sweep removes what a list shows of the condemned.
func (s *session) sweep(dir string, names []string) {
	s.mu.Lock()
	var found []string
	if h := s.condemned[dir]; h != nil {
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
		s.discard(join(dir, name))
	}
}
