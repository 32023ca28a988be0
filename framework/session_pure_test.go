package framework

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// What a server answers to a connect, and what the session is then.
func TestOnConnectAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		now := time.Now()
		sentAt, before := now.Add(-time.Second), now.Add(-2*time.Second)
		for name, tt := range map[string]struct {
			story  func(s *session)
			writes bool
			known  bool // an earlier connect was answered
			id     int64
			ok     bool
			err    error
			proven time.Time
		}{
			"new":                       {func(s *session) { s.id = 0 }, false, false, 7, true, nil, sentAt},
			"new, by writes":            {func(s *session) { s.id = 0 }, true, false, 7, true, nil, sentAt},
			"remembered, by writes":     {func(s *session) { s.id, s.remembered.id = 0, 7 }, true, false, 7, true, nil, time.Time{}},
			"again":                     {func(*session) {}, false, true, 7, true, nil, sentAt},
			"again, by writes":          {func(*session) {}, true, true, 7, true, nil, before},
			"more was proven meanwhile": {func(s *session) { s.evidence.Connect(6*time.Second, true, now, now) }, false, true, 7, true, nil, now},
			"severed":                   {func(s *session) { s.sever() }, false, true, 7, false, nil, before},
			"gone":                      {func(*session) {}, false, true, 0, true, errExpired, before},
		} {
			s := sessionAt(now, 4*time.Second, 0)
			s.id, s.useful, s.hungUp.since = 7, true, now
			s.evidence = evidenceOf(6*time.Second, 600*ms, tt.writes)
			if tt.known {
				s.evidence.Connect(6*time.Second, true, before, before)
			}
			tt.story(s)
			l := &link{named: s.id != 0 || s.remembered.id != 0}
			ok := s.onConnectAnswer(l, wire.ConnectResponse{SessionID: tt.id, Timeout: 3000, Password: []byte("secret")}, sentAt)
			proven := s.evidence.Deadline().Add(-s.evidence.Timeout())
			if ok != tt.ok || !errors.Is(s.err, tt.err) || tt.err == nil && s.err != nil || s.expired != (tt.err != nil) || !proven.Equal(tt.proven) {
				t.Errorf("%s: %t, %v, expired %t, proven %v ago", name, ok, s.err, s.expired, now.Sub(proven))
			}
			if !tt.ok || tt.err != nil {
				if s.link != nil || s.evidence.Timeout() != 6*time.Second {
					t.Errorf("%s: it counts", name)
				}
				continue
			}
			if s.id != 7 || string(s.password) != "secret" || s.evidence.Timeout() != 3*time.Second || s.evidence.Margin() != 300*ms || s.link != l || s.useful || s.hungUp != (hangUps{}) || !s.answered.Equal(now) ||
				!strings.Contains(s.evidence.Unprovable(now, 1).Error(), "takes 1s;") {
				t.Errorf("%s: %+v", name, s)
			}
		}
	})
}

// Whose session an answer is.
func TestIsAnother(t *testing.T) {
	for _, tt := range []struct {
		mine, answered int64
		want           bool
	}{{0, 7, false}, {7, 7, false}, {7, 0, false}, {7, 8, true}} {
		if got := (&session{id: tt.mine}).isAnother(tt.answered); got != tt.want {
			t.Errorf("%d in answer to %d: %t", tt.answered, tt.mine, got)
		}
	}
}

// Only the end of the connection on which a close was sent may stand for its
// answer, and only if the server has ended it in order.
func TestOnEnd(t *testing.T) {
	for _, tt := range []struct {
		stale  bool // an earlier connection ends
		closes bool
		err    error
		want   bool
	}{
		{false, true, io.EOF, true},
		{false, true, syscall.ECONNRESET, false},
		{false, true, net.ErrClosed, false},
		{false, false, io.EOF, false},
		{true, true, io.EOF, false},
		{true, false, io.EOF, false},
	} {
		l := &link{}
		s := &session{core: &core{}, link: l}
		if tt.stale {
			s.link = &link{}
		}
		if tt.closes {
			s.closeXid = 1
		}
		if s.onEnd(l, tt.err); s.closeEnded != tt.want {
			t.Errorf("%+v: %t", tt, s.closeEnded)
		}
	}
}

