package session

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// What the answer to a connect means for the proof.
func TestConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		now := time.Now()
		sentAt, before := now.Add(-time.Second), now.Add(-2*time.Second)
		for name, tt := range map[string]struct {
			story  func(s *Session)
			writes bool
			known  bool // an earlier connect was answered
			isNew  bool
			proven time.Time
		}{
			"new":                       {func(*Session) {}, false, false, true, sentAt},
			"new, by writes":            {func(*Session) {}, true, false, true, sentAt},
			"remembered, by writes":     {func(*Session) {}, true, false, false, time.Time{}},
			"again":                     {func(*Session) {}, false, true, false, sentAt},
			"again, by writes":          {func(*Session) {}, true, true, false, before},
			"more was proven meanwhile": {func(s *Session) { s.evidence.Connect(6*time.Second, true, now, now) }, false, true, false, now},
		} {
			s := sessionAt(now, 4*time.Second, 0)
			s.useful, s.hungUp.since = true, now
			s.servers.NoteResumed(false)
			s.evidence = evidenceOf(6*time.Second, 600*ms, tt.writes)
			if tt.known {
				s.evidence.Connect(6*time.Second, true, before, before)
			}
			tt.story(s)
			l := &link.Link{}
			connections{s}.Connected(l, 3*time.Second, tt.isNew, sentAt, now)
			proven := s.evidence.Deadline().Add(-s.evidence.Timeout())
			if s.err != nil || !proven.Equal(tt.proven) || s.servers.ResumesNone() != tt.isNew {
				t.Errorf("%s: %v, proven %v ago, resumes none %t", name, s.err, now.Sub(proven), s.servers.ResumesNone())
			}
			if s.evidence.Timeout() != 3*time.Second || s.evidence.Margin() != 300*ms || s.link != l || s.useful || !s.hungUp.since.IsZero() ||
				!strings.Contains(s.evidence.Unprovable(now, 1).Error(), "takes 1s;") {
				t.Errorf("%s: %+v", name, s)
			}
		}
	})
}

// A session that the ensemble does not have is over and severed.
func TestExpired(t *testing.T) {
	s := sessionAt(time.Now(), 4*time.Second, 0)
	connections{s}.Expired()
	if !errors.Is(s.err, errExpired) || !s.expired || !s.chain.IsSevered() {
		t.Errorf("%v, expired %t, severed %t", s.err, s.expired, s.chain.IsSevered())
	}
}

// Only the connection that the session has noted last may be used, and only
// while the session is ready.
func TestIsUp(t *testing.T) {
	s, on := standing()
	if !(connections{s}).IsUp(on) || s.chain.Usable() != on {
		t.Error("a connection that is ready")
	}
	if (connections{s}).IsUp(&link.Link{}) || (connections{s}).IsUp(nil) {
		t.Error("another one is taken for it")
	}
	s.unseenEnds = 1
	if (connections{s}).IsUp(on) || s.chain.Usable() != nil {
		t.Error("its end is unseen")
	}
	s.unseenEnds = 0
	next := confirmed(s, 7, &script.Recorder{})
	s.link = on // the session has not noted the next one yet, and was up before
	if s.up = true; s.chain.Latest() != next || s.chain.Usable() != nil {
		t.Error("that the last connection was up is taken for the next one's")
	}
}

func TestAnswered(t *testing.T) {
	start := time.Now()
	l := &link.Link{}
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
	now := start.Add(100 * ms)
	check := func(step string, want time.Time, news, woken bool) {
		t.Helper()
		if !proven().Equal(want) || (s.news == nil) != news || (len(s.wakeup) > 0) != woken {
			t.Errorf("%s: proven %v, news %t, woken %t", step, proven(), s.news == nil, len(s.wakeup) > 0)
		}
	}
	connections{s}.Answered(&link.Link{}, 1, false, now)
	check("on another connection", start.Add(-time.Second), false, false)
	connections{s}.Answered(l, 1, false, now)
	check("a proof", start, true, false)
	connections{s}.Answered(l, 2, true, now.Add(1))
	check("a close that is refused", start, true, false)
	s.evidence.Send(2, wire.OpCloseSession, false, start)
	connections{s}.Answered(l, wire.XidPing, false, now.Add(2))
	check("a ping that has overtaken the close", start, true, true)
	<-s.wakeup
	connections{s}.Answered(l, 2, false, now.Add(3))
	check("a close", start, true, false)
	s.evidence.Send(wire.XidPing, wire.OpPing, false, start)
	connections{s}.Answered(l, wire.XidPing, false, now.Add(4))
	check("a ping alone", start, true, false)
	s.evidence.Connect(6*time.Second, true, now, now)
	s.evidence.Connect(6*time.Second, false, start, now)
	s.evidence.Send(3, wire.OpMulti, true, now)
	s.news = make(chan struct{})
	connections{s}.Answered(l, 3, false, now.Add(6))
	check("an old contact", now, false, false)
}

func TestSent(t *testing.T) {
	now := time.Now()
	l := &link.Link{}
	s := sessionAt(now, 5*time.Second, 0)
	s.link = l
	for _, tt := range []struct {
		on     *link.Link
		xid    int32
		op     wire.Op
		check  bool
		notes  int
		prompt bool // what was noted should be answered within T/3
	}{
		{&link.Link{}, 1, wire.OpCreate, false, 0, false},
		{l, 2, wire.OpMulti, true, 1, true},
		{l, 3, wire.OpMulti, false, 1, false},
		{l, 4, wire.OpCreate, false, 1, false},
		{l, 7, wire.OpCloseSession, false, 1, false},
	} {
		s.evidence = evidenceAt(now, 5*time.Second, 0, 600*ms)
		connections{s}.Sent(tt.on, tt.xid, tt.op, tt.check, now)
		_, silent := s.evidence.Silence(now.Add(2*time.Second), false)
		if n := s.evidence.Unanswered(); n != tt.notes || silent != tt.prompt {
			t.Errorf("%d: %d noted, silent %t", tt.xid, n, silent)
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
		for margin, want := range map[time.Duration]error{2 * time.Second: nil, 4 * time.Second: zkerr.Unproven} {
			s := sessionAt(time.Now(), 5*time.Second, 0)
			s.evidence = evidenceAt(time.Now(), 5*time.Second, 0, margin)
			if _, err := s.isProvenToLast(); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("a margin of %v: %v", margin, err)
			}
		}
	})
}

// A session is ready if it is connected, and no end of a connection waits to be
// handled.
func TestIsReady(t *testing.T) {
	for name, tt := range map[string]struct {
		story func(s *Session)
		want  bool
	}{
		"connected":         {func(s *Session) { s.up = true }, true},
		"not":               {func(*Session) {}, false},
		"an end is unseen":  {func(s *Session) { s.up, s.unseenEnds = true, 1 }, false},
		"the session ended": {func(s *Session) { s.up = true; s.End(zkerr.Closed) }, false},
	} {
		s := sessionAt(time.Now(), 5*time.Second, 0)
		if tt.story(s); s.IsReady() != tt.want {
			t.Errorf("%s: ready %t", name, !tt.want)
		}
	}
}

// A session that is over is not connected any more.
func TestAConnectionThatComesTooLate(t *testing.T) {
	s, _ := standing()
	s.up = false
	s.End(zkerr.SessionLost)
	if s.onConnected(); s.up || above(s).connected > 0 {
		t.Errorf("up %t, told %d times", s.up, above(s).connected)
	}
}
