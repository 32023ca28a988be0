package framework

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// sessionAt returns a session without a connection, with T = 6s, a margin of
// 600ms and so much left until the deadline.
func sessionAt(now time.Time, left, trip time.Duration) *session {
	c := &core{closing: make(chan struct{}), cfg: config{maxRequest: defaultMaxRequest}}
	c.ephemerals.init(c)
	return &session{
		core: c, over: make(chan struct{}), severed: make(chan struct{}), wakeup: make(chan struct{}, 1),
		timeout: 6 * time.Second, margin: 600 * ms, proven: now.Add(left - 6*time.Second), dialedAt: now, nextCheck: now,
		proof: sixSeconds(trip), heartbeats: heartbeats{last: now},
	}
}

// held makes a session one that is held n times, and counts who was told of a
// loss.
func (s *session) held(n int) (told *int) {
	told = new(int)
	s.holds = make(map[*hold]struct{})
	for range n {
		s.holds[&hold{lost: func(error) { *told++ }}] = struct{}{}
	}
	return told
}

// What checkClock does, and when it must run again.
func TestCheckClock(t *testing.T) {
	now := time.Now()
	ping := func(age time.Duration) []sentRequest { return []sentRequest{{at: now.Add(-age), prompt: true}} }
	for name, tt := range map[string]struct {
		left  time.Duration
		holds int
		story func(s *session)
		next  time.Duration
		tells bool
		err   error
		doubt bool
	}{
		"idle":                         {5 * time.Second, 0, nil, 2 * time.Second, false, nil, false},
		"never proven":                 {5 * time.Second, 0, func(s *session) { s.proven = time.Time{} }, time.Hour, false, nil, false},
		"over":                         {5 * time.Second, 0, func(s *session) { s.err = ErrClosed }, time.Hour, false, ErrClosed, false},
		"kept":                         {5 * time.Second, 0, func(s *session) { s.keepers = 1 }, time.Second, false, nil, false},
		"held":                         {5 * time.Second, 1, nil, time.Second, false, nil, false},
		"near the stop margin":         {1200 * ms, 1, nil, 600 * ms, false, nil, false},
		"right before it":              {600*ms + 1, 1, nil, 1, false, nil, false},
		"at it":                        {600 * ms, 1, nil, 600 * ms, true, nil, true},
		"at it, and not held":          {600 * ms, 0, nil, 2 * time.Second, false, nil, false},
		"at it, and only kept":         {600 * ms, 0, func(s *session) { s.keepers = 1 }, time.Second, false, nil, false},
		"after a loss":                 {599 * ms, 0, func(s *session) { s.doubted = true }, 599 * ms, false, nil, true},
		"after a loss, at the margin":  {600 * ms, 0, func(s *session) { s.doubted = true }, 600 * ms, false, nil, true},
		"after a loss, and proven":     {600*ms + 1, 0, func(s *session) { s.doubted = true }, 2 * time.Second, false, nil, false},
		"with the longest margin":      {1900 * ms, 0, func(s *session) { s.doubted, s.keepers, s.margin = true, 1, 2*time.Second }, time.Second, false, nil, true},
		"right before the deadline":    {1, 0, func(s *session) { s.doubted = true }, 1, false, nil, true},
		"at the deadline":              {0, 0, func(s *session) { s.doubted = true }, time.Hour, false, ErrUnproven, true},
		"behind it, and held":          {-1, 1, nil, time.Hour, true, ErrUnproven, true},
		"behind it, and never held":    {-1, 0, nil, 2 * time.Second, false, nil, false},
		"the dialer hangs":             {5 * time.Second, 0, func(s *session) { s.dialedAt = now.Add(-6 * time.Second) }, time.Hour, false, ErrUnproven, false},
		"not yet":                      {5 * time.Second, 0, func(s *session) { s.dialedAt = now.Add(1 - 6*time.Second) }, 2 * time.Second, false, nil, false},
		"the process has stood still":  {5 * time.Second, 0, func(s *session) { s.dialedAt, s.nextCheck = now.Add(-6*time.Second), now.Add(-2*time.Second-1) }, 2 * time.Second, false, nil, false},
		"for a shorter time":           {5 * time.Second, 0, func(s *session) { s.dialedAt, s.nextCheck = now.Add(-6*time.Second), now.Add(-2*time.Second) }, time.Hour, false, ErrUnproven, false},
		"connected long ago":           {5 * time.Second, 0, func(s *session) { s.up, s.dialedAt = true, now.Add(-time.Hour) }, 2 * time.Second, false, nil, false},
		"a heartbeat is due":           {5 * time.Second, 1, func(s *session) { s.up, s.heartbeats.last = true, now.Add(-300*ms) }, 700 * ms, false, nil, false},
		"a heartbeat is due, not held": {5 * time.Second, 0, func(s *session) { s.up, s.heartbeats.last = true, now.Add(-300*ms) }, 2 * time.Second, false, nil, false},
		"a heartbeat is due early": {3500 * ms, 1, func(s *session) {
			s.up, s.proof.contacts = true, []contact{{sent: now.Add(-3 * time.Second), answered: now.Add(-3 * time.Second)}}
		}, 500 * ms, false, nil, false},
		"a ping is unanswered":           {5 * time.Second, 0, func(s *session) { s.up, s.proof.pending = true, ping(1500*ms) }, 500 * ms, false, nil, false},
		"a ping is unanswered, and held": {2500 * ms, 1, func(s *session) { s.up, s.proof.pending = true, ping(100*ms) }, 900 * ms, false, nil, false},
		"without a connection":           {5 * time.Second, 0, func(s *session) { s.proof.pending = ping(1500 * ms) }, 2 * time.Second, false, nil, false},
	} {
		s := sessionAt(now, tt.left, 0)
		told := s.held(tt.holds)
		if tt.story != nil {
			tt.story(s)
		}
		next := s.checkClock(now)
		if next != tt.next || !errors.Is(s.err, tt.err) || tt.err == nil && s.err != nil || s.doubted != tt.doubt || (*told > 0) != tt.tells {
			t.Errorf("%s: next %v, error %v, doubted %t, %d told", name, next, s.err, s.doubted, *told)
		}
		if tt.next != time.Hour && !s.nextCheck.Equal(now.Add(next)) || errors.Is(tt.err, ErrUnproven) != s.isSevered() {
			t.Errorf("%s: next check in %v, severed %t", name, s.nextCheck.Sub(now), s.isSevered())
		}
	}
}

