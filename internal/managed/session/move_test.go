package session

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
)

// When a session may move: T = 6s. It gives the connection up only if it may,
// and then nothing can be held or asked any more.
func TestWhenASessionMayMove(t *testing.T) {
	for _, tt := range []struct {
		name  string
		story func(s *Session)
		want  bool
	}{
		{"nothing is held", func(s *Session) { s.evidence = evidenceAt(time.Now(), time.Second, 0, 600*ms) }, true},
		{"5s are left", func(s *Session) { s.holdTimes(1) }, true},
		{"a second is left", func(s *Session) { s.holdTimes(1); s.evidence = evidenceAt(time.Now(), time.Second, 0, 600*ms) }, false},
		{"the moment would cost what is held", func(s *Session) { s.holdTimes(1); s.loseSuspended = true }, false},
		{"it would cost nothing", func(s *Session) { s.loseSuspended = true }, true},
		{"the connection is not ready", func(s *Session) { s.up = false }, false},
		{"the connection has ended", func(s *Session) { s.unseenEnds++ }, false},
		{"the session is over", func(s *Session) { s.err = errExpired }, false},
		{"another connection is there", func(s *Session) { s.link = &link.Link{} }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, on := standing()
			lost := s.holdTimes(0)
			tt.story(s)
			ready := s.IsReady()
			if left := s.onLeave(on); left != tt.want {
				t.Errorf("left %t", left)
			}
			if s.IsReady() != (ready && !tt.want) || *lost > 0 {
				t.Errorf("ready %t before, %t after; %d losses", ready, s.IsReady(), *lost)
			}
			if tt.want && s.loseSuspended {
				if _, err := s.Hold(func(error) {}); err == nil {
					t.Error("something is held in a connection that was given up")
				}
			}
		})
	}
}

// A second caller does not move the session, but makes the first one look
// again.
func TestOneGoroutineMoves(t *testing.T) {
	var m mover
	if !m.begin() || m.begin() || m.begin() {
		t.Error("two begin")
	}
	if m.end() {
		t.Error("it ends although it was asked to look again")
	}
	if !m.end() || !m.begin() {
		t.Error("it does not end, or not begin again")
	}
}

// A session whose move fails goes back. A server that did not know it is
// another ensemble's if, and only if, it is resumed elsewhere.
func TestASessionGoesBack(t *testing.T) {
	from, to, third := servers.Server{Name: "from:1", Address: "from:1"}, servers.Server{Name: "to:1", Address: "to:1"}, servers.Server{Name: "c:1", Address: "c:1"}
	const T = 6 * time.Second
	var m *mover
	moves := func() { m = &mover{timeout: T}; m.put(&servers.Prepared{To: to}, from); m.take() }
	backs := func(want bool) {
		t.Helper()
		if at, ok := m.back(); ok != want || ok && at != from {
			t.Errorf("it goes back: %t, to %v", ok, at)
		}
	}
	believes := func(at servers.Server, want bool) {
		t.Helper()
		if err := m.refuse(at); (err == nil) != want || err != nil && !errors.Is(err, zkerr.NotVouched) {
			t.Errorf("%s: %v", at, err)
		}
	}
	resumed := func(at servers.Server, isForeign bool) {
		t.Helper()
		if foreign, ok := m.resumed(at); ok != isForeign || ok && foreign != to {
			t.Errorf("resumed at %s: %v is another ensemble's: %t", at, foreign, ok)
		}
	}
	for name, story := range map[string]func(){
		"it takes the session": func() { resumed(to, false); backs(false); believes(to, true) },
		"it is silent":         func() { backs(true); backs(false); believes(third, true); resumed(from, false); backs(false) },
		"it does not know the session": func() {
			believes(to, false)
			backs(true)
			resumed(from, true)
			for range 2 { // connections end
				backs(true)
				backs(false)
				believes(to, false)
				resumed(from, true)
			}
			backs(true)
			resumed(from, false)
			backs(true)
			resumed(third, false)
			backs(false)
		},
		"another server knows it": func() { believes(to, false); backs(true); backs(false); resumed(third, true); backs(false) },
		"nobody answers for a session timeout": func() {
			believes(to, false)
			for range 3 {
				backs(true)
				backs(false)
			}
			time.Sleep(T - 1)
			believes(to, false)
			time.Sleep(time.Nanosecond)
			backs(false)
			believes(to, true)
		},
		"it stays": func() {
			m.put(&servers.Prepared{To: to}, from)
			m.withdraw(false)
			backs(false)
			believes(to, true)
		},
		"the wire client has not dialed": func() {
			m.put(&servers.Prepared{To: to}, from)
			if p := m.withdraw(true); p == nil || p.To != to {
				t.Error("no connection to close")
			}
			backs(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(*testing.T) { moves(); story() })
		})
	}
}

// The wire client gets the connection of a move once, without a turn and a dial
// of its own.
func TestThePreparedConnectionIsDialed(t *testing.T) {
	s, _ := standing()
	r := &script.Recorder{}
	s.mover.put(&servers.Prepared{Conn: r, To: servers.Server{Name: "c:1", Address: "c:1"}}, servers.Server{})
	conn, err := s.dial("tcp", "", 0)
	if err != nil || conn.(*link.Link).To().Name != "c:1" || conn.(*link.Link).Conn != net.Conn(r) {
		t.Fatalf("%v, %v", conn, err)
	}
	if s.mover.take() != nil {
		t.Error("it is there twice")
	}
	_ = conn.Close()
	s.mover.put(&servers.Prepared{Conn: r}, servers.Server{})
	s.Sever()
	if _, err := s.dial("tcp", "", 0); err == nil || !r.Closed.Load() {
		t.Errorf("dialed for a session that is over: %v, closed %t", err, r.Closed.Load())
	}
}

// The pauses between tries without success grow, up to a minute, or to T where
// that is longer.
func TestPausesBetweenMoves(t *testing.T) {
	for _, tt := range []struct {
		failed        int
		timeout, want time.Duration
	}{
		{0, 6 * time.Second, 6 * time.Second},
		{1, 6 * time.Second, 12 * time.Second},
		{3, 6 * time.Second, 48 * time.Second},
		{4, 6 * time.Second, time.Minute},
		{1000, 6 * time.Second, time.Minute},
		{1000, time.Hour, time.Hour},
	} {
		if got := pauseAfter(tt.failed, tt.timeout); got != tt.want {
			t.Errorf("after %d with T = %v: %v, want %v", tt.failed, tt.timeout, got, tt.want)
		}
	}
}

// The wait for answers ends with the last of them, and after T/12.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := opening(6 * time.Second)
		on := confirmed(s, 7, &script.Recorder{})
		began := time.Now()
		s.drain(t.Context(), on)
		if took := time.Since(began); took != 0 {
			t.Errorf("nothing is under way: %v", took)
		}
		s.calls.Store(1)
		time.AfterFunc(100*ms, func() { s.calls.Store(0) })
		s.drain(t.Context(), on)
		if took := time.Since(began); took < 100*ms || took > 300*ms {
			t.Errorf("a call took 100ms: %v", took)
		}
		s.calls.Store(1)
		began = time.Now()
		s.drain(t.Context(), on)
		if took := time.Since(began); took != 500*ms {
			t.Errorf("a call does not end: %v", took)
		}
		_ = on.Close()
	})
}
