package ops

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/test/standing"
)

// What a create has made in a session that is over does not count in the next,
// whatever its answer was, and whichever came first.
func TestEphemeralsOfASessionThatIsOver(t *testing.T) {
	for answer, err := range map[string]error{"made": nil, "unknown": zk.ErrConnectionClosed, "refused": zk.ErrNodeExists} {
		c := New(Config{MaxRequest: standing.MaxRequest}, nil, noClient{}, noObserver{}, nil, nil)
		e := &c.ephemerals
		first, second := &Session{Client: c}, &Session{Client: c}
		settle := func(tried *Session) {
			claim, failed := e.claim(t.Context(), nil, 10, Allowance{reserve: 5})
			if failed != nil {
				t.Fatal(failed)
			}
			claim.tryIn(tried)
			e.begin(second)
			claim.Settle(err, "/e/znode")
		}
		e.begin(first)
		settle(first)
		if e.sum != 0 {
			t.Errorf("%s: %d bytes", answer, e.sum)
		}
		settle(second)
		if counts := answer != "refused"; e.sum > 0 != counts {
			t.Errorf("%s: %d bytes after a try in the next session", answer, e.sum)
		}
	}
}

// What is found out between a question and its answer is later than the answer.
func TestAnAnswerThatIsOlderThanWhatIsKnown(t *testing.T) {
	const path = "/e/znode"
	for name, test := range map[string]struct {
		before, after func(*ephemerals)
		found         []string
		counts        bool
	}{
		"made again, and somebody had deleted it": {isMade, isMade, nil, true},
		"made":                              {nothing, isMade, nil, true},
		"deleted":                           {isMade, isDeleted, []string{path}, false},
		"deleted and made again":            {isMade, func(e *ephemerals) { isDeleted(e); isMade(e) }, nil, true},
		"somebody has deleted it":           {isMade, nothing, nil, false},
		"it was not known":                  {nothing, nothing, []string{path}, true},
		"made, and was known to be deleted": {isMade, func(e *ephemerals) { isMade(e); isDeleted(e) }, []string{path}, false},
	} {
		c := New(Config{MaxRequest: standing.MaxRequest}, nil, noClient{}, noObserver{}, nil, nil)
		e := &c.ephemerals
		test.before(e)
		e.beginCountLocked()
		test.after(e)
		e.endCountLocked(test.found, nil)
		if counts := e.sum == request.TextSize(path); counts != test.counts || !counts && e.sum != 0 {
			t.Errorf("%s: %d bytes", name, e.sum)
		}
	}
}

// A create was tried again with another name, since the first answer was lost.
// Once it is known that the first one has made nothing, the znode takes up the
// room that was reserved for it, and counts once.
func TestAZnodeBesideItsRoomMovesIn(t *testing.T) {
	c := New(Config{MaxRequest: standing.MaxRequest}, nil, noClient{}, noObserver{}, nil, nil)
	e := &c.ephemerals
	s := &Session{Client: c}
	e.begin(s)
	const path = "/e/znode"
	r, drop, err := e.keep(t.Context(), "/e/", request.TextSize(path), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range []error{zk.ErrConnectionClosed, nil} {
		claim, err := e.claim(t.Context(), s, request.TextSize(path), Allowance{room: r})
		if err != nil {
			t.Fatal(err)
		}
		claim.Settle(answer, path)
	}
	if e.sum != 2*request.TextSize(path) {
		t.Errorf("%d bytes while the first outcome is unknown", e.sum)
	}
	e.beginCountLocked()
	e.endCountLocked([]string{path}, nil)
	if e.sum != request.TextSize(path) || r.left != 0 {
		t.Errorf("%d bytes, and %d are left in the room", e.sum, r.left)
	}
	e.remove(path)
	if e.sum != request.TextSize(path) || r.left != e.sum {
		t.Errorf("without the znode: %d bytes, and %d are left in the room", e.sum, r.left)
	}
	if drop(); e.sum != 0 {
		t.Errorf("at last: %d bytes", e.sum)
	}
}

func nothing(*ephemerals)     {}
func isMade(e *ephemerals)    { e.addMadeLocked("/e/znode", nil) }
func isDeleted(e *ephemerals) { e.remove("/e/znode") }
