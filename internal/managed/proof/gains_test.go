package proof

import (
	"testing"
	"time"
)

// What proofs usually leave is known after the first one, and follows the
// network.
func TestWhatProofsUsuallyLeave(t *testing.T) {
	var g gains
	if got := g.usual(6 * time.Second); got != 6*time.Second {
		t.Errorf("before the first: %v", got)
	}
	for _, tt := range []struct {
		add  []time.Duration
		want time.Duration
	}{
		{[]time.Duration{300}, 300},
		{[]time.Duration{200}, 300},
		{[]time.Duration{100, 900}, 300},
		{[]time.Duration{50, 50, 50, 50}, 100},
		{[]time.Duration{70, 70, 70, 70}, 70},
		{[]time.Duration{900, 10, 10, 70}, 70},
	} {
		for _, left := range tt.add {
			g.add(left)
		}
		if got := g.usual(time.Second); got != tt.want {
			t.Errorf("after %v: %d, want %d", tt.add, got, tt.want)
		}
	}
}

// There is room if half of T is left. Where proofs leave less, there is room
// right after one that leaves as much as most.
func TestRoom(t *testing.T) {
	const T = 6 * time.Second
	began := time.Now()
	at := func(left time.Duration) time.Time { return began.Add(T - left) }
	evidence := func(proofs ...time.Duration) Evidence {
		e := New(T, Rules{Margin: func(time.Duration) time.Duration { return T / 10 }})
		e.Connect(T, true, began, began)
		for _, left := range proofs {
			e.gains.add(left)
		}
		return e
	}
	for _, tt := range []struct {
		proofs []time.Duration
		left   time.Duration
		want   bool
	}{
		{nil, T, true},
		{nil, T / 2, true},
		{nil, T/2 - 1, false},
		{[]time.Duration{T / 3}, T / 3, true},
		{[]time.Duration{T / 3}, T/3 - 1, false},
		{[]time.Duration{2 * T / 3}, T / 2, true},
		{[]time.Duration{2 * T / 3}, T/2 - 1, false},
		{[]time.Duration{T / 3, T / 4, T / 4}, T / 4, true},
	} {
		if e := evidence(tt.proofs...); e.HasRoom(at(tt.left)) != tt.want {
			t.Errorf("%v left after proofs that left %v: room %t", tt.left, tt.proofs, !tt.want)
		}
	}
}
