package retry_test

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/zkrecipes/zkrecipes/retry"
)

const (
	ms   = time.Millisecond
	s    = time.Second
	stop = backoff.Stop
)

func TestFixedSchedules(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy retry.Policy
		want   []time.Duration
	}{
		{"n times", retry.NTimes(3, s), []time.Duration{s, s, s, stop, stop}},
		{"one time", retry.OneTime(2 * s), []time.Duration{2 * s, stop, stop}},
		{"zero times is never", retry.NTimes(0, s), []time.Duration{stop, stop}},
		{"minus one times is never", retry.NTimes(-1, s), []time.Duration{stop, stop}},
		{"a zero pause does not spin", retry.NTimes(2, 0), []time.Duration{ms, ms, stop}},
		{"a negative pause does not spin, nor look like Stop", retry.OneTime(-1), []time.Duration{ms, stop}},
		{"forever", retry.Forever(s), []time.Duration{s, s, s, s, s, s, s, s}},
		{"forever without a pause does not spin", retry.Forever(-s), []time.Duration{ms, ms, ms}},
		{"the longest pause", retry.Forever(math.MaxInt64), []time.Duration{math.MaxInt64, math.MaxInt64}},
		{"never", retry.Never(), []time.Duration{stop, stop}},
		{"exponential with no tries is never", retry.Exponential(s, s, 0), []time.Duration{stop, stop}},
		{"exponential with negative tries is never", retry.Exponential(s, s, -3), []time.Duration{stop}},
		{"elapsed before the first pause is over", retry.UntilElapsed(s, 2*s), []time.Duration{stop}},
		{"no time at all", retry.UntilElapsed(0, 0), []time.Duration{stop}},
		{"less than no time", retry.UntilElapsed(-s, s), []time.Duration{stop}},
		{"elapsed, the longest of both", retry.UntilElapsed(math.MaxInt64, math.MaxInt64), []time.Duration{math.MaxInt64}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := test.policy()
				for i, want := range test.want {
					if got := b.NextBackOff(); got != want {
						t.Errorf("pause %d = %v, want %v", i+1, got, want)
					}
				}
				b.Reset()
				if got := b.NextBackOff(); got != test.want[0] {
					t.Errorf("the first pause after a reset = %v, want %v", got, test.want[0])
				}
			})
		})
	}
}

// TestExponentialBounds draws each pause of a schedule many times: none may
// pass its bound, and together they must reach down to the lower and up to the
// upper fifth of it, which is what full jitter means. A known failure
// elsewhere: Consul #9469.
func TestExponentialBounds(t *testing.T) {
	const draws = 500 // by luck alone none of them would be in a given fifth once in 10^48 runs
	for _, test := range []struct {
		name      string
		base, max time.Duration
		bounds    []time.Duration
	}{
		{"doubling up to the maximum", 100 * ms, s, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, s, s, s}},
		{"a maximum on the way", 100 * ms, 250 * ms, []time.Duration{100 * ms, 200 * ms, 250 * ms, 250 * ms}},
		{"a maximum below the base is the base", s, ms, []time.Duration{s, s}},
		{"no base is a millisecond", 0, s, []time.Duration{ms, 2 * ms, 4 * ms}},
		{"a negative base is a millisecond", -s, -s, []time.Duration{ms, ms}},
	} {
		t.Run(test.name, func(t *testing.T) {
			policy := retry.Exponential(test.base, test.max, len(test.bounds))
			low, high := make([]time.Duration, len(test.bounds)), make([]time.Duration, len(test.bounds))
			for i := range low {
				low[i] = math.MaxInt64
			}
			for range draws {
				b := policy()
				for i, bound := range test.bounds {
					d := b.NextBackOff()
					if d < 0 || d > bound {
						t.Fatalf("pause %d = %v, want 0 to %v", i+1, d, bound)
					}
					low[i], high[i] = min(low[i], d), max(high[i], d)
				}
				if d := b.NextBackOff(); d != stop {
					t.Fatalf("after the last try = %v, want stop", d)
				}
			}
			for i, bound := range test.bounds {
				if low[i] > bound/5 || high[i] < bound-bound/5 {
					t.Errorf("pause %d was drawn from %v to %v only, want all of 0 to %v", i+1, low[i], high[i], bound)
				}
			}
		})
	}
}

