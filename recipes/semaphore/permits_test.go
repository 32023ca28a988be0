package semaphore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// Goroutines call Permits of one value at the same time. They wrote their own
// numbers into one slice, and a caller that wanted three permits was granted
// one. The race detector sees it at once.
func TestPermitsOfOneValueAtOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s, err := semaphore.New(w.Connect("a"), "/app/sem", 6, recipes.WithData([]byte("x")),
			recipes.WithACL(zk.WorldACL(zk.PermAll)...), recipes.WithMaxHold(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for n := 1; n <= 3; n++ {
			all.Go(func() {
				for range 30 {
					l := bubble.Acquire(t, t.Context(), s.Permits(n))
					if got := len(l.Guard()); got != n {
						t.Errorf("granted %d permits, not %d", got, n)
					}
					bubble.Release(t, l)
				}
			})
		}
		all.Wait()
		empty(w)
	})
}
