package recipes_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// exitingPauses is a budget whose NextBackOff does not return.
type exitingPauses struct {
	backoff.BackOff
	exit func()
}

func (e exitingPauses) NextBackOff() time.Duration { e.exit(); return 0 }

// A retry policy that panics or ends its goroutine counts as used up. A release
// whose answer was lost used to hang, because the goroutine that makes its
// request was gone.
func TestARetryPolicyThatDoesNotReturn(t *testing.T) {
	panics := func() { panic("no pause") }
	for name, policy := range map[string]func() backoff.BackOff{
		"NextBackOff panics": func() backoff.BackOff { return exitingPauses{exit: panics} },
		"NextBackOff exits":  func() backoff.BackOff { return exitingPauses{exit: runtime.Goexit} },
		"the policy panics":  func() backoff.BackOff { panics(); return nil },
		"there is no budget": func() backoff.BackOff { return nil },
	} {
		for _, op := range []testutil.Op{testutil.OpCreate, testutil.OpDelete} {
			t.Run(name, func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					c := w.Connect("ours", framework.WithRetry(policy))
					warm := bubble.Acquire(t, t.Context(), mutexOf(t, c)) // makes the directory
					if err := warm.Release(t.Context()); err != nil {
						t.Fatal(err)
					}
					lost := testutil.NewFault(testutil.Match{Op: op}, testutil.DropBefore())
					defer w.ClientNet("ours").Control(lost.Control)()
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						if lease, err := mutexOf(t, c).Acquire(t.Context()); err == nil {
							_ = lease.Release(t.Context()) // the session goes on trying
						}
					}()
					bubble.Await(t, "the end of the call", ended)
					if lost.Count() != 1 {
						t.Errorf("%d faults", lost.Count())
					}
					bubble.AwaitTrue(t, "its removal", func() bool { return len(w.Children(lockPath)) == 0 })
					time.Sleep(bubble.Timeout)
					if err := bubble.Acquire(t, t.Context(), mutexOf(t, c)).Release(t.Context()); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
