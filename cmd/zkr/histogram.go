package main

import (
	"math"
	"math/bits"
	"sync"
	"time"
)

// cycleStats is what some goroutines have measured.
type cycleStats struct {
	Cycles  int64
	Last    time.Duration // when the last cycle ended, since the start of the measurement
	Longest time.Duration // the longest wait of a call that acquires
	Times   histogram
}

func (t *cycleStats) count(waited, took, at time.Duration) {
	t.Cycles++
	t.Last = max(t.Last, at)
	t.Longest = max(t.Longest, waited)
	t.Times.add(took)
}

// sharedStats is counted by several goroutines: one for each of thousands would
// be too large.
type sharedStats struct {
	mu    sync.Mutex // guards stats
	stats cycleStats
}

func (s *sharedStats) count(waited, took, at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.count(waited, took, at)
}

func (t *cycleStats) add(u *cycleStats) {
	t.Cycles += u.Cycles
	t.Last = max(t.Last, u.Last)
	t.Longest = max(t.Longest, u.Longest)
	for i, n := range u.Times {
		t.Times[i] += n
	}
}

// histogram counts durations with a relative error of at most 1/64. Its size is
// fixed: single durations would be too many to keep.
type histogram [(64 - fine) << fine]int64

const fine = 6 // bits of precision below a duration's highest bit

func bucket(d time.Duration) int {
	n := uint64(max(d, 0))
	shift := max(bits.Len64(n)-fine-1, 0)
	return shift<<fine + int(n>>shift)
}

// middle returns the middle of a bucket.
func middle(i int) time.Duration {
	if i < 2<<fine {
		return time.Duration(i)
	}
	shift := i>>fine - 1
	return time.Duration(i&(1<<fine-1)+1<<fine)<<shift + time.Duration(1)<<shift/2
}

func (h *histogram) add(d time.Duration) { h[bucket(d)]++ }

// quantile returns the duration that the fraction q does not exceed, and 0
// without any durations.
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

// round rounds to three decimals: more is noise.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }
