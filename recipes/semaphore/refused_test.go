package semaphore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Whichever one request of a call the ensemble refuses, the call fails with
// that error, grants nothing and leaves nothing behind. Only the list that
// follows the create of a waiter is made again.
func TestAnyRefusalIsReturned(t *testing.T) {
	for name, test := range map[string]struct {
		held  int // permits that another client holds, and releases after a second
		call  func(t *testing.T, s *semaphore.Semaphore) (*recipes.Lease, error)
		least int // requests that were refused
	}{
		"SetMax": {0, func(t *testing.T, s *semaphore.Semaphore) (*recipes.Lease, error) {
			return nil, s.SetMax(t.Context(), 3)
		}, 4},
		"Acquire at once":      {0, func(t *testing.T, s *semaphore.Semaphore) (*recipes.Lease, error) { return s.Acquire(t.Context()) }, 5},
		"Acquire after a wait": {3, func(t *testing.T, s *semaphore.Semaphore) (*recipes.Lease, error) { return s.Acquire(t.Context()) }, 5},
		"Acquire of two after a wait": {3, func(t *testing.T, s *semaphore.Semaphore) (*recipes.Lease, error) {
			return s.Permits(2).Acquire(t.Context())
		}, 5},
		"TryAcquire": {0, func(t *testing.T, s *semaphore.Semaphore) (*recipes.Lease, error) { return s.TryAcquire(t.Context()) }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				refused := ""
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					a, b := w.Connect("a"), w.Connect("b")
					other := newSemaphore(t, b, 3)
					if test.held > 0 {
						l := bubble.Acquire(t, t.Context(), other.Permits(test.held))
						time.AfterFunc(time.Second, func() { bubble.Release(t, l) })
					}
					asked, mine := 0, w.SessionID(a)
					stop := w.Control(func(r testutil.Request) testutil.Action {
						if r.Session != mine || r.Op == testutil.OpPing || r.Op == testutil.OpSync || r.Op == testutil.OpDelete {
							return testutil.Pass()
						}
						if asked++; asked-1 != n {
							return testutil.Pass()
						}
						refused = r.Op.String() + " " + r.Path
						return testutil.Fail(testutil.CodeNoAuth)
					})
					l, err := test.call(t, newSemaphore(t, a, 3))
					stop()
					again := err == nil && refused == "getChildren2 "+w.View.Full(lockDir)
					if (err == nil) != (refused == "") && !again || err != nil && (!errors.Is(err, zk.ErrNoAuth) || l != nil) {
						t.Errorf("%s was refused: %v, %v", refused, l, err)
					}
					if l != nil {
						bubble.Release(t, l)
					}
					time.Sleep(2 * time.Second)
					bubble.Release(t, bubble.Acquire(t, t.Context(), other.Permits(3)))
					empty(w)
				})
				if refused == "" {
					if n < test.least {
						t.Errorf("%d requests", n)
					}
					return
				}
			}
		})
	}
}
