package writes

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// Ids that are given up one by one share looks: the next look is a while after
// the latest.
func TestTheNextLookForStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		s := idleWrites(32 * time.Second)
		h := &straySearch{strays: &strays{session: s}, ids: map[string]*stray{"a": {due: now}, "b": {due: now.Add(time.Hour)}}}
		for _, tt := range []struct {
			looked time.Time
			want   time.Duration
		}{
			{time.Time{}, 0},
			{now.Add(-time.Second), 0},
			{now.Add(-time.Second / 4), time.Second * 3 / 4},
			{now, time.Second},
		} {
			if wait, ok := h.next(tt.looked); !ok || wait != tt.want {
				t.Errorf("looked %v ago: next in %v, %v, want %v", now.Sub(tt.looked), wait, ok, tt.want)
			}
		}
	})
}

// The search for strays ends with the last id, or with the session, and the
// directory is forgotten.
func TestTheSearchForStraysEnds(t *testing.T) {
	for name, end := range map[string]func(s *Writes, h *straySearch){
		"the last id":      func(_ *Writes, h *straySearch) { h.ids = nil },
		"of the session":   func(s *Writes, _ *straySearch) { s.End(zkerr.SessionLost) },
		"nothing has, yet": nil,
	} {
		s := idleWrites(6 * time.Second)
		h := &straySearch{strays: &s.strays, dir: "/a", ids: map[string]*stray{"x": {due: time.Now()}}}
		s.strays = strays{session: s, searches: map[string]*straySearch{"/a": h}}
		if end != nil {
			end(s, h)
		}
		if _, ok := h.next(time.Time{}); ok != (end == nil) || (s.strays.searches["/a"] == h) != ok {
			t.Errorf("%s: goes on %t, %v", name, ok, s.strays.searches)
		}
	}
}
