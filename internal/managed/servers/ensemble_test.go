package servers

import (
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Two ensembles are told apart by the chroot, and without one by the latest
// transaction. What is not known vouches for nothing.
func TestDiffers(t *testing.T) {
	for name, tt := range map[string]struct {
		known  *ensemble
		root   string
		stat   wire.Stat
		latest int64
		says   string // "": it is the same
	}{
		"nothing is known":                     {&ensemble{}, "/", wire.Stat{}, 9, "nothing is known"},
		"nothing of the chroot":                {&ensemble{seen: 5}, "/app", wire.Stat{Czxid: 3, Ctime: 7}, 9, "nothing is known"},
		"without a chroot":                     {&ensemble{seen: 5}, "/", wire.Stat{}, 5, ""},
		"without one, behind":                  {&ensemble{seen: 5}, "/", wire.Stat{}, 4, "its latest transaction is 0x4, this client has seen 0x5"},
		"without one, the root does not count": {&ensemble{czxid: 3, seen: 5}, "/", wire.Stat{Czxid: 4}, 5, ""},
		"the same chroot":                      {&ensemble{czxid: 3, ctime: 7, seen: 5}, "/app", wire.Stat{Czxid: 3, Ctime: 7}, 5, ""},
		"the same chroot, behind":              {&ensemble{czxid: 3, ctime: 7, seen: 5}, "/app", wire.Stat{Czxid: 3, Ctime: 7}, 4, ""},
		"another transaction made it":          {&ensemble{czxid: 3, ctime: 7, seen: 5}, "/app", wire.Stat{Czxid: 4, Ctime: 7}, 5, "its chroot /app was created by transaction 0x4 at 7, not by 0x3 at 7"},
		"at another time":                      {&ensemble{czxid: 3, ctime: 7, seen: 5}, "/app", wire.Stat{Czxid: 3, Ctime: 8}, 5, "at 8, not by 0x3 at 7"},
		"it has none":                          {&ensemble{czxid: 3, ctime: 7, seen: 5}, "/app", wire.Stat{}, 5, "its chroot /app"},
	} {
		if got := tt.known.differs(tt.root, tt.stat, tt.latest); (got == "") != (tt.says == "") || !strings.Contains(got, tt.says) {
			t.Errorf("%s: %q, want %q", name, got, tt.says)
		}
	}
}

// What was seen before is kept if nothing was seen since. A chroot that is
// missing is forgotten.
func TestWhatIsNotedOfTheEnsemble(t *testing.T) {
	s := of(Config{})
	s.NoteRoot(3, 7, 5)
	s.NoteRoot(4, 8, 0)
	if e := &s.ensemble; e.czxid != 4 || e.ctime != 8 || e.seen != 5 {
		t.Errorf("created by %d at %d, seen %d", e.czxid, e.ctime, e.seen)
	}
	s.NoteRoot(0, 0, 6)
	s.NoteEarlier(Orphan{ID: 1}, 0)
	if e := &s.ensemble; e.czxid != 0 || e.ctime != 0 || e.seen != 6 {
		t.Errorf("created by %d at %d, seen %d", e.czxid, e.ctime, e.seen)
	}
	s.NoteEarlier(Orphan{ID: 2}, 7)
	s.NoteEarlier(Orphan{}, 8) // no server has ever answered
	if s.ensemble.seen != 7 || s.Earlier() != 2 {
		t.Errorf("seen %d, %d earlier sessions", s.ensemble.seen, s.Earlier())
	}
}
