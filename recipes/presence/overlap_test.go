package presence_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
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

// Several Nodes wait for one directory. Who makes it is refused: all of them
// have failed, say so, and pause.
func TestADirectoryThatIsRefusedToAll(t *testing.T) {
	bubble.Usual(t, bubble.NoContainers) // refuses containers
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		refused := testutil.NewFault(testutil.Match{Op: testutil.OpCreateContainer, Times: -1}, testutil.Fail(testutil.CodeNoAuth))
		stop := w.Control(refused.Control)
		w.Latency(10 * time.Millisecond)
		var all []*presence.Node
		for i := range 5 {
			n, err := presence.New(c, fmt.Sprint(path, i), nil)
			must(t, err)
			must(t, n.Start())
			all = append(all, n)
		}
		time.Sleep(200 * time.Millisecond) // the first answer has come
		for _, n := range all {
			if s := n.Status(); !errors.Is(s.Err, zk.ErrNoAuth) {
				t.Errorf("%s: %v", n.Path(), s.Err)
			}
		}
		time.Sleep(time.Minute)
		w.ResetRequests()
		time.Sleep(time.Hour)
		if got := w.Cost()[testutil.OpCreate]; got > 5*360 {
			t.Errorf("%d creates in an hour", got)
		}
		stop()
		for _, n := range all {
			standing(t, w, c, n, "")
			closed(t, w, n)
		}
	})
}
