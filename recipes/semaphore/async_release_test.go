package semaphore_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Permits whose release does not wait are there for the next Acquire, or try,
// of the client, whatever happens to one of the deletes.
func TestAsyncReleaseOfPermits(t *testing.T) {
	faults := map[string]testutil.Action{
		"none":       testutil.Pass(),
		"lost":       testutil.DropBefore(),
		"reply lost": testutil.DropAfter(),
		"throttled":  testutil.Fail(testutil.CodeThrottled),
		"late":       testutil.Delay(time.Second),
		"reply late": testutil.DelayReply(time.Second),
	}
	for name, fault := range faults {
		for _, n := range []int{1, 3} {
			for _, try := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", ", n, " permits, try ", try), func(t *testing.T) {
					bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
						s := clients(w, 2, n, recipes.WithAsyncRelease())
						bubble.Release(t, bubble.Acquire(t, t.Context(), s[0]))
						l := bubble.Acquire(t, t.Context(), s[0].Permits(n))
						w.Once(testutil.OpDelete, leases, fault)
						start := time.Now()
						bubble.Release(t, l)
						if took := time.Since(start); took != 0 {
							t.Errorf("Release took %v", took)
						}
						if try {
							next, err := s[0].Permits(n).TryAcquire(t.Context())
							if err != nil {
								t.Fatal(err)
							}
							bubble.Release(t, next)
						}
						next := bubble.Acquire(t, t.Context(), s[0].Permits(n))
						w.InLine(leases, n)
						bubble.Release(t, next)
						bubble.Release(t, bubble.Acquire(t, t.Context(), s[1].Permits(n)))
						empty(w)
					})
				})
			}
		}
	}
}

// While the ensemble refuses the delete, a try is busy, and an Acquire waits
// until the session, which goes on trying, has removed the permit.
func TestAsyncReleaseThatIsRefused(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 1, 1, recipes.WithAsyncRelease())[0]
		l := bubble.Acquire(t, t.Context(), s)
		allow := w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpDelete {
				return testutil.Fail(testutil.CodeNoAuth)
			}
			return testutil.Pass()
		})
		bubble.Release(t, l)
		_, err := s.TryAcquire(t.Context())
		bubble.WantErr(t, err, recipes.ErrBusy)
		next := bubble.Acquiring(t.Context(), s)
		time.Sleep(time.Minute)
		bubble.Pending(t, next)
		allow()
		bubble.Release(t, bubble.Granted(t, next).Lease)
		empty(w)
	})
}

func TestCostOfAnAsyncRelease(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("client")
		knowsMultiRead(t, c)
		s := newSemaphore(w.T, c, 5, recipes.WithAsyncRelease())
		bubble.Release(t, bubble.Acquire(t, t.Context(), s)) // creates the path
		time.Sleep(time.Second)
		w.ResetRequests()
		bubble.Release(t, bubble.Acquire(t, t.Context(), s))
		time.Sleep(time.Second)
		want := map[testutil.Op]int{testutil.OpCreate: 1, testutil.OpMultiRead: 1, testutil.OpMulti: 1, testutil.OpDelete: 1}
		if got := w.Cost(); !maps.Equal(got, want) {
			t.Errorf("requests: %v, want %v", got, want)
		}
		empty(w)
	})
}