func TestOnAnswer(t *testing.T) {
	start := time.Now()
	l := &link{}
	s := sessionAt(start, 5*time.Second, 0)
	s.link, s.news = l, make(chan struct{})
	// The connect is reported, and a write proves it.
	s.evidence = evidenceOf(6*time.Second, 600*ms, true)
	proven := func() time.Time { return s.evidence.Deadline().Add(-6 * time.Second) }
	s.evidence.Connect(6*time.Second, true, start.Add(-time.Second), start)
	s.evidence.Connect(6*time.Second, false, start, start)
	s.evidence.Send(1, wire.OpMulti, true, start)
	s.evidence.Send(2, wire.OpCloseSession, false, start)
	s.evidence.Send(wire.XidPing, wire.OpPing, false, start)
	s.closeXid = 2
	now := start.Add(100 * ms)
	check := func(step string, answered, want time.Time, news, woken, confirmed bool) {
		t.Helper()
		if !s.answered.Equal(answered) || !proven().Equal(want) || (s.news == nil) != news || (len(s.wakeup) > 0) != woken || s.closeConfirmed != confirmed {
			t.Errorf("%s: answered %v, proven %v, news %t, woken %t, confirmed %t", step, s.answered, proven(), s.news == nil, len(s.wakeup) > 0, s.closeConfirmed)
		}
	}
	s.onAnswer(&link{}, 1, false, now)
	check("on another connection", time.Time{}, start.Add(-time.Second), false, false, false)
	s.onAnswer(l, 1, false, now)
	check("a proof", now, start, true, false, false)
	s.onAnswer(l, 2, true, now.Add(1))
	check("a close that is refused", now.Add(1), start, true, false, false)
	s.evidence.Send(2, wire.OpCloseSession, false, start)
	s.onAnswer(l, wire.XidPing, false, now.Add(2))
	check("a ping that has overtaken the close", now.Add(2), start, true, true, false)
	<-s.wakeup
	s.onAnswer(l, 2, false, now.Add(3))
	check("a close", now.Add(3), start, true, false, true)
	s.closeConfirmed, s.closeXid = false, 0
	s.evidence.Send(wire.XidPing, wire.OpPing, false, start)
	s.onAnswer(l, wire.XidPing, false, now.Add(4))
	check("a ping alone", now.Add(4), start, true, false, false)
	s.onAnswer(l, 0, false, now.Add(5))
	check("number 0, without a close", now.Add(5), start, true, false, false)
	s.evidence.Connect(6*time.Second, true, now, now)
	s.evidence.Connect(6*time.Second, false, start, now)
	s.evidence.Send(3, wire.OpMulti, true, now)
	s.news = make(chan struct{})
	s.onAnswer(l, 3, false, now.Add(6))
	check("an old contact", now.Add(6), now, false, false, false)
}

func TestOnSend(t *testing.T) {
	now := time.Now()
	l := &link{}
	s := sessionAt(now, 5*time.Second, 0)
	s.link = l
	sent := 0
	s.awaitSent("/a", func(on *link) { sent++ })
	for _, tt := range []struct {
		on     *link
		xid    int32
		op     wire.Op
		path   string
		notes  int
		prompt bool // what was noted should be answered within T/3
		sent   int
	}{
		{&link{}, 1, wire.OpCreate, "/b", 0, false, 0},
		{l, 2, wire.OpMulti, "/", 1, true, 0},
		{l, 3, wire.OpMulti, "/b", 1, false, 0},
		{l, 4, wire.OpCreate, "/", 1, false, 0},
		{l, 5, wire.OpCreate, "/a", 1, false, 1},
		{l, 6, wire.OpCreate, "/a", 1, false, 1},
		{l, 7, wire.OpCloseSession, "", 1, false, 1},
	} {
		s.evidence = evidenceAt(now, 5*time.Second, 0, 600*ms)
		ok := s.onSend(tt.on, tt.xid, tt.op, []byte(tt.path), now)
		_, silent := s.evidence.Silence(now.Add(2*time.Second), false)
		if n := s.evidence.Unanswered(); !ok || n != tt.notes || silent != tt.prompt || sent != tt.sent || s.closeXid != map[bool]int32{true: 7}[tt.xid == 7] {
			t.Errorf("%d: %t, %d noted, silent %t, sent %d, closed by %d", tt.xid, ok, n, silent, sent, s.closeXid)
		}
	}
	older, newer := s.awaitSent("/c", func(*link) {}), s.awaitSent("/c", func(*link) {})
	if s.forgetSent(older); len(s.unsent) != 1 {
		t.Error("who waits for a later write of the same path is forgotten")
	}
	if s.forgetSent(newer); len(s.unsent) != 0 {
		t.Error("a write that was not sent is remembered")
	}
	if s.sever(); s.onSend(l, 8, wire.OpPing, nil, now) || s.evidence.Unanswered() != 1 {
		t.Error("something is sent for a session that is severed")
	}
}

