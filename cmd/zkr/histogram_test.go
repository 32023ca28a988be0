package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestHistogram: its quantiles are those of the sorted sample, with a relative
// error of at most 1/64.
func TestHistogram(t *testing.T) {
	for _, most := range []time.Duration{1, 100, time.Microsecond, time.Second, time.Hour, math.MaxInt64} {
		var h histogram
		sample := make([]time.Duration, 10_001)
		for i := range sample {
			sample[i] = rand.N(most)
			h.add(sample[i])
		}
		slices.Sort(sample)
		for _, q := range []float64{0.01, 0.5, 0.99, 1} {
			want := sample[int(math.Ceil(q*float64(len(sample))))-1]
			if got := h.quantile(q); math.Abs(float64(got-want)) > float64(want)/64 {
				t.Errorf("up to %v: quantile %v is %v, want %v", most, q, got, want)
			}
		}
	}
	var none histogram
	if got := none.quantile(0.5); got != 0 {
		t.Errorf("the median of nothing is %v", got)
	}
	none.add(-time.Second) // a clock may be set back
	none.add(math.MaxInt64)
	if got := none.quantile(0.5); got != 0 {
		t.Errorf("less than nothing counts as %v", got)
	}
}
