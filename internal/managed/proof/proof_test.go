package proof

import (
	"slices"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// A follower answers pings and reads for a while after it was cut off from the
// leader. So a deadline that follows from answers alone still runs while
// another client gets the lock. Each row is a history of one connection with T
// = 6s, hence F = 2s. A lease begins with a third of the session timeout ahead,
// also where another contact came just before a ping.
func TestProofOfContact(t *testing.T) {
	const read, roundTrip = 4, wire.OpSync
	type exchange struct {
		op           wire.Op
		sent, answer float64 // seconds; no answer: negative
		failed       bool
	}
	for _, tt := range []struct {
		name    string
		history []exchange
		proven  float64 // seconds; nothing: negative
	}{
		{"nothing was exchanged", nil, -1},
		{"reads alone prove nothing", []exchange{{op: read, sent: 0, answer: 0.1}, {op: read, sent: 3, answer: 3.1}, {op: read, sent: 6, answer: 6.1}}, -1},
		{"one round trip does not prove itself", []exchange{{op: roundTrip, sent: 0, answer: 0.1}}, -1},
		{"one round trip F after an answered read proves nothing", []exchange{{op: read, sent: 0, answer: 0.5}, {op: roundTrip, sent: 2.5, answer: 2.6}}, -1},
		{"a second one after its answer proves the read", []exchange{
			{op: read, sent: 0, answer: 0.5}, {op: roundTrip, sent: 2.5, answer: 2.6}, {op: roundTrip, sent: 2.6, answer: 2.7},
		}, 0},
		{"credentials do not touch the session", []exchange{
			{op: wire.OpAuth, sent: 0, answer: 0.5}, {op: roundTrip, sent: 2.5, answer: 2.6}, {op: roundTrip, sent: 2.6, answer: 2.7},
		}, -1},
		{"F is counted from the answer, not from the send", []exchange{
			{op: read, sent: 0, answer: 0.6}, {op: roundTrip, sent: 2.5, answer: 2.6}, {op: roundTrip, sent: 2.6, answer: 2.7},
		}, -1},
		{"a read is no second round trip", []exchange{
			{op: read, sent: 0, answer: 0.5}, {op: roundTrip, sent: 2.5, answer: 2.6}, {op: read, sent: 2.6, answer: 2.7},
		}, -1},
		{"the latest contact old enough counts", []exchange{
			{op: roundTrip, sent: 0, answer: 0.1},
			{op: roundTrip, sent: 1, answer: 1.1},
			{op: roundTrip, sent: 2, answer: 2.1},
			{op: roundTrip, sent: 3.1, answer: 3.2},
			{op: roundTrip, sent: 3.9, answer: 4.0},
		}, 1},
		{"of contacts close together the last also counts", []exchange{
			{op: read, sent: 0, answer: 0.01},
			{op: read, sent: 1.95, answer: 1.96},
			{op: read, sent: 1.98, answer: 1.99},
			{op: read, sent: 2, answer: 2.01},
			{op: roundTrip, sent: 5.9, answer: 5.91},
			{op: roundTrip, sent: 5.91, answer: 5.92},
		}, 2},
		{"a failed round trip is no first one", []exchange{
			{op: read, sent: 0, answer: 0.1}, {op: roundTrip, sent: 3, answer: 3.1, failed: true}, {op: roundTrip, sent: 3.2, answer: 3.3},
		}, -1},
		{"nor a second one", []exchange{
			{op: read, sent: 0, answer: 0.1}, {op: roundTrip, sent: 3, answer: 3.1}, {op: roundTrip, sent: 3.2, answer: 3.3, failed: true},
		}, -1},
		{"nor is one without an answer", []exchange{
			{op: read, sent: 0, answer: 0.1}, {op: roundTrip, sent: 3, answer: 3.1}, {op: roundTrip, sent: 3.2, answer: -1},
		}, -1},
		{"a failed contact is contact all the same", []exchange{
			{op: read, sent: 0, answer: 0.1, failed: true}, {op: roundTrip, sent: 3, answer: 3.1}, {op: roundTrip, sent: 3.2, answer: 3.3},
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
			p := newProof(6*time.Second, 600*ms, 0, false)
			got := -1.0
			for i, e := range tt.history {
				p.send(int32(i), e.op, at(e.sent))
				if e.answer < 0 {
					continue
				}
				if proven, ok := p.answer(int32(i), e.failed, at(e.answer)); ok {
					got = proven.Sub(start).Seconds()
				}
			}
			if got != tt.proven {
				t.Errorf("proven at %v s, want %v s", got, tt.proven)
			}
		})
	}
}

// All pings have the same number. Behind a slow network the answer to the first
// ping was taken for that of the second, which was still under way. That proved
// a contact that the leader may not have had.
func TestAnswerToAPingIsThatOfTheOldest(t *testing.T) {
	const ping, opPing = wire.XidPing, wire.OpPing
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	p := newProof(6*time.Second, 600*ms, 0, false)
	p.send(ping, opPing, at(0))
	p.send(ping, opPing, at(2))
	p.answer(ping, false, at(2.1)) // to the first
	p.send(1, wire.OpSync, at(4.2))
	p.answer(1, false, at(4.3))
	p.send(2, wire.OpSync, at(4.3))
	if proven, ok := p.answer(2, false, at(4.4)); !ok || !proven.Equal(at(0)) {
		t.Errorf("proven at %v (%v), want the time of the first ping", proven.Sub(start), ok)
	}
}

// So it is where more of them are under way: a ping that is sent before the
// second one was answered does not get the second one's answer. It may reach
// the server only with the round trips, behind the leader's last question.
func TestAnswerToAPingIsNotThatOfALaterOne(t *testing.T) {
	const ping, opPing = wire.XidPing, wire.OpPing
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	p := newProof(6*time.Second, 600*ms, 0, false)
	p.send(ping, opPing, at(0))
	p.send(ping, opPing, at(1.9))
	p.answer(ping, false, at(2)) // to the first
	p.send(ping, opPing, at(3.8))
	p.answer(ping, false, at(3.9)) // to the second
	p.send(1, wire.OpSync, at(6))
	p.answer(ping, false, at(6.1)) // to the third
	p.answer(1, false, at(6.1))
	p.send(2, wire.OpSync, at(6.1))
	if proven, ok := p.answer(2, false, at(6.2)); !ok || !proven.Equal(at(1.9)) {
		t.Errorf("proven at %v (%v), want the time of the second ping", proven.Sub(start), ok)
	}
	if len(p.pending) != 0 {
		t.Errorf("%d requests are taken for unanswered", len(p.pending))
	}
}

// A busy connection must not make the list of contacts grow. Contacts are
// thinned out, and dropped once they are not needed.
func TestProofStaysSmall(t *testing.T) {
	p := newProof(6*time.Second, 600*ms, 0, false)
	at := time.Now()
	for i := range int32(100_000) {
		p.send(i, wire.OpCreate, at)
		p.answer(i, false, at.Add(100*time.Microsecond))
		at = at.Add(time.Millisecond)
	}
	if n := len(p.contacts); n > 32 {
		t.Errorf("%d contacts are kept, want at most 32", n)
	}
	for i := range int32(100_000) { // a follower that answers nothing but reads
		p.send(i, wire.OpExists, at)
		p.answer(i, false, at.Add(100*time.Microsecond))
		at = at.Add(time.Millisecond)
	}
	if n := len(p.contacts); n > 65 {
		t.Errorf("%d contacts are kept without round trips, want at most 65", n)
	}
	if len(p.pending) != 0 {
		t.Errorf("%d answered requests are kept", len(p.pending))
	}
}

// Of contacts that are closer together than the grain only two are kept.
func TestKeep(t *testing.T) {
	const grain = 6 * time.Second / 64
	type all []time.Duration
	start := time.Now()
	for name, tt := range map[string]struct {
		have     all
		reported int // how many of them, the oldest
		add      time.Duration
		want     all
	}{
		"the first":                   {nil, 0, 0, all{0}},
		"at the same time":            {all{0}, 0, 0, all{0}},
		"the second":                  {all{0}, 0, 1, all{0, 1}},
		"the third":                   {all{0, 1}, 0, 2, all{0, 2}},
		"after a grain":               {all{0, 50}, 0, grain, all{0, 50, grain}},
		"right before that":           {all{0, 50}, 0, grain - 1, all{0, grain - 1}},
		"after a grain from the last": {all{0, grain - 10, grain}, 0, grain + 10, all{0, grain - 10, grain + 10}},
		"before the last":             {all{0, 50}, 0, 40, all{0, 50}},
		"the last is reported":        {all{0, 50}, 2, 60, all{0, 50}},
		"the first is reported":       {all{0, 50}, 1, 60, all{0, 60}},
	} {
		p := newProof(6*time.Second, 600*ms, 0, false)
		for i, at := range tt.have {
			c := contact{sent: start.Add(at)}
			if i < tt.reported {
				c.reported = 1
			}
			p.contacts = append(p.contacts, c)
		}
		p.keep(contact{sent: start.Add(tt.add), answered: start.Add(tt.add)})
		var got all
		for _, c := range p.contacts {
			got = append(got, c.sent.Sub(start))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// What an answer changes apart from what it proves.
func TestAnswer(t *testing.T) {
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	p := newProof(6*time.Second, 600*ms, 0, false)
	p.contacts = []contact{{sent: at(-1), answered: at(-1)}, {sent: at(0), answered: at(0)}, {sent: at(1), answered: at(1)}}
	p.send(1, wire.OpGetData, at(5))
	p.send(2, wire.OpCreate, at(5.1))
	p.send(3, wire.OpPing, at(5.2))
	if _, ok := p.answer(4, false, at(5.3)); ok || p.answers != 1 || len(p.pending) != 3 || len(p.contacts) != 3 {
		t.Errorf("an answer to nothing: %+v", p)
	}
	for i, step := range []struct {
		xid      int32
		at       float64
		contacts int // those from before that are left
		progress float64
		longest  time.Duration
		prompt   bool // the oldest that is unanswered
	}{
		{1, 5.5, 2, 5.5, 0, false},        // a read is no round trip
		{3, 6, 1, 5.5, 800 * ms, true},    // a ping overtakes
		{2, 6.9, 1, 6.9, 1800 * ms, true}, // its answer should not have taken long
	} {
		p.answer(step.xid, false, at(step.at))
		left := 0
		for _, c := range p.contacts {
			if !c.sent.After(at(1)) {
				left++
			}
		}
		if left != step.contacts || !p.progress.at.Equal(at(step.progress)) || p.trips.longest() != step.longest || p.answers != uint64(i+2) || len(p.pending) != 2-i {
			t.Errorf("step %d: %d contacts, progress at %v, longest %v, %+v", i, left, p.progress.at.Sub(start), p.trips.longest(), p)
		}
		if len(p.pending) > 0 && p.pending[0].prompt != step.prompt {
			t.Errorf("step %d: prompt %t", i, !step.prompt)
		}
	}
	p.send(5, wire.OpCreate, at(7))
	if p.answer(5, false, at(7.9)); p.trips.present != 1800*ms || p.trips.since != at(6) {
		t.Errorf("a write counts although a sync has: %+v", p.trips)
	}
	p.send(6, wire.OpCreate, at(8.1))
	if p.answer(6, false, at(8.6)); p.trips.present != 500*ms {
		t.Errorf("a write where nothing else is known: %+v", p.trips)
	}
}

// The second round trip must be sent after the first one's answer. Two that are
// under way at the same time are as good as one: both may overtake a report.
func TestRoundTripsAtTheSameTimeProveNothing(t *testing.T) {
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	p := newProof(6*time.Second, 600*ms, 0, false)
	p.send(1, wire.OpSync, at(0))
	p.answer(1, false, at(0))
	p.send(2, wire.OpSync, at(3))
	p.send(3, wire.OpSync, at(3))
	p.answer(2, false, at(3))
	if proven, ok := p.answer(3, false, at(3)); ok {
		t.Errorf("proven at %v by two round trips at the same time", proven.Sub(start))
	}
	p.send(4, wire.OpSync, at(3)) // in the same instant, but after the answers
	if proven, ok := p.answer(4, false, at(3)); !ok || !proven.Equal(start) {
		t.Errorf("proven at %v (%v), want the first contact", proven.Sub(start), ok)
	}
}

// Beside a leader that has lost its quorum only a write can be the second round
// trip. It proves a connect by itself.
func TestProofByWritesEndsWithAWrite(t *testing.T) {
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	p := newProof(6*time.Second, 600*ms, 0, true)
	p.connect(at(0))
	for i, step := range []struct {
		op     wire.Op
		sent   float64
		proven float64 // nothing: negative
	}{
		{wire.OpSync, 1, -1},  // cannot prove the connect
		{wire.OpMulti, 2, 0},  // proves it
		{wire.OpSync, 5, -1},  // is R0 for the first two
		{wire.OpSync, 5, -1},  // cannot be R1
		{wire.OpMulti, 5, 2},  // can
		{wire.OpMulti, 8, -1}, // is R0 for what was sent 5 s after the start
		{wire.OpMulti, 8, 5},
	} {
		p.send(int32(i), step.op, at(step.sent))
		proven, ok := p.answer(int32(i), false, at(step.sent))
		if got := proven.Sub(start).Seconds(); ok != (step.proven >= 0) || ok && got != step.proven {
			t.Errorf("step %d: proven at %v s (%v), want %v", i, got, ok, step.proven)
		}
	}
}

func TestWaitFollowsTheServerTick(t *testing.T) {
	const timeout = 12 * time.Second
	for _, tt := range []struct{ tick, want time.Duration }{
		{0, 4 * time.Second},               // not known: T/3
		{6 * time.Second, 6 * time.Second}, // a tick
		{4001 * ms, 4001 * ms},
		{3700 * ms, 4 * time.Second}, // at most T/3, if that is a tick
		{3699 * ms, 3999 * ms},       // a tick and T/40
		{1400 * ms, 1700 * ms},
		{1399 * ms, 1699500 * time.Microsecond}, // half a tick and T/12
		{1, time.Second},
	} {
		if got := newProof(timeout, 0, tt.tick, false).wait; got != tt.want {
			t.Errorf("a tick of %v: F is %v, want %v", tt.tick, got, tt.want)
		}
	}
}

// An answer that came behind that of a large list looked as slow as the list.
// For a third of the session timeout and more, heartbeats then came as often as
// in a slow network, and a lease could be refused as one that cannot last.
func TestARoundTripBehindAListIsNotSlow(t *testing.T) {
	const list, ms = 12, time.Millisecond
	begin := time.Now()
	p := newProof(6*time.Second, 600*ms, 0, false)
	xid := int32(0)
	exchange := func(op wire.Op, sent, answered time.Duration) {
		xid++
		p.send(xid, op, begin.Add(sent))
		p.answer(xid, false, begin.Add(answered))
	}
	exchange(wire.OpSync, 0, 10*ms)
	p.send(100, list, begin.Add(1000*ms))
	p.send(101, wire.OpSync, begin.Add(1001*ms))
	p.send(102, wire.OpPing, begin.Add(1500*ms))
	p.receive(4096, true, begin.Add(2850*ms)) // the list is long
	p.answer(100, false, begin.Add(2900*ms))
	p.answer(101, false, begin.Add(2901*ms))
	p.answer(102, false, begin.Add(2902*ms))
	exchange(wire.OpSync, 2950*ms, 2962*ms)
	if got := p.trips.longest(); got != 12*ms {
		t.Errorf("a round trip takes %v, want 12ms", got)
	}

	// Long lists are under way all the time, and every answer is slow. That is
	// the network.
	for at := 3000 * ms; at < 12000*ms; at += 100 * ms {
		p.receive(4096, true, begin.Add(at))
		exchange(list, at-400*ms, at)
		exchange(wire.OpSync, at-390*ms, at+10*ms)
	}
	if got := p.trips.longest(); got != 400*ms {
		t.Errorf("a round trip takes %v beside many lists, want 400ms", got)
	}
}

// The follower answers reads quickly, but its leader has become slow. Each sync
// is sent while a read is under way.
func TestARoundTripBesideQuickReadsIsSlow(t *testing.T) {
	const ms = time.Millisecond
	begin := time.Now()
	p := newProof(6*time.Second, 600*ms, 0, false)
	p.send(1, wire.OpSync, begin)
	p.answer(1, false, begin.Add(10*ms))
	p.send(2, wire.OpExists, begin.Add(1000*ms))
	p.send(3, wire.OpSync, begin.Add(1001*ms))
	p.receive(100, false, begin.Add(1010*ms))
	p.answer(2, false, begin.Add(1010*ms))
	p.answer(3, false, begin.Add(1701*ms))
	if got := p.trips.longest(); got != 700*ms {
		t.Errorf("a round trip takes %v, want 700ms", got)
	}
}
