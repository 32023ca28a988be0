package presence_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A Set that is refused takes back no other Set: neither one that begins while
// it is under way, nor one that was accepted before.
func TestARefusedSetTakesBackNoOther(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		n := announce(t, c, path, "0")
		var next atomic.Bool
		refused := make(chan struct{}, 1)
		w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpSetData && next.CompareAndSwap(true, false) {
				refused <- struct{}{}
				return testutil.Fail(testutil.CodeNoAuth)
			}
			return testutil.Pass()
		})
		w.Latency(100 * time.Millisecond)
		for _, after := range []time.Duration{0, 50 * time.Millisecond, time.Second} { // that of the answer is 100ms
			must(t, n.Set(t.Context(), []byte("good")))
			result := make(chan error, 1)
			next.Store(true)
			go func() { result <- n.Set(t.Context(), []byte("bad")) }()
			bubble.Await(t, "the request", refused)
			time.Sleep(after)
			want := "good"
			if after < time.Second {
				want = "later"
				must(t, n.Set(t.Context(), []byte(want)))
			}
			if err := bubble.Await(t, "Set", result); !errors.Is(err, zk.ErrNoAuth) {
				t.Errorf("%v: %v", after, err)
			}
			standing(t, w, c, n, want)
			w.Expire(c) // the next session's znode has the data that are wanted
			time.Sleep(2 * bubble.Timeout)
			standing(t, w, c, n, want)
		}
		closed(t, w, n)
	})
}
