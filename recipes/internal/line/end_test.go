package line

import (
	"math"
	"testing"
)

func TestFollows(t *testing.T) {
	for _, tt := range []struct {
		seq, last int32
		want      bool
	}{
		{1, 0, true},
		{0, 0, false},
		{2, 0, false},
		{0, 1, false},
		{math.MaxInt32, math.MaxInt32 - 1, true}, // the rule refuses it
		{math.MinInt32, math.MaxInt32, false},
		{math.MaxInt32, math.MaxInt32, false}, // as today's servers repeat it
	} {
		if got := follows(tt.seq, tt.last); got != tt.want {
			t.Errorf("%d follows %d: %v", tt.seq, tt.last, got)
		}
	}
}
