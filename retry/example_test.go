package retry_test

import (
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/zkrecipes/zkrecipes/retry"
)

// pauses asks for up to n pauses of one operation.
func pauses(policy retry.Policy, n int) (all []string) {
	schedule := policy()
	for range n {
		pause := schedule.NextBackOff()
		if pause == backoff.Stop {
			return append(all, "stop")
		}
		all = append(all, pause.String())
	}
	return append(all, "...")
}

// A policy makes a new schedule for each operation.
func Example() {
	policy := retry.NTimes(2, time.Second)
	fmt.Println(pauses(policy, 10))
	fmt.Println(pauses(policy, 10)) // the next operation has its own count
	// Output:
	// [1s 1s stop]
	// [1s 1s stop]
}

// The pauses are random below a bound that doubles.
func ExampleExponential() {
	schedule := retry.Exponential(100*time.Millisecond, time.Second, 5)()
	for bound := 100 * time.Millisecond; ; bound = min(2*bound, time.Second) {
		pause := schedule.NextBackOff()
		if pause == backoff.Stop {
			break
		}
		fmt.Println("at most", bound, 0 <= pause && pause <= bound)
	}
	// Output:
	// at most 100ms true
	// at most 200ms true
	// at most 400ms true
	// at most 800ms true
	// at most 1s true
}

func ExampleOneTime() {
	fmt.Println(pauses(retry.OneTime(time.Second), 10))
	// Output: [1s stop]
}

// A retry that would begin after the limit is not made. The time that attempts
// take counts, too: here they take none.
func ExampleUntilElapsed() {
	fmt.Println(pauses(retry.UntilElapsed(10*time.Second, 20*time.Second), 10))
	fmt.Println(pauses(retry.UntilElapsed(time.Hour, 3*time.Second), 2))
	// Output:
	// [stop]
	// [3s 3s ...]
}

func ExampleForever() {
	fmt.Println(pauses(retry.Forever(time.Second), 3))
	// Output: [1s 1s 1s ...]
}

func ExampleNever() {
	fmt.Println(pauses(retry.Never(), 10))
	// Output: [stop]
}
