package bubble

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// In virtual time a wait for what never happens does not stand still: heartbeats go
// on for ever, and so does the test. So every wait has a bound.

// Patience bounds a single wait, in virtual time.
const Patience = 5 * time.Minute

// Longest bounds a whole scenario.
const Longest = 24 * time.Hour

func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), Patience, fmt.Errorf("not in %v", Patience))
}

// Await receives from a channel, and fails the test if there is nothing to receive in
// Patience, saying what was waited for: "the lease to be lost".
func Await[V any](t T, what string, from <-chan V) V {
	t.Helper()
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		t.Fatalf("waited %v for %s", Patience, what)
		panic("unreachable")
	}
}

// AwaitTrue waits until a condition holds, once nothing else can go on. It looks
// every few milliseconds.
func AwaitTrue(t T, what string, condition func() bool) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if synctest.Wait(); condition() {
			return
		}
		if time.Since(began) > Patience {
			t.Fatalf("waited %v for %s", Patience, what)
		}
	}
}

// Bound ends the test binary if the test, which is in a bubble, has not ended after d
// of its time, and says where its goroutines wait: one that waits without a bound of its
// own would go on until go test gives up.
func Bound(t testing.TB, d time.Duration) {
	bubble := Name()
	timer := time.AfterFunc(d, func() {
		at := slices.DeleteFunc(Stacks(bubble), func(stack string) bool { return !strings.Contains(stack, "_test.go:") })
		panic(fmt.Sprintf("%s has not ended in %v of virtual time\n%s", t.Name(), d, strings.Join(at, "\n\n")))
	})
	t.Cleanup(func() { timer.Stop() })
}
