package session

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// What checkClock does, and when it must run again.
func TestCheckClock(t *testing.T) {
	now := time.Now()
	ping := func(s *Session, age time.Duration) { s.evidence.Send(wire.XidPing, wire.OpPing, false, now.Add(-age)) }
	for name, tt := range map[string]struct {
		left  time.Duration
		holds int
		story func(s *Session)
		next  time.Duration
		tells bool
		err   error
		doubt bool
	}{
		"idle":                        {5 * time.Second, 0, nil, 2 * time.Second, false, nil, false},
		"never proven":                {5 * time.Second, 0, func(s *Session) { s.evidence = evidenceOf(6*time.Second, 600*ms, false) }, time.Hour, false, nil, false},
		"over":                        {5 * time.Second, 0, func(s *Session) { s.err = zkerr.Closed }, time.Hour, false, zkerr.Closed, false},
		"kept":                        {5 * time.Second, 0, func(s *Session) { s.held.keepers = 1 }, time.Second, false, nil, false},
		"held":                        {5 * time.Second, 1, nil, time.Second, false, nil, false},
		"near the stop margin":        {1200 * ms, 1, nil, 600 * ms, false, nil, false},
		"right before it":             {600*ms + 1, 1, nil, 1, false, nil, false},
		"at it":                       {600 * ms, 1, nil, 600 * ms, true, nil, true},
		"at it, and not held":         {600 * ms, 0, nil, 2 * time.Second, false, nil, false},
		"at it, and only kept":        {600 * ms, 0, func(s *Session) { s.held.keepers = 1 }, time.Second, false, nil, false},
		"after a loss":                {599 * ms, 0, func(s *Session) { s.doubted = true }, 599 * ms, false, nil, true},
		"after a loss, at the margin": {600 * ms, 0, func(s *Session) { s.doubted = true }, 600 * ms, false, nil, true},
		"after a loss, and proven":    {600*ms + 1, 0, func(s *Session) { s.doubted = true }, 2 * time.Second, false, nil, false},
		"with the longest margin": {1900 * ms, 0, func(s *Session) {
			s.doubted, s.held.keepers, s.evidence = true, 1, evidenceAt(now, 1900*ms, 0, 2*time.Second)
		}, time.Second, false, nil, true},
		"right before the deadline":    {1, 0, func(s *Session) { s.doubted = true }, 1, false, nil, true},
		"at the deadline":              {0, 0, func(s *Session) { s.doubted = true }, time.Hour, false, zkerr.Unproven, true},
		"behind it, and held":          {-1, 1, nil, time.Hour, true, zkerr.Unproven, true},
		"behind it, and never held":    {-1, 0, nil, 2 * time.Second, false, nil, false},
		"the dialer hangs":             {5 * time.Second, 0, func(s *Session) { s.dialedAt = now.Add(-6 * time.Second) }, time.Hour, false, zkerr.Unproven, false},
		"not yet":                      {5 * time.Second, 0, func(s *Session) { s.dialedAt = now.Add(1 - 6*time.Second) }, 2 * time.Second, false, nil, false},
		"the process has stood still":  {5 * time.Second, 0, func(s *Session) { s.dialedAt, s.nextCheck = now.Add(-6*time.Second), now.Add(-2*time.Second-1) }, 2 * time.Second, false, nil, false},
		"for a shorter time":           {5 * time.Second, 0, func(s *Session) { s.dialedAt, s.nextCheck = now.Add(-6*time.Second), now.Add(-2*time.Second) }, time.Hour, false, zkerr.Unproven, false},
		"connected long ago":           {5 * time.Second, 0, func(s *Session) { s.up, s.dialedAt = true, now.Add(-time.Hour) }, 2 * time.Second, false, nil, false},
		"a heartbeat is due":           {5 * time.Second, 1, func(s *Session) { s.up = true; s.evidence.Up(now.Add(-300*ms), false) }, 700 * ms, false, nil, false},
		"a heartbeat is due, not held": {5 * time.Second, 0, func(s *Session) { s.up = true; s.evidence.Up(now.Add(-300*ms), false) }, 2 * time.Second, false, nil, false},
		"a heartbeat is due early": {3500 * ms, 1, func(s *Session) {
			s.up = true
			s.evidence.Send(1, wire.OpGetData, false, now.Add(-3*time.Second))
			s.evidence.Answer(1, false, now.Add(-3*time.Second))
		}, 500 * ms, false, nil, false},
		"a ping is unanswered":           {5 * time.Second, 0, func(s *Session) { s.up = true; ping(s, 1500*ms) }, 500 * ms, false, nil, false},
		"a ping is unanswered, and held": {2500 * ms, 1, func(s *Session) { s.up = true; ping(s, 100*ms) }, 900 * ms, false, nil, false},
		"without a connection":           {5 * time.Second, 0, func(s *Session) { ping(s, 1500*ms) }, 2 * time.Second, false, nil, false},
	} {
		s := sessionAt(now, tt.left, 0)
		told := s.holdTimes(tt.holds)
		if tt.story != nil {
			tt.story(s)
		}
		next := s.checkClock(now)
		if next != tt.next || !errors.Is(s.err, tt.err) || tt.err == nil && s.err != nil || s.doubted != tt.doubt || (*told > 0) != tt.tells {
			t.Errorf("%s: next %v, error %v, doubted %t, %d told", name, next, s.err, s.doubted, *told)
		}
		if tt.next != time.Hour && !s.nextCheck.Equal(now.Add(next)) || errors.Is(tt.err, zkerr.Unproven) != s.chain.IsSevered() {
			t.Errorf("%s: next check in %v, severed %t", name, s.nextCheck.Sub(now), s.chain.IsSevered())
		}
	}
}

