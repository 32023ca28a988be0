package cache_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// One fault at each request of a small life: in the end the view is the truth,
// each batch was right, and nothing is left. Without ZKR_WHOLE it is one of
// four requests, from a random one on.
func TestEveryFaultAtEveryStep(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	actions := map[string]testutil.Action{
		"request lost": testutil.DropBefore(),
		"answer lost":  testutil.DropAfter(),
		"late":         testutil.DelayReply(2 * time.Second),
		"very late":    testutil.DelayReply(time.Minute),
		"expired":      testutil.DelayReply(50 * time.Millisecond),
		"changed":      testutil.DelayReply(51 * time.Millisecond),
	}
	for name, action := range actions {
		for _, opts := range [][]cache.Option{nil, {cache.WithOneShotWatches()}} {
			t.Run(fmt.Sprint(name, len(opts)), func(t *testing.T) { tryEveryStep(t, name, action, opts) })
		}
	}
}

func tryEveryStep(t *testing.T, name string, action testutil.Action, opts []cache.Option) {
	stride := bubble.Few(12, bubble.Draw[int32](4, 1))
	first, steps := 1+rand.Int32N(stride), int32(0)
	for step := first; step == first || step <= min(steps+1, 80); step += stride {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, other := w.Connect("reader"), w.Connect("writer")
			fill(t, other, 4, 3)
			var requests atomic.Int32
			during, over := make(chan struct{}, 1), make(chan struct{})
			stop := w.ClientNet("reader").Control(func(r testutil.Request) testutil.Action {
				if r.Op == testutil.OpPing || requests.Add(1) != step {
					return testutil.Pass()
				}
				during <- struct{}{}
				return action
			})
			var changing sync.WaitGroup
			changing.Go(func() {
				select {
				case <-during:
				case <-over:
					return
				}
				switch s, err := c.Session(); {
				case name == "expired" && err == nil:
					_ = w.ExpireSession(s.ID())
				case name == "changed":
					remove(t, other, root+"/dir-003")
					create(t, other, root+"/dir-003", "again")
					create(t, other, root+"/dir-003/other", "")
				}
			})
			k := start(t, c, opts...)
			m := follow(t, k)
			for i := range 3 {
				if view(t, k.Fresh); name != "changed" { // the truth moves on
					shows(t, w, k)
				}
				set(t, other, fmt.Sprintf("%s/dir-00%d", root, i), "1")
				create(t, other, fmt.Sprintf("%s/new-%d", root, i), "")
				time.Sleep(100 * time.Millisecond)
				remove(t, other, fmt.Sprintf("%s/dir-000/znode-00000%d", root, i))
				if i == 1 {
					w.ClientNet("reader").Drop()
				}
			}
			stop()
			close(over)
			changing.Wait()
			shows(t, w, k)
			if len(m.took()) == 0 {
				t.Error("no changes")
			}
			steps = max(steps, requests.Load())
			k.Close()
			if opts == nil {
				noWatches(t, w)
			}
		})
		if t.Failed() {
			t.Fatalf("at step %d", step)
		}
	}
	t.Logf("%d steps", steps)
}
