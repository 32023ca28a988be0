package page_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestDeadlocksOnlyForViewers: deadlocks are searched for every five seconds
// while somebody looks at them, and not while others look at other pages.
func TestDeadlocksOnlyForViewers(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		held := bubble.Acquire(t, t.Context(), mutex(t, w.ConnectNext(), "/app/x", ""))
		wait(t, w, mutex(t, w.ConnectNext(), "/app/x", ""), "/app/x", 2)
		network := w.Embedded.ClientNet("page")
		p := page.New(w.Servers(), page.WithRoots("/app"), page.WithClient(framework.WithDialer(network.Dial), framework.WithSessionTimeout(time.Hour)))
		defer p.Close()
		var searches atomic.Int32
		network.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpMultiRead || r.Op == testutil.OpSync {
				searches.Add(1)
			}
			return testutil.Pass()
		})
		in := func(d time.Duration) int32 {
			before := searches.Load()
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(15 * time.Second) {
				for _, topic := range []string{"", "ensemble", "line&path=/app/x"} {
					follow(t, p, "topic="+topic)
				}
			}
			return searches.Load() - before
		}
		if n := in(time.Minute); n != 0 {
			t.Errorf("%d requests of searches, while nobody looks at deadlocks", n)
		}
		viewer := follow(t, p, "topic=deadlocks")
		time.Sleep(18 * time.Second)
		if n := searches.Load(); n < 3 {
			t.Errorf("%d requests of searches in 18s", n)
		}
		viewer.leave()
		<-viewer.ended
		time.Sleep(time.Minute / 4) // a search may go on
		if n := in(time.Minute); n != 0 {
			t.Errorf("%d requests of searches, after the one who looked has left", n)
		}
		bubble.Release(t, held)
	})
}

// TestALargeList: a list of more than a megabyte is read every ten seconds at
// most by the look at lines, and as often by the search for deadlocks, whatever
// changes and whoever looks.
func TestALargeList(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		const dir, names = "/app/large", 1100
		c := w.ConnectNext()
		must(t, c.MakePersistentPath(t.Context(), dir))
		child := func(i int) string { return fmt.Sprint(dir, "/", strings.Repeat("x", 1000), i) }
		for i := range names {
			_, err := c.Create(t.Context(), child(i), nil, 0)
			must(t, err)
		}
		network := w.Embedded.ClientNet("page")
		p := page.New(w.Servers(), page.WithRoots("/app"), page.WithClient(framework.WithDialer(network.Dial)))
		defer p.Close()
		lists := map[string][]time.Time{} // by who lists
		network.Control(func(r testutil.Request) testutil.Action {
			by := ""
			if r.Path == dir {
				by = "the look"
			}
			if slices.ContainsFunc(r.Operations, func(op testutil.Operation) bool { return op.Path == dir }) {
				by = "the search"
			}
			if by != "" {
				lists[by] = append(lists[by], time.Now())
			}
			return testutil.Pass()
		})
		for i := range 60 {
			if i%15 == 0 {
				for _, topic := range []string{"", "deadlocks", "line&path=" + dir} {
					follow(t, p, "topic="+topic)
				}
			}
			_, err := c.Create(t.Context(), child(names+i), nil, 0)
			must(t, err)
			time.Sleep(time.Second)
		}
		for _, by := range []string{"the look", "the search"} {
			if len(lists[by]) < 4 {
				t.Errorf("%d lists by %s", len(lists[by]), by)
			}
			for i := 1; i < len(lists[by]); i++ {
				if gap := lists[by][i].Sub(lists[by][i-1]); gap < 10*time.Second {
					t.Errorf("a list by %s %v after another one", by, gap)
				}
			}
		}
	})
}