// The first answer behind that to the connect ends the pause between dials,
// once for each connection.
func TestAUsefulConnectionResetsThePace(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		answers uint64
		useful  bool
		tries   int
	}{{1, false, 5}, {2, false, 0}, {2, true, 5}} {
		s := sessionAt(now, 5*time.Second, 0)
		s.up, s.useful, s.proof.answers, s.core.pace.tries = true, tt.useful, tt.answers, 5
		if s.checkClock(now); s.core.pace.tries != tt.tries || s.useful != (tt.answers > 1) {
			t.Errorf("%+v: %d tries, useful %t", tt, s.core.pace.tries, s.useful)
		}
	}
}

// How long a connection may still be silent.
func TestSilenceLocked(t *testing.T) {
	const ping, list = true, false
	now := time.Now()
	sent := func(prompt bool, age time.Duration) []sentRequest {
		return []sentRequest{{at: now.Add(-age), prompt: prompt}}
	}
	refused := func(age time.Duration) *beat { return &beat{sent: now.Add(-age), refused: true} }
	for name, tt := range map[string]struct {
		left     time.Duration
		holds    int
		trip     time.Duration
		pending  []sentRequest
		underWay []*beat
		due      time.Duration
	}{
		"nothing is unanswered":    {5 * time.Second, 1, 0, nil, nil, 2 * time.Second},
		"a ping":                   {5 * time.Second, 0, 0, sent(ping, 500*ms), nil, 1500 * ms},
		"a ping, for T/3":          {5 * time.Second, 0, 0, sent(ping, 2*time.Second), nil, 0},
		"a ping, for less":         {5 * time.Second, 0, 0, sent(ping, 2*time.Second-1), nil, 1},
		"a list":                   {5 * time.Second, 0, 0, sent(list, time.Second), nil, 2 * time.Second},
		"a list, for longer":       {5 * time.Second, 0, 0, sent(list, 3*time.Second), nil, time.Second},
		"held":                     {6 * time.Second, 1, 0, sent(ping, 500*ms), nil, 1500 * ms},
		"held, and in a hurry":     {2300 * ms, 1, 0, sent(ping, 100*ms), nil, 700 * ms},
		"not held, and no hurry":   {2300 * ms, 0, 0, sent(ping, 100*ms), nil, 1900 * ms},
		"too late":                 {1700 * ms, 1, 0, sent(ping, 100*ms), nil, 400 * ms},
		"too late, and slow":       {1700 * ms, 1, 400 * ms, sent(ping, 100*ms), nil, 700 * ms},
		"a list, in a hurry":       {3 * time.Second, 1, 0, sent(list, 100*ms), nil, 1900 * ms},
		"a refused heartbeat":      {5 * time.Second, 0, 0, nil, []*beat{refused(1500 * ms)}, 500 * ms},
		"one that is not":          {5 * time.Second, 0, 0, nil, []*beat{{sent: now.Add(-1500 * ms)}}, 2 * time.Second},
		"one behind one":           {5 * time.Second, 0, 0, nil, []*beat{{sent: now}, refused(1500 * ms)}, 2 * time.Second},
		"a ping, and one as well":  {5 * time.Second, 0, 0, sent(ping, time.Second), []*beat{refused(1200 * ms)}, 800 * ms},
		"a ping that is more late": {5 * time.Second, 0, 0, sent(ping, 1400*ms), []*beat{refused(1200 * ms)}, 600 * ms},
	} {
		s := sessionAt(now, tt.left, tt.trip)
		s.held(tt.holds)
		s.proof.pending, s.heartbeats.underWay = tt.pending, tt.underWay
		if due, silent := s.silenceLocked(now, tt.left); due != tt.due || silent != (tt.due <= 0) {
			t.Errorf("%s: due in %v, silent %t", name, due, silent)
		}
	}
}

