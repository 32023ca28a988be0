package locks_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A client that locks ever more keys, and lingers, used to have so many znodes
// that the transaction at its end was more than members read: none of them
// served any more. Now it gives back a lingering lock for each that is too
// many.
func TestLingeringLocksOfOneClientDoNotEndTheEnsemble(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		k := keyedOf(t, c, recipes.WithLinger(time.Hour))
		const keys, callers = 2200, 20 // 2.4 MB of paths
		var all sync.WaitGroup
		for caller := range callers {
			all.Go(func() {
				for i := range keys / callers {
					l, err := k.Key(strings.Repeat("k", 1000) + fmt.Sprint(caller, "-", i)).Acquire(t.Context())
					if err == nil {
						err = l.Release(t.Context())
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := w.Connect("b").Create(t.Context(), "/after", nil, zk.FlagPersistent); err != nil {
			t.Errorf("after the end of the session: %v", err)
		}
	}, testutil.WithMembers(3))
}
