package ephemerals

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

const (
	znodePath = "/e/znode"
	enough    = 1 << 20
)

// What a create has made in a session that is over does not count in the next,
// whatever its answer was, and whichever came first.
func TestASessionThatIsOver(t *testing.T) {
	for answer, err := range map[string]error{"made": nil, "unknown": zk.ErrConnectionClosed, "refused": zk.ErrNodeExists} {
		a := New(Config{MaxRequest: enough}, &client{})
		first, second := &Session{}, &Session{}
		settle := func(tried *Session) {
			claim, _ := a.Claim(nil, 10, Allowance{reserve: 5}, a.Limit())
			claim.TryIn(tried)
			a.Begin(second)
			claim.Settle(err, znodePath)
		}
		a.Begin(first)
		settle(first)
		if a.sum != 0 {
			t.Errorf("%s: %d bytes", answer, a.sum)
		}
		settle(second)
		if counts := answer != "refused"; a.sum > 0 != counts {
			t.Errorf("%s: %d bytes after a try in the next session", answer, a.sum)
		}
	}
}

// What is found out between a question and its answer is later than the answer.
func TestAnAnswerThatIsOlderThanWhatIsKnown(t *testing.T) {
	for name, test := range map[string]struct {
		before, after func(*Account)
		found         []string
		counts        bool
	}{
		"made again, and somebody had deleted it": {isMade, isMade, nil, true},
		"made":                              {nothing, isMade, nil, true},
		"deleted":                           {isMade, isDeleted, []string{znodePath}, false},
		"deleted and made again":            {isMade, func(a *Account) { isDeleted(a); isMade(a) }, nil, true},
		"somebody has deleted it":           {isMade, nothing, nil, false},
		"it was not known":                  {nothing, nothing, []string{znodePath}, true},
		"made, and was known to be deleted": {isMade, func(a *Account) { isMade(a); isDeleted(a) }, []string{znodePath}, false},
	} {
		a := New(Config{MaxRequest: enough}, &client{})
		test.before(a)
		a.BeginCount(0)
		test.after(a)
		if _, err := a.EndCount(test.found, isTrue); err != nil {
			t.Error(err)
		}
		if counts := a.sum == request.TextSize(znodePath); counts != test.counts || !counts && a.sum != 0 {
			t.Errorf("%s: %d bytes", name, a.sum)
		}
	}
}

// Who asks while another question is under way waits for that, and an answer
// that is none changes nothing.
func TestQuestions(t *testing.T) {
	a := New(Config{MaxRequest: enough}, &client{})
	isMade(a)
	if begun, _ := a.BeginCount(time.Hour); !begun {
		t.Fatal("the first question has to wait")
	}
	begun, under := a.BeginCount(0)
	if begun || under == nil {
		t.Fatal("two questions at the same time")
	}
	lost := errors.New("lost")
	if more, err := a.EndCount(nil, func() error { return lost }); more || !errors.Is(err, lost) || a.sum == 0 {
		t.Errorf("after no answer: %t, %v, %d bytes", more, err, a.sum)
	}
	select {
	case <-under:
	default:
		t.Error("nobody is told that the question has ended")
	}
	if begun, _ := a.BeginCount(time.Hour); !begun {
		t.Fatal("the next question waits for a pause, although there was no answer")
	}
	if more, err := a.EndCount(nil, isTrue); !more || err != nil || a.sum != 0 {
		t.Errorf("after an answer: %t, %v, %d bytes", more, err, a.sum)
	}
	if begun, under := a.BeginCount(time.Hour); begun || under != nil {
		t.Error("no pause after an answer")
	}
	a.Begin(&Session{})
	if begun, _ := a.BeginCount(time.Hour); !begun {
		t.Error("a pause in the next session")
	}
}

// A create was tried again with another name, since the first answer was lost.
// Once it is known that the first one has made nothing, the znode takes up the
// room that was reserved for it, and counts once.
func TestAZnodeBesideItsRoomMovesIn(t *testing.T) {
	a := New(Config{MaxRequest: enough}, &client{})
	s := &Session{}
	a.Begin(s)
	r := &Room{left: request.TextSize(znodePath)}
	a.kept["/e/"], a.sum = r, r.left
	for _, answer := range []error{zk.ErrConnectionClosed, nil} {
		claim, _ := a.Claim(s, request.TextSize(znodePath), Allowance{}.InRoom(r), a.Limit())
		claim.Settle(answer, znodePath)
	}
	if a.sum != 2*request.TextSize(znodePath) {
		t.Errorf("%d bytes while the first outcome is unknown", a.sum)
	}
	a.BeginCount(0)
	_, _ = a.EndCount([]string{znodePath}, isTrue)
	if a.sum != request.TextSize(znodePath) || r.left != 0 {
		t.Errorf("%d bytes, and %d are left in the room", a.sum, r.left)
	}
	a.Remove(znodePath)
	if a.sum != request.TextSize(znodePath) || r.left != a.sum {
		t.Errorf("without the znode: %d bytes, and %d are left in the room", a.sum, r.left)
	}
	if a.Drop("/e/", r); a.sum != 0 {
		t.Errorf("at last: %d bytes", a.sum)
	}
}

