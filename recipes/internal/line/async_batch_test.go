package line_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Many locks are released without a wait, and the batch of the removals is
// refused because of one of them. The others are then sent again, maybe behind
// the creates of those who acquire next. None of those is told that the lock is
// busy.
func TestATryAfterABatchOfRemovalsWasRefused(t *testing.T) {
	bubble.Usual(t, bubble.NoBatching) // counts shared requests
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		const keys = 12
		keyed, err := locks.NewKeyed(w.Connect("a"), lockPath, async)
		if err != nil {
			t.Fatal(err)
		}
		var held []*recipes.Lease
		for i := range keys {
			held = append(held, bubble.Acquire(t, t.Context(), keyed.Key(fmt.Sprint(i))))
		}
		w.Latency(10 * time.Millisecond)
		var mu sync.Mutex
		refused := ""
		defer w.Control(func(r testutil.Request) testutil.Action {
			mu.Lock()
			defer mu.Unlock()
			if refused != "" || r.Op != testutil.OpMulti || !slices.ContainsFunc(r.Operations[1:], func(o testutil.Operation) bool { return o.Op == testutil.OpDelete }) {
				return testutil.Pass()
			}
			refused = r.Path
			return testutil.FailOperation(0, testutil.CodeNoAuth)
		})()
		for _, l := range held {
			bubble.ReleaseAtOnce(t, l)
		}
		var trying sync.WaitGroup
		for i, l := range held {
			trying.Go(func() {
				next, err := keyed.Key(fmt.Sprint(i)).TryAcquire(t.Context())
				mu.Lock()
				wasRefused := refused == l.Path()
				mu.Unlock()
				switch {
				case err == nil:
					bubble.Release(t, next)
				case !wasRefused: // that znode stays for some seconds
					t.Errorf("key %d: %v", i, err)
				}
			})
		}
		trying.Wait()
		if refused == "" {
			t.Error("no batch of removals")
		}
		time.Sleep(time.Minute)
		for i := range keys {
			w.Empty(fmt.Sprint(lockPath, "/", i))
		}
	})
}
