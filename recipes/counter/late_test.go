package counter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// An answer is lost, and no server is reached until the marker is old, and
// removed by others. The call does not count twice: it says that it may have.
func TestACallThatIsOpenForLongerThanItsMarkerIsKept(t *testing.T) {
	for _, age := range []time.Duration{bubble.Timeout, time.Minute, time.Hour} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c := w.Connect("ours", framework.WithRetry(retry.Forever(time.Second)))
			n := newCounter(t, c, counter.WithMarkerAge(age))
			other := newCounter(t, w.ConnectNext())
			addOnce(t, n, "first", false)
			must(t, c.MakePersistentPath(t.Context(), counter.Directory(n, "a")))
			fault := testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.DropAfter())
			defer w.ClientNet("ours").Control(fault.Control)()
			failed := make(chan error, 1)
			go func() {
				_, err := n.AddOnce(t.Context(), "a", 1)
				failed <- err
			}()
			<-fault.Hit()
			w.ClientNet("ours").Cut()
			time.Sleep(age + time.Second)
			must(t, counter.RemoveOld(other, "a", time.Now()))
			if w.Exists(counter.Directory(other, "a") + "/a") {
				t.Error("the marker is there")
			}
			w.ClientNet("ours").Heal()
			err := bubble.Await(t, "AddOnce", failed)
			if !framework.MaybeApplied(err) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v: error %v", age, err)
			}
			is(t, other, 2)
		})
	}
}