// What is refused, and that it says so; and what a limit does not hold for.
func TestRefused(t *testing.T) {
	a := New(Config{MaxRequest: enough, Max: 100}, &client{})
	if c, why := a.Claim(nil, 90, Allowance{}.Reserving("/d/n", 1), a.Limit()); c != nil || why.Reserved || why.Sum != 0 || why.More != 90+protectedSize("/d/n") || why.Limit != 100 || !IsFull(why.Err()) || !errors.Is(why.Err(), zkerr.TooLarge) {
		t.Errorf("with what it reserves: %v, %+v", c, why)
	}
	if IsFull(zkerr.TooLarge) {
		t.Error("a request that is too large is no session that is full")
	}
	all, _ := a.Claim(nil, 100, Allowance{}, a.Limit())
	if all == nil {
		t.Fatal("no room for as much as the limit")
	}
	if r, why := a.Keep(znodePath, false, a.Limit()); r != nil || why.Sum != 100 || why.More != request.TextSize(znodePath) {
		t.Errorf("a room in what is full: %v, %+v", r, why)
	}
	r, _ := a.Keep(znodePath, false, math.MaxInt)
	if r == nil {
		t.Fatal("refused without a limit")
	}
	if c, _ := a.Claim(nil, request.TextSize(znodePath), Allowance{}.InRoom(r), a.Limit()); c == nil {
		t.Error("no room in a room")
	}
	if c, _ := a.Claim(nil, request.TextSize(znodePath), Allowance{}.InRoom(r), a.Limit()); c == nil {
		t.Error("no room for the same znode, although it is one")
	}
	contenders, _ := a.Keep("/d/n", true, math.MaxInt)
	if c, why := a.Claim(nil, protectedSize("/d/n")+1, Allowance{}.InRoom(contenders), a.Limit()); c != nil || !why.Reserved {
		t.Errorf("more than its room: %v, %+v", c, why)
	}
}

// The client is told of each percent, and that the sum is large once until it
// was small; and it asks once what many creates of unknown outcome have made.
func TestWhatIsTold(t *testing.T) {
	told := &client{large: make(chan struct{}, 9), unsure: make(chan struct{}, 9)}
	a := New(Config{Client: 7, MaxRequest: 2000, SessionTimeout: time.Minute}, told)
	claim := func(size int) *Claim {
		c, _ := a.Claim(nil, size, Allowance{}, a.Limit())
		return c
	}
	isLarge := claim(1500)
	<-told.large
	if want := []Change{{7, 1500, 3000, 50}}; !slices.Equal(told.changes, want) {
		t.Errorf("%v, want %v", told.changes, want)
	}
	claim(1)
	if len(told.changes) != 1 {
		t.Errorf("less than a percent: %v", told.changes)
	}
	if !a.BeginLook() || a.BeginLook() {
		t.Error("it is not looked once in a session timeout")
	}
	if sum, large := a.EndLook(); sum != 1501 || !large {
		t.Errorf("%d bytes, large: %t", sum, large)
	}
	isLarge.Settle(zk.ErrNodeExists)
	if sum, large := a.EndLook(); sum != 1 || large {
		t.Errorf("%d bytes, large: %t", sum, large)
	}
	for n := range 2 * mostUnsure {
		if claim(1).Settle(zk.ErrConnectionClosed); n == mostUnsure {
			<-told.unsure
		}
	}
	if a.Resolved(false); a.sum != 1+2*mostUnsure {
		t.Errorf("%d bytes", a.sum)
	}
	if a.Resolved(true); a.sum != 1 {
		t.Errorf("%d bytes after it is known that they do not count", a.sum)
	}
	if len(told.unsure)+len(told.large) > 0 {
		t.Error("told twice")
	}
}

// A znode of the session is that of a create only if no other one was open at
// the same time.
func TestOpenCreates(t *testing.T) {
	var s Session
	end := s.Begin(znodePath)
	if end(true); s.Resolve(znodePath) {
		t.Error("one create is taken for several")
	}
	first, second := s.Begin(znodePath), s.Begin(znodePath)
	first(false)
	first(false) // counts once
	second(true)
	if !s.Resolve(znodePath) || len(s.open) > 0 {
		t.Errorf("two creates at a time are taken for one, or are still open: %v", s.open)
	}
	s.Begin()(false)
	for flags, fixed := range map[int32]bool{
		zk.FlagEphemeral: true, zk.FlagEphemeral | zk.FlagSequence: false, zk.FlagPersistent: false, zk.FlagContainer: false, zk.FlagTTL: false,
	} {
		if paths := Fixed(znodePath, flags); (len(paths) == 1) != fixed {
			t.Errorf("flags %d: %q", flags, paths)
		}
	}
}

func nothing(*Account)     {}
func isMade(a *Account)    { a.mu.Lock(); a.addLocked(znodePath, nil); a.unlock() }
func isDeleted(a *Account) { a.Remove(znodePath) }
func isTrue() error        { return nil }

// client hears what an account tells.
type client struct {
	changes       []Change
	large, unsure chan struct{}
}

func (c *client) Changed(change Change) { c.changes = append(c.changes, change) }
func (c *client) Large()                { c.large <- struct{}{} }
func (c *client) Unsure()               { c.unsure <- struct{}{} }
