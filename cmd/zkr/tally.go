package main

import (
	"math"
	"math/bits"
	"time"
)

// tally is what one goroutine has counted.
type tally struct {
	cycles int64
	last   time.Duration // when the last of them ended, from the begin of all
	times  histogram
}

func (t *tally) count(took, at time.Duration) {
	t.cycles++
	t.last = at
	t.times.add(took)
}

func (t *tally) add(u *tally) {
	t.cycles += u.cycles
	t.last = max(t.last, u.last)
	for i, n := range u.times {
		t.times[i] += n
	}
}

// histogram counts durations to within one part in 64, of any number and length, in a fixed space: millions in a second are
// nothing to keep one by one.
type histogram [(64 - fine) << fine]int64

const fine = 6 // bits of a duration that are told apart, below its highest

func bucket(d time.Duration) int {
	n := uint64(max(d, 0))
	shift := max(bits.Len64(n)-fine-1, 0)
	return shift<<fine + int(n>>shift)
}

// middle is the middle of the durations in a bucket.
func middle(i int) time.Duration {
	if i < 2<<fine {
		return time.Duration(i)
	}
	shift := i>>fine - 1
	return time.Duration(i&(1<<fine-1)+1<<fine)<<shift + time.Duration(1)<<shift/2
}

func (h *histogram) add(d time.Duration) { h[bucket(d)]++ }

// quantile is the duration that q of all are no longer than, and 0 where there are none.
func (h *histogram) quantile(q float64) time.Duration {
	var all int64
	for _, n := range h {
		all += n
	}
	rank := max(int64(math.Ceil(q*float64(all))), 1)
	for i, n := range h {
		if rank -= n; rank <= 0 {
			return middle(i)
		}
	}
	return 0
}

// round keeps three decimals: what is finer is noise.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }
