package proof

import (
	"slices"
	"testing"
	"time"
)

// evidenceAt returns the evidence of a session with a connection, with T = 6s,
// a margin of 600ms and so much left until the deadline.
func evidenceAt(now time.Time, left, trip time.Duration) *Evidence {
	return &Evidence{proven: now.Add(left - 6*time.Second), proof: *sixSeconds(trip), heartbeats: heartbeats{last: now}}
}

// When a heartbeat must begin, and why then.
func TestPlan(t *testing.T) {
	const us = time.Microsecond
	now := time.Now()
	at := func(d time.Duration) time.Time { return now.Add(d) }
	contacts := func(answered ...time.Duration) (all []contact) {
		for _, a := range answered {
			all = append(all, contact{sent: at(a - 100*ms), answered: at(a)})
		}
		return all
	}
	whole := func(sent time.Duration) []*Beat { return []*Beat{{sent: at(sent), whole: true}} }
	for name, tt := range map[string]struct {
		left, trip, last time.Duration
		contacts         []contact
		underWay         []*Beat
		want             due
	}{
		"nothing to report":              {2 * time.Second, 0, -300 * ms, nil, nil, due{700 * ms, regular}},
		"a contact that is young":        {2 * time.Second, 0, -300 * ms, contacts(-500 * ms), nil, due{700 * ms, regular}},
		"one that is old enough soon":    {2 * time.Second, 20 * ms, -300 * ms, contacts(-1100 * ms), nil, due{900 * ms, becauseReport}},
		"a little later":                 {2 * time.Second, 20 * ms, -300 * ms, contacts(-1050 * ms), nil, due{950 * ms, becauseReport}},
		"too late to wait for":           {2 * time.Second, 20 * ms, -300 * ms, contacts(1 - 1050*ms), nil, due{710 * ms, regular}},
		"a little is T/24 at most":       {2 * time.Second, 30 * ms, -300 * ms, contacts(-1035 * ms), nil, due{965 * ms, becauseReport}},
		"and no more":                    {2 * time.Second, 30 * ms, -300 * ms, contacts(1 - 1035*ms), nil, due{715 * ms, regular}},
		"the deadline is far away":       {5 * time.Second, 20 * ms, -300 * ms, contacts(-1050 * ms), nil, due{950 * ms, becauseReport}},
		"and it would be too late":       {5 * time.Second, 20 * ms, -300 * ms, contacts(1 - 1050*ms), nil, due{710 * ms, regular}},
		"not far away":                   {2700 * ms, ms, -300 * ms, contacts(-1205750 * us), nil, due{700500 * us, regular}},
		"quick round trips":              {5 * time.Second, ms, -300 * ms, contacts(-1205750 * us), nil, due{794250 * us, becauseReport}},
		"later than T/64":                {5 * time.Second, ms, -300 * ms, contacts(1 - 1205750*us), nil, due{700500 * us, regular}},
		"very quick ones":                {5 * time.Second, ms / 2, -300 * ms, contacts(-1249750 * us), nil, due{750250 * us, becauseReport}},
		"later than a hundred of them":   {5 * time.Second, ms / 2, -300 * ms, contacts(1 - 1249750*us), nil, due{700250 * us, regular}},
		"less left than usual":           {2 * time.Second, 0, -300 * ms, contacts(-3 * time.Second), nil, due{0, becauseDeadline}},
		"a little more than usual":       {3200 * ms, 0, -300 * ms, contacts(-3 * time.Second), nil, due{200 * ms, becauseDeadline}},
		"in a network that takes time":   {3200 * ms, 20 * ms, -300 * ms, contacts(-3 * time.Second), nil, due{230 * ms, becauseDeadline}},
		"as much as usual":               {3700 * ms, 0, -300 * ms, contacts(-3 * time.Second), nil, due{700 * ms, regular}},
		"another one is about to report": {time.Second, 0, -100 * ms, contacts(-2100*ms, -1500*ms), whole(-100 * ms), due{800 * ms, becauseDeadline}},
		"not too close to that":          {3 * time.Second, 0, -100 * ms, contacts(-1900 * ms), whole(-100 * ms), due{150 * ms, becauseSpacing}},
		"alone":                          {3 * time.Second, 0, -100 * ms, contacts(-1900 * ms), nil, due{100 * ms, becauseReport}},
	} {
		h, p := heartbeats{last: at(tt.last), underWay: tt.underWay}, sixSeconds(tt.trip)
		p.contacts = tt.contacts
		if got := h.plan(p, now, tt.left); got != tt.want {
			t.Errorf("%s: in %v, want %v", name, got, tt.want)
		}
	}
}

