package proof

import (
	"testing"
	"time"
)

// Round trips are remembered for two windows of 2s.
func TestRoundTrips(t *testing.T) {
	start := time.Now()
	r := roundTrips{window: 2 * time.Second}
	for i, tt := range []struct{ at, took, longest time.Duration }{
		{0, 100, 100},
		{2*time.Second - 1, 50, 100},
		{2 * time.Second, 10, 100},
		{4*time.Second - 1, 20, 100},
		{4 * time.Second, 5, 20},
		{8*time.Second - 1, 3, 5},
		{12*time.Second - 1, 2, 2},
	} {
		if r.add(tt.took, start.Add(tt.at)); r.longest() != tt.longest {
			t.Errorf("step %d: %d, want %d", i, r.longest(), tt.longest)
		}
	}
	if last := start.Add(12*time.Second - 1); !r.isKnown(last.Add(4*time.Second-1)) || r.isKnown(last.Add(4*time.Second)) {
		t.Error("not known for two windows")
	}
}

// Bytes of an answer count as news once there are 512 of them, or the answer
// begins or ends.
func TestProgress(t *testing.T) {
	start := time.Now()
	var p progress
	for i, tt := range []struct {
		n            int
		inPart, news bool
	}{
		{10, true, true},   // begins
		{511, true, false}, // continues
		{1, true, true},
		{511, true, false},
		{0, false, true}, // ends
		{10, true, true},
		{502, true, false}, // the first ones do not count twice
		{9, true, false},
		{1, true, true},
	} {
		now := start.Add(time.Duration(i) * time.Second)
		if p.receive(tt.n, tt.inPart, now); p.at.Equal(now) != tt.news {
			t.Errorf("step %d: news %t", i, !tt.news)
		}
	}
}