// When a heartbeat must begin.
func TestBeatDue(t *testing.T) {
	const us = time.Microsecond
	now := time.Now()
	at := func(d time.Duration) time.Time { return now.Add(d) }
	contacts := func(answered ...time.Duration) (all []contact) {
		for _, a := range answered {
			all = append(all, contact{sent: at(a - 100*ms), answered: at(a)})
		}
		return all
	}
	whole := func(sent time.Duration) []*beat { return []*beat{{sent: at(sent), whole: true}} }
	for name, tt := range map[string]struct {
		left, trip, last time.Duration
		contacts         []contact
		underWay         []*beat
		due              time.Duration
	}{
		"nothing to report":              {2 * time.Second, 0, -300 * ms, nil, nil, 700 * ms},
		"a contact that is young":        {2 * time.Second, 0, -300 * ms, contacts(-500 * ms), nil, 700 * ms},
		"one that is old enough soon":    {2 * time.Second, 20 * ms, -300 * ms, contacts(-1100 * ms), nil, 900 * ms},
		"a little later":                 {2 * time.Second, 20 * ms, -300 * ms, contacts(-1050 * ms), nil, 950 * ms},
		"too late to wait for":           {2 * time.Second, 20 * ms, -300 * ms, contacts(1 - 1050*ms), nil, 710 * ms},
		"a little is T/24 at most":       {2 * time.Second, 30 * ms, -300 * ms, contacts(-1035 * ms), nil, 965 * ms},
		"and no more":                    {2 * time.Second, 30 * ms, -300 * ms, contacts(1 - 1035*ms), nil, 715 * ms},
		"the deadline is far away":       {5 * time.Second, 20 * ms, -300 * ms, contacts(-1050 * ms), nil, 950 * ms},
		"and it would be too late":       {5 * time.Second, 20 * ms, -300 * ms, contacts(1 - 1050*ms), nil, 710 * ms},
		"quick round trips":              {5 * time.Second, ms, -300 * ms, contacts(-1205750 * us), nil, 794250 * us},
		"later than T/64":                {5 * time.Second, ms, -300 * ms, contacts(1 - 1205750*us), nil, 700500 * us},
		"very quick ones":                {5 * time.Second, ms / 2, -300 * ms, contacts(-1249750 * us), nil, 750250 * us},
		"later than a hundred of them":   {5 * time.Second, ms / 2, -300 * ms, contacts(1 - 1249750*us), nil, 700250 * us},
		"less left than usual":           {2 * time.Second, 0, -300 * ms, contacts(-3 * time.Second), nil, 0},
		"a little more than usual":       {3200 * ms, 0, -300 * ms, contacts(-3 * time.Second), nil, 200 * ms},
		"in a network that takes time":   {3200 * ms, 20 * ms, -300 * ms, contacts(-3 * time.Second), nil, 230 * ms},
		"as much as usual":               {3700 * ms, 0, -300 * ms, contacts(-3 * time.Second), nil, 700 * ms},
		"another one is about to report": {time.Second, 0, -100 * ms, contacts(-2100*ms, -1500*ms), whole(-100 * ms), 800 * ms},
		"not too close to that":          {3 * time.Second, 0, -100 * ms, contacts(-1900 * ms), whole(-100 * ms), 150 * ms},
		"alone":                          {3 * time.Second, 0, -100 * ms, contacts(-1900 * ms), nil, 100 * ms},
	} {
		s := sessionAt(now, tt.left, tt.trip)
		s.heartbeats = heartbeats{last: at(tt.last), underWay: tt.underWay}
		s.proof.contacts = tt.contacts
		if due := s.beatDueLocked(now, tt.left); due != tt.due {
			t.Errorf("%s: in %v, want %v", name, due, tt.due)
		}
	}
}