// A heartbeat is an R1 alone if that proves a contact, and nothing under way
// does. An R1 that began before the contact was reported does not.
func TestAnR1Alone(t *testing.T) {
	now := time.Now()
	reported := []contact{{sent: now.Add(-4 * time.Second), answered: now.Add(-4 * time.Second), reported: 7}}
	second := func(answers uint64) []sentRequest {
		return []sentRequest{{at: now, roundTrip: anyTrip, certain: true, answers: answers}}
	}
	alone := []*Beat{{sent: now, first: now}}
	for name, tt := range map[string]struct {
		contacts []contact
		pending  []sentRequest
		underWay []*Beat
		whole    bool
	}{
		"nothing is reported":              {nil, nil, nil, true},
		"a contact is reported":            {reported, nil, nil, false},
		"the R1 under way proves it":       {reported, second(7), alone, true},
		"a caller's write is under way":    {reported, []sentRequest{{at: now, roundTrip: anyTrip, answers: 7}}, nil, false},
		"the R1 under way began too early": {reported, second(6), alone, false},
		"a whole one will send the R1":     {reported, nil, []*Beat{{sent: now, whole: true}}, true},
	} {
		e := evidenceAt(now, 2*time.Second, 0)
		e.proof.contacts, e.proof.pending = tt.contacts, tt.pending
		e.heartbeats = heartbeats{last: now.Add(-2 * time.Second), underWay: tt.underWay}
		b, _ := e.Beat(now)
		if b == nil {
			t.Errorf("%s: none begins", name)
		} else if b.whole != tt.whole || b.first.IsZero() != tt.whole || !b.sent.Equal(now) {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

// While two heartbeats wait for their first answers no other one begins. One
// that a server has refused is sent again, and takes the place of the next.
func TestNoHeartbeatBegins(t *testing.T) {
	now := time.Now()
	e := evidenceAt(now, 5*time.Second, 0)
	e.heartbeats = heartbeats{last: now.Add(-2 * time.Second), underWay: []*Beat{{sent: now}, {sent: now, first: now}, {sent: now}}}
	if b, wait := e.heartbeats.next(&e.proof, now, 5*time.Second); b != nil || wait != (due{time.Second, becauseFull}) || len(e.heartbeats.underWay) != 3 {
		t.Errorf("%+v begins, %d are under way, the next one in %v", b, len(e.heartbeats.underWay), wait)
	}
	for refusals, shortest := range []time.Duration{125 * ms, 250 * ms, 500 * ms, time.Second, 2 * time.Second, 2 * time.Second} {
		var pauses []time.Duration
		for range 200 {
			b := &Beat{sent: now, refused: true, refusals: refusals}
			e.heartbeats.underWay[1] = b
			_, again := e.heartbeats.next(&e.proof, now, 5*time.Second)
			pause := again.in
			pauses = append(pauses, pause)
			if _, rest := e.Beat(now.Add(pause / 2)); rest != pause-pause/2 || !b.refused || again.because != becauseRefused {
				t.Fatalf("another pause")
			}
			if again, _ := e.Beat(now.Add(pause)); again != b || b.refused || b.refusals != refusals+1 {
				t.Fatalf("after the pause %+v is sent, want %+v", again, b)
			}
		}
		if least, most := slices.Min(pauses), slices.Max(pauses); least < shortest || most > 2*shortest || most-least < shortest*4/5 {
			t.Errorf("after %d refusals pauses from %v to %v", refusals, least, most)
		}
	}
}

// The latest heartbeat with two halves counts.
func TestUnderWaySince(t *testing.T) {
	now := time.Now()
	h := heartbeats{underWay: []*Beat{{sent: now, whole: true, first: now}, {sent: now.Add(1), whole: true}, {sent: now.Add(2), first: now}}}
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
