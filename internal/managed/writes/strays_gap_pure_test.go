package writes

import (
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// A stray that a list has shown is looked for, or being removed, at any moment:
// LookForStrays says that none is left when it is neither.
func TestAStrayIsAlwaysKnown(t *testing.T) {
	const strays = 500 // whose answers were lost with one connection
	s := idleWrites(6 * time.Second)
	defer s.tasksEnd()
	y := &s.strays
	h := &straySearch{strays: y, dir: "/a", changed: make(chan struct{}, 1), ids: make(map[string]*stray)}
	y.searches = map[string]*straySearch{"/a": h}
	var names []string
	for i := range strays {
		id := fmt.Sprintf("00000000-0000-0000-0000-%012d", i)
		h.ids[id] = &stray{due: time.Now()}
		names = append(names, layout.Protect(id, "member-")+"0000000000")
	}
	listed := make(chan struct{})
	go func() {
		defer close(listed)
		s.Listed("/a", names) // by a watch, say
	}()
	unknown := 0
	for done := false; !done; {
		select {
		case <-listed:
			done = true
		default:
		}
		y.mu.Lock()
		now := strays - len(h.ids) - len(y.discarding)
		y.mu.Unlock()
		unknown = max(unknown, now)
	}
	if unknown > 0 {
		t.Errorf("up to %d strays of %d are neither looked for nor being removed", unknown, strays)
	}
}

// tasksEnd ends the session, and so what removes strays.
func (s *Writes) tasksEnd() { s.End(zkerr.SessionLost) }
