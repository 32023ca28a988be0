package proof

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// What a connect that was answered changes.
func TestConnect(t *testing.T) {
	now := time.Now()
	sent, before := now.Add(-time.Second), now.Add(-2*time.Second)
	for name, tt := range map[string]struct {
		writes, isNew bool
		proven        time.Time // before it
		want          time.Time
		contacts      int
	}{
		"new":                {false, true, time.Time{}, sent, 0},
		"new, by writes":     {true, true, time.Time{}, sent, 0},
		"again":              {false, false, before, sent, 0},
		"again, by writes":   {true, false, before, before, 1},
		"unknown, by writes": {true, false, time.Time{}, time.Time{}, 1},
		"more was proven":    {false, false, now, now, 0},
	} {
		e := New(6*time.Second, Rules{Margin: func(timeout time.Duration) time.Duration { return timeout / 10 }, Tick: 1500 * ms, Writes: tt.writes})
		e.proven = tt.proven
		if e.IsKnown() || e.Timeout() != 6*time.Second || e.Margin() != 600*ms {
			t.Errorf("%s: it begins with %+v", name, e)
		}
		e.Connect(3*time.Second, tt.isNew, sent, now)
		p := &e.proof
		if !e.proven.Equal(tt.want) || !e.IsKnown() || e.IsUseful() || e.Timeout() != 3*time.Second || e.Margin() != 300*ms ||
			p.wait != 1500*ms || p.writes != tt.writes || p.trips.longest() != time.Second || len(p.contacts) != tt.contacts {
			t.Errorf("%s: %+v", name, e)
		}
		if left, ok := e.Left(now); ok == tt.want.IsZero() || ok && left != tt.want.Add(3*time.Second).Sub(now) || !e.Deadline().Equal(tt.want.Add(3*time.Second)) {
			t.Errorf("%s: %v left, %t", name, left, ok)
		}
	}
}

// The answer to a check should come as quickly as that to a sync.
func TestWhatIsPrompt(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		op            wire.Op
		check, prompt bool
	}{{wire.OpPing, false, true}, {wire.OpSync, false, true}, {wire.OpMulti, true, true}, {wire.OpMulti, false, false}, {wire.OpCreate, false, false}} {
		e := evidenceAt(now, 5*time.Second, 0)
		e.Send(1, tt.op, tt.check, now)
		if e.Unanswered() != 1 || e.proof.pending[0].prompt != tt.prompt {
			t.Errorf("%+v: %+v", tt, e.proof.pending)
		}
	}
}

// A connect is not proven before a write, and a session that is held needs one.
func TestUp(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct{ writes, held, sends bool }{{true, true, true}, {true, false, false}, {false, true, false}} {
		e := evidenceAt(now, 5*time.Second, 0)
		e.rules.Writes = tt.writes
		b := e.Up(now.Add(1), tt.held)
		if (b != nil) != tt.sends || tt.sends && !b.First().Equal(now.Add(1)) || !e.heartbeats.last.Equal(now.Add(1)) || (len(e.heartbeats.underWay) == 1) != tt.sends {
			t.Errorf("%+v: %+v, %+v", tt, b, e.heartbeats)
		}
		if e.Down(); len(e.heartbeats.underWay) > 0 {
			t.Errorf("%+v: a heartbeat outlives its connection", tt)
		}
	}
}

// The first heartbeat for what is held comes after an interval, or earlier if
// less is left than usual.
func TestBeginHolding(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		left     time.Duration
		underWay []*Beat
		want     due
	}{
		{5 * time.Second, nil, due{time.Second, regular}},
		{3500 * ms, nil, due{500 * ms, becauseDeadline}},
		{3500 * ms, []*Beat{{}}, due{500 * ms, becauseDeadline}},
	} {
		e := evidenceAt(now, tt.left, 0)
		e.heartbeats = heartbeats{last: now.Add(-300 * ms), underWay: tt.underWay}
		if got := e.heartbeats.planFirst(&e.proof, now, tt.left); got != tt.want || e.BeginHolding(now) != got.in || e.heartbeats.last.Equal(now) != (tt.underWay == nil) {
			t.Errorf("%+v: %v, the last one was %v ago", tt, got, now.Sub(e.heartbeats.last))
		}
	}
}

// A heartbeat that was refused stays under way. Another one does not, and one
// of an earlier connection is none.
func TestEnd(t *testing.T) {
	now := time.Now()
	e := evidenceAt(now, 5*time.Second, 0)
	refused, answered := &Beat{sent: now, whole: true}, &Beat{sent: now, whole: true}
	e.heartbeats.underWay = []*Beat{refused, answered}
	e.End(&Beat{}, false, now)
	e.End(refused, true, now.Add(1))
	e.End(answered, false, now)
	if all := e.heartbeats.underWay; len(all) != 1 || all[0] != refused || !refused.refused || !refused.First().Equal(now.Add(1)) {
		t.Errorf("%+v", all)
	}
}

// The error of a session that cannot be proven says how long a round trip has
// taken, also one that has not ended.
func TestHowLongARoundTripTakes(t *testing.T) {
	now := time.Now()
	e := evidenceAt(now, 0, 100*ms)
	if u := e.Unprovable(now, time.Second); u.trip != 100*ms || u.longest != 968421052 || u.waited != time.Second {
		t.Errorf("%+v", u)
	}
	e.Send(1, wire.OpSync, false, now.Add(-3*time.Second))
	if u := e.Unprovable(now, time.Second); u.trip != 3*time.Second {
		t.Errorf("%v, want 3s", u.trip)
	}
}
