// Package retry decides how often an operation is retried, and after which
// pauses.
//
// A [Policy] is called once for each operation, and returns the schedule of
// that operation, a [backoff.BackOff]. No two operations share a schedule. The
// first attempt of an operation is not a retry. After each failed attempt
// NextBackOff returns the pause before the next one, or [backoff.Stop] if there
// is none. A schedule is not safe for concurrent use; a Policy is.
//
// Every policy accepts every argument. Its comment says how it corrects
// arguments that make no sense. No policy overflows, sleeps for a negative time
// or spins. But an option that takes a Policy rejects one that was made with a
// duration between 0 and 1ms, because the unit is missing, as in NTimes(3,
// 100). See [Check]. Time is that of the package time, so policies work in
// testing/synctest.
package retry

import (
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/zkrecipes/zkrecipes/internal/least"
	"github.com/zkrecipes/zkrecipes/internal/random"
)

// Policy returns the schedule of one operation. It holds no state, and any
// number of goroutines may call it.
type Policy func() backoff.BackOff

// shortest replaces shorter pauses, zero and negative ones included. Without it
// a policy could become a busy loop against an ensemble that is down.
const shortest = time.Millisecond

// Exponential retries up to tries times. The pause before the k-th retry (k =
// 1, 2, ...) is random, evenly distributed from 0 to min(max, base * 2^(k-1)).
// This "full jitter" spreads the clients of an ensemble that has restarted.
//
//	Exponential(100*time.Millisecond, time.Second, 6): 0..100ms  0..200ms  0..400ms  0..800ms  0..1s  0..1s  stop
//
// A base below one millisecond counts as one millisecond, and a max below base
// as base. tries <= 0 is [Never]; math.MaxInt tries never end. No number of
// tries overflows: the bound stops doubling at max.
func Exponential(base, max time.Duration, tries int) Policy {
	if tries <= 0 {
		return Never()
	}
	given := []time.Duration{base, max}
	base = atLeast(base, shortest)
	max = atLeast(max, base)
	bounds := exponential(
		backoff.WithInitialInterval(base),
		backoff.WithMaxInterval(max),
		backoff.WithMultiplier(2),
		backoff.WithRandomizationFactor(0),
		backoff.WithMaxElapsedTime(0), // no limit in time: tries is the limit
	)
	fresh := func() backoff.BackOff { return jittered{bounds()} }
	return checked(atMost(tries, fresh), given...)
}

// jittered draws each pause from 0 to that of a schedule without an end.
type jittered struct{ backoff.BackOff }

func (j jittered) NextBackOff() time.Duration { return random.N(j.BackOff.NextBackOff()) }

// NTimes retries n times, each after a pause of d.
//
//	NTimes(3, time.Second): 1s  1s  1s  stop
//
// A d below one millisecond counts as one millisecond. n <= 0 is [Never].
func NTimes(n int, d time.Duration) Policy {
	if n <= 0 {
		return Never()
	}
	pause := atLeast(d, shortest)
	return checked(atMost(n, func() backoff.BackOff { return backoff.NewConstantBackOff(pause) }), d)
}

// OneTime retries once, after a pause of d. It is NTimes(1, d).
//
//	OneTime(time.Second): 1s  stop
func OneTime(d time.Duration) Policy {
	return NTimes(1, d)
}

// UntilElapsed retries after pauses of d. It stops when the next retry would
// begin later than max after the operation began, which is when the policy was
// called.
//
//	UntilElapsed(10*time.Second, 3*time.Second), attempts that fail at once: 3s  3s  3s  stop
//	the same, attempts that take 2s to fail:                                  3s  3s  stop
//
// A d below one millisecond counts as one millisecond. max < d, which includes
// max <= 0, is [Never].
func UntilElapsed(max, d time.Duration) Policy {
	pause := atLeast(d, shortest)
	if max < pause {
		return checked(Never(), max, d)
	}
	return checked(exponential(
		backoff.WithInitialInterval(pause),
		backoff.WithMaxInterval(pause),
		backoff.WithMultiplier(1),
		backoff.WithRandomizationFactor(0),
		backoff.WithMaxElapsedTime(max),
	), d)
}

// atMost returns a policy whose schedules are those of another one, and end
// after so many retries. Every operation needs a schedule, and few ever use it:
// so it is made when the first pause is asked for. The pauses must not depend
// on when that is.
func atMost(retries int, each Policy) Policy {
	fresh := func() backoff.BackOff { return backoff.WithMaxRetries(each(), uint64(retries)) }
	return func() backoff.BackOff { return &unused{fresh: fresh} }
}

// unused is a schedule that is made when it is used.
type unused struct {
	fresh    Policy
	schedule backoff.BackOff // nil: not made
}

func (u *unused) NextBackOff() time.Duration {
	if u.schedule == nil {
		u.schedule = u.fresh()
	}
	return u.schedule.NextBackOff()
}

func (u *unused) Reset() { u.schedule = nil }

// exponential returns a policy whose schedules are copies of one that is set up
// here, which is cheaper than to set each of them up.
func exponential(opts ...backoff.ExponentialBackOffOpts) Policy {
	set := *backoff.NewExponentialBackOff(opts...)
	return func() backoff.BackOff {
		b := set
		b.Reset() // its time begins now
		return &b
	}
}

// Forever retries without end, each time after a pause of d. Only a context, or
// the end of the client, ends the operation.
//
//	Forever(time.Second): 1s  1s  1s  ...
//
// A d below one millisecond counts as one millisecond.
func Forever(d time.Duration) Policy {
	pause := atLeast(d, shortest)
	return checked(func() backoff.BackOff { return backoff.NewConstantBackOff(pause) }, d)
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

// Check returns an error if p is nil. It also returns an error if p is a policy
// of this package that was made with a duration between 0 and 1ms, because the
// unit is missing. Check calls p once.
func Check(p Policy) error {
	if p == nil {
		return errors.New("nil")
	}
	if u, ok := schedule(p).(unitless); ok {
		return least.OrZero("duration", u.d, shortest)
	}
	return nil
}

// schedule calls p, which may be a user's. If it panics, that is told when it
// is used.
func schedule(p Policy) (b backoff.BackOff) {
	defer func() { _ = recover() }()
	return p()
}

// unitless is a schedule of a policy that was made with d.
type unitless struct {
	backoff.BackOff
	d time.Duration
}

// checked returns p, marked for Check if one of the durations lacks its unit.
func checked(p Policy, durations ...time.Duration) Policy {
	for _, d := range durations {
		if 0 < d && d < shortest {
			return func() backoff.BackOff { return unitless{p(), d} }
		}
	}
	return p
}
