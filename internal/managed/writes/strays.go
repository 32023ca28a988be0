package writes

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// strays are the znodes of a session that it must not leave behind: those that
// may still appear, of protected creates whose callers were told that they have
// failed, and those that are being removed.
type strays struct {
	session *Writes

	mu         sync.Mutex               // guards what follows
	searches   map[string]*straySearch  // by directory
	discarding map[string]chan struct{} // by path, being removed; closed: it is gone
}

// straySearch looks for strays in one directory. All strays of a directory
// share one goroutine, and each round costs a sync and a list. An id is
// forgotten once its znode was found, or was looked for often enough.
type straySearch struct {
	strays  *strays
	dir     string
	changed chan struct{} // a token: ids were added, or the last one was removed

	ids map[string]*stray // guarded by strays.mu
}

// stray is an id under which a znode may still appear.
type stray struct {
	looks int       // that have not found it
	due   time.Time // when the next one is
}

// strayLooks is how often an id is looked for. The first look is immediate, the
// second after a third of a session timeout, and each further pause is twice as
// long as the one before: about 85 session timeouts in all.
const strayLooks = 9

// expect starts to look for the znodes with these ids. Any other list of the
// directory in this session also finds them.
func (y *strays) expect(dir string, ids ...string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	h := y.searches[dir]
	isNew := h == nil
	if isNew {
		h = &straySearch{strays: y, dir: dir, changed: make(chan struct{}, 1), ids: make(map[string]*stray)}
	}
	for _, id := range ids {
		h.ids[id] = &stray{due: time.Now()}
	}
	switch {
	case !isNew:
		h.wake()
	case y.session.Begin(h.run): // which waits for y.mu
		if y.searches == nil {
			y.searches = make(map[string]*straySearch)
		}
		y.searches[dir] = h
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
		case <-h.strays.session.Over():
		case <-h.changed:
		case <-time.After(wait):
		}
	}
}

// next returns how long to wait for the next look. There is a pause after each
// look, so that ids that are added one by one share looks. If there is nothing
// left to look for, it ends the search and reports false.
func (h *straySearch) next(looked time.Time) (time.Duration, bool) {
	y := h.strays
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.session.Err() != nil || len(h.ids) == 0 {
		delete(y.searches, h.dir)
		return 0, false
	}
	var due time.Time
	for _, one := range h.ids {
		if due.IsZero() || one.due.Before(due) {
			due = one.due
		}
	}
	if earliest := looked.Add(y.session.Timeout() / 32); !looked.IsZero() && due.Before(earliest) {
		due = earliest
	}
	return time.Until(due), true
}

// search lists the directory. The list discards the strays that it shows.
func (h *straySearch) search(now time.Time) {
	y := h.strays
	y.mu.Lock()
	var due []string // chosen before the list, which may not show what is added later
	for id, one := range h.ids {
		if !one.due.After(now) {
			due = append(due, id)
		}
	}
	y.mu.Unlock()
	_, err := y.session.search(context.Background(), ops.Scope{Client: y.session.Client, In: y.session.Session, Patient: true}, h.dir)
	answered := err == nil || zkerr.Classify(errors.Unwrap(err)) == zkerr.Final // what is refused is not asked for without end

	timeout := y.session.Timeout()
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, id := range due {
		one, ok := h.ids[id]
		if !ok {
			continue
		}
		pause := timeout / 3
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

// LookForStrays looks once for the znodes dir/_c_<uuid>-name... of protected
// creates of this session that have failed. left is nil if none is there.
// Otherwise one is being removed, and left is closed when it is gone. A create
// that is executed later is still looked for.
func (s *Writes) LookForStrays(w ops.Scope, dir, name string) (left <-chan struct{}, err error) {
	full, y := w.Root.Fix(dir), &s.strays
	if _, err := s.search(context.Background(), w, full); err != nil {
		return nil, err
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	for path, gone := range y.discarding {
		parent, child := layout.Split(path)
		if _, base, ok := layout.CutProtection(child); ok && parent == full && strings.HasPrefix(base, name) {
			return gone, nil
		}
	}
	return nil, nil
}

// Lost returns how many ids of creates that were given up are looked for, and
// in how many directories.
func (s *Writes) Lost() (ids, directories int) {
	y := &s.strays
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, h := range y.searches {
		ids += len(h.ids)
	}
	return ids, len(y.searches)
}

// onList discards the strays that a list shows.
func (y *strays) onList(dir string, names []string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	h := y.searches[dir]
	if h == nil {
		return
	}
	for _, name := range names {
		id := idOf(name)
		if _, ok := h.ids[id]; ok {
			delete(h.ids, id)
			y.discardLocked(layout.Join(dir, name)) // with the same lock: see LookForStrays
		}
	}
	if len(h.ids) == 0 {
		h.wake()
	}
}

// Pauses between the attempts to delete a znode that the session may not
// delete.
const (
	forbiddenPause        = 5 * time.Second
	longestForbiddenPause = time.Minute
)

// discard deletes a znode in the background, while the session lives. The
// channel it returns is closed when the znode is gone, or the session is over.
func (y *strays) discard(full string) <-chan struct{} {
	if s := y.session; s.Err() != nil {
		return s.Over()
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.discardLocked(full)
}

func (y *strays) discardLocked(full string) <-chan struct{} {
	s := y.session
	if done, already := y.discarding[full]; already {
		return done
	}
	done := make(chan struct{})
	begun := s.Begin(func() {
		if !s.deleteUntilGone(full) {
			<-s.Over() // the client is closing: the session ends before Close waits
		}
		y.mu.Lock()
		defer y.mu.Unlock()
		delete(y.discarding, full)
		close(done)
	})
	if !begun {
		return s.Over()
	}
	if y.discarding == nil {
		y.discarding = make(map[string]chan struct{})
	}
	y.discarding[full] = done
	return done
}

// deleteUntilGone retries to delete a znode until it is gone. It reports false
// if the session is over or the client closes first.
func (s *Writes) deleteUntilGone(full string) bool {
	w := ops.Scope{Client: s.Client, In: s.Session, Patient: true}
	for pause, logged := forbiddenPause, false; ; {
		err := s.leave(context.Background(), w, full, logged, false)
		if err == nil || errors.Is(err, zk.ErrNoNode) {
			return true
		}
		if errors.Is(err, zkerr.Closed) || s.Err() != nil {
			return false
		}
		rest := time.Second // the budget of the policy is used up: begin another
		if zkerr.Classify(errors.Unwrap(err)) == zkerr.Final {
			// Most likely an ACL. It may be corrected, and then the znode must
			// not stay for as long as this process lives.
			if !logged {
				s.Client.Config.Log.Error("cannot remove a znode of this session, will try again", zap.String("znode", full),
					zap.String("session", wire.SessionText(s.Chain().ID())), zap.Error(err))
			}
			rest, pause, logged = pause, min(2*pause, longestForbiddenPause), true
		}
		if closed.Within(rest, s.Over()) {
			return false
		}
	}
}
