package cache_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// One fault at each request of a small life: in the end the view is the truth,
// each batch was right, and nothing is left.
func TestEveryFaultAtEveryStep(t *testing.T) {
	actions := map[string]testutil.Action{
		"request lost": testutil.DropBefore(),
		"answer lost":  testutil.DropAfter(),
		"late":         testutil.DelayReply(2 * time.Second),
		"very late":    testutil.DelayReply(time.Minute),
		"expired":      testutil.DelayReply(50 * time.Millisecond),
		"changed":      testutil.DelayReply(51 * time.Millisecond),
	}
	for name, action := range actions {
		t.Run(name, func(t *testing.T) {
			steps := int32(0)
			for step := int32(1); step <= steps+1; step++ {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					c, other := w.Connect("reader"), w.Connect("writer")
					fill(t, other, 4, 3)
					var requests atomic.Int32
					during := make(chan struct{}, 1)
					stop := w.ClientNet("reader").Control(func(r testutil.Request) testutil.Action {
						if r.Op == testutil.OpPing || requests.Add(1) != step {
							return testutil.Pass()
						}
						during <- struct{}{}
						return action
					})
					go func() {
						if _, hit := <-during; !hit {
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
					}()
					k := start(t, c)
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
					shows(t, w, k)
					if len(m.took()) == 0 {
						t.Error("no changes")
					}
					stop()
					close(during)
					steps = max(steps, requests.Load())
					k.Close()
					noWatches(t, w)
				})
				if t.Failed() {
					t.Fatalf("at step %d", step)
				}
				if step > 60 {
					break
				}
			}
			t.Logf("%d steps", steps)
		})
	}
}
