package bubble

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/goroutines"
)

// In virtual time a wait for something that never happens does not block:
// heartbeats continue forever, and so does the test. So every wait has a
// limit.

// Patience limits a single wait, in virtual time.
const Patience = 5 * time.Minute

// Longest limits a whole scenario.
const Longest = 24 * time.Hour

func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), Patience, fmt.Errorf("timed out after %v", Patience))
}

// Await receives from a channel. It fails the test after Patience and says what
// it was waiting for, such as "the lease to be lost".
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

// AwaitTrue waits until a condition holds, and fails the test after Patience.
// In a bubble it checks when all goroutines are blocked, every few
// milliseconds. It can be used in real time: then it waits for up to a minute.
func AwaitTrue(t T, what string, condition func() bool) {
	t.Helper()
	virtual, limit := goroutines.Bubble() != "", time.Minute
	if virtual {
		limit = Patience
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if virtual {
			synctest.Wait()
		}
		if condition() {
			return
		}
		if time.Since(began) > limit {
			t.Fatalf("waited %v for %s", limit, what)
		}
	}
}

// Bound ends the test binary if the test, which is in a bubble, has not ended
// after d of virtual time, and shows where its goroutines wait. A wait without
// a limit would go on until go test gives up.
func Bound(t testing.TB, d time.Duration) {
	bubble := goroutines.Bubble()
	timer := time.AfterFunc(d, func() {
		at := slices.DeleteFunc(goroutines.In(bubble), func(stack string) bool { return !strings.Contains(stack, "_test.go:") })
		panic(fmt.Sprintf("%s has not ended in %v of virtual time\n%s", t.Name(), d, strings.Join(at, "\n\n")))
	})
	t.Cleanup(func() { timer.Stop() })
}