// The first answer behind that to the connect ends the pause between dials,
// once for each connection.
func TestAUsefulConnectionResetsThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			answers uint64
			useful  bool
			pauses  bool // before the next attempt
		}{{1, false, true}, {2, false, false}, {2, true, true}} {
			now := time.Now()
			s := sessionAt(now, 5*time.Second, 0)
			call(s, servers.Config{Names: []string{"a:1"}})
			s.servers.AwaitTurn(nil) // the only server is tried
			s.up, s.useful = true, tt.useful
			if tt.answers > 1 {
				s.evidence.Send(1, wire.OpGetData, false, now)
				s.evidence.Answer(1, false, now)
			}
			s.checkClock(now)
			s.servers.AwaitTurn(nil)
			if pauses := time.Since(now) > 0; pauses != tt.pauses || s.useful != (tt.answers > 1) {
				t.Errorf("%+v: pauses %t, useful %t", tt, pauses, s.useful)
			}
		}
	})
}

// What is held from now on wakes the clock, if the next check comes too late.
func TestHoldingWakesTheClock(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		left, margin, nextCheck time.Duration
		underWay                bool
		wakes                   bool
	}{
		{5 * time.Second, 600 * ms, time.Second, false, false},
		{5 * time.Second, 600 * ms, time.Second + 1, false, true},
		{3500 * ms, 600 * ms, 500 * ms, true, false},
		{3500 * ms, 600 * ms, 500*ms + 1, true, true},
		{5 * time.Second, 2 * time.Second, 500 * ms, false, false},
		{5 * time.Second, 2 * time.Second, 500*ms + 1, false, true},
	} {
		s := sessionAt(now, tt.left, 0)
		s.evidence, s.nextCheck = evidenceAt(now, tt.left, 0, tt.margin), now.Add(tt.nextCheck)
		if tt.underWay {
			s.evidence.Up(now.Add(-2*time.Second), false)
			if b, _ := s.evidence.Beat(now.Add(-300 * ms)); b == nil {
				t.Errorf("%+v: no heartbeat begins", tt)
			}
		}
		if s.beginHoldingLocked(now); (len(s.wakeup) > 0) != tt.wakes {
			t.Errorf("%+v: wakes %t", tt, len(s.wakeup) > 0)
		}
	}
}

func TestWhyUnproven(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		left  time.Duration
		story func(s *Session)
		want  error
	}{
		"proven":            {600*ms + 1, nil, nil},
		"at the margin":     {600 * ms, nil, zkerr.Unproven},
		"never":             {5 * time.Second, func(s *Session) { s.evidence = evidenceOf(6*time.Second, 600*ms, false) }, zkerr.Unproven},
		"over":              {5 * time.Second, func(s *Session) { s.err = errExpired }, errExpired},
		"closing":           {5 * time.Second, func(s *Session) { close(above(s).closing) }, zkerr.Closed},
		"no connection":     {5 * time.Second, func(s *Session) { s.loseSuspended = true }, zkerr.Suspended},
		"connected":         {5 * time.Second, func(s *Session) { s.loseSuspended, s.up = true, true }, nil},
		"connected, margin": {600 * ms, func(s *Session) { s.loseSuspended, s.up = true, true }, zkerr.Unproven},
	} {
		s := sessionAt(now, tt.left, 0)
		if tt.story != nil {
			tt.story(s)
		}
		if err := s.whyUnprovenLocked(now); !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The oldest holds are told first, and each of them once.
func TestHoldsAreToldInOrder(t *testing.T) {
	s := sessionAt(time.Now(), 5*time.Second, 0)
	var told []int
	for i := range 40 {
		release, err := s.Hold(func(error) { told = append(told, i) })
		if err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 {
			release()
		}
	}
	s.loseHolds(zkerr.Unproven)
	s.loseHolds(zkerr.Unproven)
	if len(told) != 30 || !slices.IsSorted(told) {
		t.Errorf("told %v", told)
	}
}

// A machine is suspended while it has no connection. The timer of the stop
// margin stands still with it. Holders used to be told only when the rest of
// that timer had passed, most of a timeout after the machine woke up.
func TestHoldersAreToldSoonAfterASuspension(t *testing.T) {
	now := time.Now()
	var told error
	s := opening(6 * time.Second)
	s.evidence, s.held.keepers = evidenceAt(now, 6*time.Second, 0, 600*ms), 1
	s.held.add(func(err error) { told = err })
	if next := s.checkClock(now); next > time.Second {
		t.Errorf("looks at the clocks again in %v, want at most T/6 while something is held", next)
	}
	s.checkClock(shiftWall(now.Add(time.Second), time.Minute))
	if told == nil || s.Err() == nil {
		t.Errorf("a minute later by the wall clock: holder told %v, session %v", told, s.Err())
	}
}

// shiftWall moves only the wall clock's reading, by whole seconds. The package
// time has no function for that; the seconds begin at bit 30 of the first word.
func shiftWall(at time.Time, by time.Duration) time.Time {
	word := (*uint64)(unsafe.Pointer(&at))
	*word += uint64(by/time.Second) << 30
	return at
}