// A heartbeat is an R1 alone if that proves a contact, and nothing under way
// does. An R1 that began before the contact was reported does not.
func TestAnR1Alone(t *testing.T) {
	now := time.Now()
	reported := []contact{{sent: now.Add(-4 * time.Second), answered: now.Add(-4 * time.Second), reported: 7}}
	second := func(answers uint64) []sentRequest {
		return []sentRequest{{at: now, roundTrip: anyTrip, answers: answers}}
	}
	alone := []*beat{{sent: now, first: now}}
	for name, tt := range map[string]struct {
		contacts []contact
		pending  []sentRequest
		underWay []*beat
		whole    bool
	}{
		"nothing is reported":              {nil, nil, nil, true},
		"a contact is reported":            {reported, nil, nil, false},
		"the R1 under way proves it":       {reported, second(7), alone, true},
		"the R1 under way began too early": {reported, second(6), alone, false},
		"a whole one will send the R1":     {reported, nil, []*beat{{sent: now, whole: true}}, true},
	} {
		s := sessionAt(now, 2*time.Second, 0)
		s.proof.contacts, s.proof.pending, s.heartbeats.underWay = tt.contacts, tt.pending, tt.underWay
		if b := s.newBeatLocked(now); b.whole != tt.whole || b.first.IsZero() != tt.whole || !b.sent.Equal(now) {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

// While two heartbeats wait for their first answers no other one begins. One
// that a server has refused is sent again, and takes the place of the next.
func TestNoHeartbeatBegins(t *testing.T) {
	now := time.Now()
	s := sessionAt(now, 5*time.Second, 0)
	s.heartbeats = heartbeats{last: now.Add(-2 * time.Second), underWay: []*beat{{sent: now}, {sent: now, first: now}, {sent: now}}}
	if due := s.beatLocked(now, 5*time.Second); due != time.Second || len(s.heartbeats.underWay) != 3 {
		t.Errorf("%d are under way, the next one in %v", len(s.heartbeats.underWay), due)
	}
	for refusals, shortest := range []time.Duration{125 * ms, 250 * ms, 500 * ms, time.Second, 2 * time.Second, 2 * time.Second} {
		var pauses []time.Duration
		for range 200 {
			b := &beat{sent: now, refused: true, refusals: refusals}
			s.heartbeats.underWay[1] = b
			pauses = append(pauses, s.beatLocked(now, 5*time.Second))
			if half := pauses[len(pauses)-1] / 2; s.beatLocked(now.Add(half), 5*time.Second) != b.retryAt.Sub(now)-half || !b.refused {
				t.Fatalf("another pause")
			}
		}
		if least, most := slices.Min(pauses), slices.Max(pauses); least < shortest || most > 2*shortest || most-least < shortest*4/5 {
			t.Errorf("after %d refusals pauses from %v to %v", refusals, least, most)
		}
	}
}

// What is held from now on wakes the clock, if the next check comes too late.
func TestHoldingWakesTheClock(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		left, margin, nextCheck time.Duration
		underWay                int
		wakes                   bool
	}{
		{5 * time.Second, 600 * ms, time.Second, 0, false},
		{5 * time.Second, 600 * ms, time.Second + 1, 0, true},
		{3500 * ms, 600 * ms, 500 * ms, 1, false},
		{3500 * ms, 600 * ms, 500*ms + 1, 1, true},
		{5 * time.Second, 2 * time.Second, 500 * ms, 0, false},
		{5 * time.Second, 2 * time.Second, 500*ms + 1, 0, true},
	} {
		s := sessionAt(now, tt.left, 0)
		s.margin, s.nextCheck = tt.margin, now.Add(tt.nextCheck)
		s.heartbeats = heartbeats{last: now.Add(-300 * ms), underWay: make([]*beat, tt.underWay)}
		s.beginHoldingLocked(now)
		if (len(s.wakeup) > 0) != tt.wakes || s.heartbeats.last.Equal(now) != (tt.underWay == 0) {
			t.Errorf("%+v: wakes %t, the last heartbeat was %v ago", tt, len(s.wakeup) > 0, now.Sub(s.heartbeats.last))
		}
	}
}

func TestWhyUnproven(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		left  time.Duration
		story func(s *session)
		want  error
	}{
		"proven":            {600*ms + 1, nil, nil},
		"at the margin":     {600 * ms, nil, ErrUnproven},
		"never":             {5 * time.Second, func(s *session) { s.proven = time.Time{} }, ErrUnproven},
		"over":              {5 * time.Second, func(s *session) { s.err = errExpired }, errExpired},
		"closing":           {5 * time.Second, func(s *session) { close(s.core.closing) }, ErrClosed},
		"no connection":     {5 * time.Second, func(s *session) { s.core.cfg.errorPolicy = ErrorPolicyConnection }, ErrSuspended},
		"connected":         {5 * time.Second, func(s *session) { s.core.cfg.errorPolicy, s.up = ErrorPolicyConnection, true }, nil},
		"connected, margin": {600 * ms, func(s *session) { s.core.cfg.errorPolicy, s.up = ErrorPolicyConnection, true }, ErrUnproven},
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
		release, err := s.hold(func(error) { told = append(told, i) })
		if err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 {
			release()
		}
	}
	s.loseHolds(ErrUnproven)
	s.loseHolds(ErrUnproven)
	if len(told) != 30 || !slices.IsSorted(told) {
		t.Errorf("told %v", told)
	}
}

// The latest heartbeat with two halves counts.
func TestUnderWaySince(t *testing.T) {
	now := time.Now()
	h := heartbeats{underWay: []*beat{{sent: now, whole: true, first: now}, {sent: now.Add(1), whole: true}, {sent: now.Add(2), first: now}}}
	if got := h.underWaySince(); !got.Equal(now.Add(1)) || !h.waits() {
		t.Errorf("%v; it waits: %t", got.Sub(now), h.waits())
	}
	h.underWay[1].first = now.Add(2)
	if h.waits() {
		t.Error("its first half is answered, and it waits")
	}
	h.underWay = h.underWay[2:]
	if got := h.underWaySince(); !got.IsZero() || h.waits() {
		t.Errorf("%v, without any; it waits: %t", got, h.waits())
	}
}

// An outage begins T/3 after the connection has ended, and not again where the
// next attempt fails.
func TestPresence(t *testing.T) {
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	s := &session{timeout: 6 * time.Second, presence: presence{began: start}}
	var got []string
	note := func(s2 float64) {
		p := &s.presence
		got = append(got, fmt.Sprint(p.outages+p.outage(at(s2), 6*time.Second)))
	}
	p := &s.presence
	note(5)
	p.onDown(at(10))
	note(11)
	note(12)
	p.onDown(at(12.5))
	note(13)
	p.onUp(at(14), 6*time.Second)
	note(20)
	p.onUp(at(20), 6*time.Second)
	p.onDown(at(30))
	note(33)
	p.onUp(at(34), 6*time.Second)
	note(40)
	if want := []string{"0s", "0s", "0s", "1s", "2s", "3s", "4s"}; !slices.Equal(got, want) {
		t.Errorf("outages %v, want %v", got, want)
	}
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		s.presence = presence{began: now.Add(-time.Minute), downSince: now.Add(-12 * time.Second), outages: 20 * time.Second}
		if d := s.presentFor(); d != 30*time.Second {
			t.Errorf("present for %v, want 30s", d)
		}
	})
}

// The error of a session that cannot be proven says how long a round trip has
// taken, also one that has not ended.
func TestHowLongARoundTripTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		now := time.Now()
		s := sessionAt(now, 0, 100*ms)
		if got := s.unprovableLocked(time.Second).trip; got != s.proof.trips.longest() {
			t.Errorf("%v", got)
		}
		s.proof.send(1, wire.OpSync, now.Add(-3*time.Second))
		if got := s.unprovableLocked(time.Second).trip; got != 3*time.Second {
			t.Errorf("%v, want 3s", got)
		}
	})
}