// TestExponentialNeverOverflows: other back-offs shift an integer until it
// turns negative, and then sleep not at all, or stop by accident (CURATOR-262).
// Known failures elsewhere: CURATOR-72, -262.
func TestExponentialNeverOverflows(t *testing.T) {
	for _, test := range []struct {
		name      string
		base, max time.Duration
	}{
		{"a usual base", 50 * ms, 2 * s},
		{"no maximum to speak of", ms, math.MaxInt64},
		{"a base that doubles beyond 63 bits", math.MaxInt64/2 + 1, math.MaxInt64},
		{"the largest base", math.MaxInt64, math.MaxInt64},
		{"a maximum far below the largest base", math.MaxInt64, s},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := retry.Exponential(test.base, test.max, math.MaxInt)()
			for i := range 10_000 {
				if d := b.NextBackOff(); d < 0 {
					t.Fatalf("pause %d = %v", i+1, d)
				}
			}
		})
	}
}

func TestUntilElapsed(t *testing.T) {
	for _, test := range []struct {
		name    string
		attempt time.Duration // what each attempt takes to fail
		want    []time.Duration
	}{
		{"attempts that fail at once", 0, []time.Duration{3 * s, 3 * s, 3 * s, stop}},
		{"attempts that take their time", 2 * s, []time.Duration{3 * s, 3 * s, stop}},
		{"a retry that would begin past the limit is not made", 500 * ms, []time.Duration{3 * s, 3 * s, stop}},
		{"one attempt that takes all", 10 * s, []time.Duration{stop}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := retry.UntilElapsed(10*s, 3*s)()
				for i, want := range test.want {
					time.Sleep(test.attempt)
					got := b.NextBackOff()
					if got != want {
						t.Fatalf("pause %d = %v, want %v", i+1, got, want)
					}
					time.Sleep(max(got, 0))
				}
			})
		})
	}
	t.Run("a retry exactly at the limit is still made", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := retry.UntilElapsed(10*s, 5*s)()
			for i, want := range []time.Duration{5 * s, 5 * s, stop} {
				got := b.NextBackOff()
				if got != want {
					t.Fatalf("pause %d = %v, want %v", i+1, got, want)
				}
				time.Sleep(max(got, 0))
			}
		})
	})
}

// TestFreshState: a policy that shared its back-off would let one operation use
// up the tries of another.
func TestFreshState(t *testing.T) {
	for name, policy := range map[string]retry.Policy{
		"exponential":   retry.Exponential(ms, s, 2),
		"n times":       retry.NTimes(2, ms),
		"one time":      retry.OneTime(ms),
		"until elapsed": retry.UntilElapsed(time.Hour, s),
		"forever":       retry.Forever(ms),
	} {
		t.Run(name, func(t *testing.T) {
			first := policy()
			for range 10 {
				first.NextBackOff()
			}
			if first.Reset(); first.NextBackOff() == stop {
				t.Error("no pause after Reset")
			}
			var together sync.WaitGroup
			for range 4 {
				together.Go(func() {
					if d := policy().NextBackOff(); d == stop {
						t.Errorf("a fresh operation may not retry at all")
					}
				})
			}
			together.Wait()
		})
	}
	t.Run("the elapsed time begins with the operation, not with the policy", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			policy := retry.UntilElapsed(s, s)
			time.Sleep(time.Hour)
			if d := policy().NextBackOff(); d != s {
				t.Errorf("first pause = %v, want %v", d, s)
			}
		})
	})
}
