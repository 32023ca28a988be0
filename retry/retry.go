// Package retry holds the policies that say how often, and after what pause, an operation is tried again.
//
// A [Policy] is called once for each operation and makes a fresh [backoff.BackOff] for it, so that no two operations ever
// share a count, an interval or a start time. What it makes belongs to that one operation and is not safe for concurrent
// use. The first attempt of an operation is not a retry and asks nothing; after each failed attempt NextBackOff gives the
// pause before the next one, or [backoff.Stop] when there shall be none.
//
// Every policy accepts every argument: what cannot be meant literally is corrected as its comment says, so that none of them
// overflows, sleeps for a negative time or spins. Time is the standard library's, so policies work in testing/synctest.
package retry

import (
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Policy makes the schedule of one operation. A Policy itself holds no state and may be used by any number of goroutines.
type Policy func() backoff.BackOff

// shortest is what a shorter pause (zero and negative ones included) is taken for, lest a policy become a busy loop against
// an ensemble that is down.
const shortest = time.Millisecond

// Exponential retries up to tries times. The pause before the k-th retry (k = 1, 2, ...) is drawn evenly from 0 up to
// min(max, base * 2^(k-1)): "full jitter", which keeps the clients of a restarted ensemble from coming back in step.
//
//	Exponential(100*time.Millisecond, time.Second, 6): 0..100ms  0..200ms  0..400ms  0..800ms  0..1s  0..1s  stop
//
// A base below one millisecond counts as one millisecond and a max below base as base; tries <= 0 is [Never], and
// math.MaxInt is for ever. The bound is reached by doubling up to max, never beyond, so no number of tries overflows.
func Exponential(base, max time.Duration, tries int) Policy {
	if tries <= 0 {
		return Never()
	}
	base = atLeast(base, shortest)
	max = atLeast(max, base)
	// backoff draws from interval*(1 ± factor); half the bound with a factor of 1 is full jitter.
	fresh := exponential(
		backoff.WithInitialInterval(base/2),
		backoff.WithMaxInterval(max/2),
		backoff.WithMultiplier(2),
		backoff.WithRandomizationFactor(1),
		backoff.WithMaxElapsedTime(0), // no bound on the time: tries is the bound
	)
	return func() backoff.BackOff { return backoff.WithMaxRetries(fresh(), uint64(tries)) }
}

// NTimes retries n times, each after a pause of d.
//
//	NTimes(3, time.Second): 1s  1s  1s  stop
//
// A d below one millisecond counts as one millisecond; n <= 0 is [Never].
func NTimes(n int, d time.Duration) Policy {
	if n <= 0 {
		return Never()
	}
	d = atLeast(d, shortest)
	return func() backoff.BackOff {
		return backoff.WithMaxRetries(backoff.NewConstantBackOff(d), uint64(n))
	}
}

// OneTime retries once, after a pause of d: it is NTimes(1, d).
//
//	OneTime(time.Second): 1s  stop
func OneTime(d time.Duration) Policy {
	return NTimes(1, d)
}

// UntilElapsed retries after pauses of d for as long as the next retry would begin no later than max after the policy was
// called (which is when the operation began).
//
//	UntilElapsed(10*time.Second, 3*time.Second), attempts that fail at once: 3s  3s  3s  stop
//	the same, attempts that take 2s to fail:                                  3s  3s  stop
//
// A d below one millisecond counts as one millisecond; max < d (and so max <= 0) is [Never].
func UntilElapsed(max, d time.Duration) Policy {
	d = atLeast(d, shortest)
	if max < d {
		return Never()
	}
	return exponential(
		backoff.WithInitialInterval(d),
		backoff.WithMaxInterval(d),
		backoff.WithMultiplier(1),
		backoff.WithRandomizationFactor(0),
		backoff.WithMaxElapsedTime(max),
	)
}

// exponential makes schedules of equal settings, which are put together once: every operation has a schedule, and most need none.
func exponential(opts ...backoff.ExponentialBackOffOpts) Policy {
	set := *backoff.NewExponentialBackOff(opts...)
	return func() backoff.BackOff {
		b := set
		b.Reset() // its time begins now
		return &b
	}
}

// Forever retries without end, each time after a pause of d; what uses it must be bounded by its context.
//
//	Forever(time.Second): 1s  1s  1s  ...
//
// A d below one millisecond counts as one millisecond.
func Forever(d time.Duration) Policy {
	d = atLeast(d, shortest)
	return func() backoff.BackOff { return backoff.NewConstantBackOff(d) }
}

// Never does not retry: the first failure is final.
//
//	Never(): stop
func Never() Policy {
	return func() backoff.BackOff { return &backoff.StopBackOff{} }
}

func atLeast(d, least time.Duration) time.Duration {
	if d < least {
		return least
	}
	return d
}