// The loss of a connection is explained by the latest malformed answer, unless
// that came before the call began.
func TestExplain(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		malformed error
		age       time.Duration // of the answer, when the call began
		explains  bool
	}{
		"there was none":           {nil, 0, false},
		"it came during the call":  {zkerr.Malformed, -1, true},
		"it came as the call did":  {zkerr.Malformed, 0, true},
		"it came before the call":  {zkerr.Malformed, 1, false},
		"there is no session, too": {nil, -1, false},
	} {
		s := sessionAt(now, 5*time.Second, 0)
		s.malformed, s.malformedAt = tt.malformed, now.Add(-tt.age)
		if name == "there is no session, too" {
			s = nil
		}
		if err := s.explain(zk.ErrConnectionClosed, now); !errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zkerr.Malformed) != tt.explains {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The deadline is far ahead from T/3 on.
func TestIsFarAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration]bool{2 * time.Second: true, 2*time.Second - 1: false} {
			if got := sessionAt(time.Now(), left, 0).isFarAhead(); got != want {
				t.Errorf("%v left: %t", left, got)
			}
		}
	})
}

// A margin that leaves no time for a round trip is an error at once.
func TestAMarginThatIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for margin, want := range map[time.Duration]error{2 * time.Second: nil, 4 * time.Second: ErrUnproven} {
			s := sessionAt(time.Now(), 5*time.Second, 0)
			s.evidence = evidenceAt(time.Now(), 5*time.Second, 0, margin)
			if _, err := s.isProvenToLast(); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("a margin of %v: %v", margin, err)
			}
		}
	})
}

// A session is ready if it is connected, and no end of a connection waits to be
// handled. It may connect as itself, until it is severed.
func TestIsReady(t *testing.T) {
	for name, tt := range map[string]struct {
		story func(s *session)
		want  bool
	}{
		"connected":         {func(s *session) { s.up = true }, true},
		"not":               {func(*session) {}, false},
		"an end is unseen":  {func(s *session) { s.up, s.unseenEnds = true, 1 }, false},
		"the session ended": {func(s *session) { s.up = true; s.end(ErrClosed) }, false},
	} {
		s := sessionAt(time.Now(), 5*time.Second, 0)
		if tt.story(s); s.isReady() != tt.want {
			t.Errorf("%s: ready %t", name, !tt.want)
		}
	}
	s := sessionAt(time.Now(), 5*time.Second, 0)
	if !s.mayConnect(0) || s.mostTimeout() != 0 {
		t.Error("a new session")
	}
	s.id = 7
	if !s.mayConnect(7) || s.mostTimeout() != 6*time.Second || s.err != nil {
		t.Error("the same again")
	}
	if s.mayConnect(0) || !errors.Is(s.err, errExpired) {
		t.Errorf("another one: %v", s.err)
	}
	s = sessionAt(time.Now(), 5*time.Second, 0)
	if s.sever(); s.mayConnect(0) || s.err != nil {
		t.Errorf("severed: %v", s.err)
	}
}

// A session that is over is not connected any more.
func TestAConnectionThatComesTooLate(t *testing.T) {
	s, _ := standing()
	s.core.changed = make(chan struct{})
	s.up = false
	s.end(ErrSessionLost)
	if s.onConnected(); s.up || s.core.state != Connecting || s.core.session != nil {
		t.Errorf("up %t, state %v", s.up, s.core.state)
	}
}
