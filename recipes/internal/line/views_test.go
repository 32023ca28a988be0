package line_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// twoViews returns a client, a namespace of it, and the path of lockPath there.
func twoViews(t *testing.T, w *bubble.World, opts ...framework.Option) (c, below *framework.Client, path string) {
	t.Helper()
	c = w.Connect("two views", opts...)
	below, err := c.Namespace("app")
	if err != nil {
		t.Fatal(err)
	}
	return c, below, strings.TrimPrefix(lockPath, "/app")
}

// A znode that leaves and the next one, which replaces it, may be in two views
// of a client: they are one transaction, without a list, as in one view.
func TestAZnodeIsReplacedInAnotherView(t *testing.T) {
	bubble.Usual(t, bubble.NoBatching) // counts shared requests
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, below, path := twoViews(t, w)
		both := []*locks.Mutex{mutexOf(t, c, async), mutexAt(t, below, path, async)}
		bubble.Release(t, bubble.Acquire(t, t.Context(), both[1])) // creates the path
		time.Sleep(time.Second)
		w.ResetRequests()
		const cycles = 6
		for i := range cycles {
			bubble.Release(t, bubble.Acquire(t, t.Context(), both[i%2]))
		}
		time.Sleep(time.Minute)
		want := map[testutil.Op]int{testutil.OpCreate: 1, testutil.OpMulti: cycles - 1, testutil.OpGetChildren2: 1, testutil.OpDelete: 1}
		if got := w.Cost(); !maps.Equal(got, want) {
			t.Errorf("requests of %d cycles: %v, want %v", cycles, got, want)
		}
		w.Empty(lockPath)
	})
}

// A permit that was acquired in one view, while the local queue is another
// view's, is logged with its paths at the ensemble.
func TestAPermitIsLoggedWithItsFullPath(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		core, logged := observer.New(zap.WarnLevel)
		c, below, path := twoViews(t, w, framework.WithLogger(zap.New(core)))
		outside, err := semaphore.New(c, lockPath, 2, async)
		if err != nil {
			t.Fatal(err)
		}
		inside, err := semaphore.New(below, path, 2, async)
		if err != nil {
			t.Fatal(err)
		}
		first, second := bubble.Acquire(t, t.Context(), outside), bubble.Acquire(t, t.Context(), inside)
		znode := below.Resolve(second.Path())
		if err := w.Connect("operator").Delete(t.Context(), w.View.Path(znode), -1); err != nil {
			t.Fatal(err)
		}
		bubble.Release(t, second, first)
		time.Sleep(time.Second)
		lines := logged.FilterMessage("the znode of a lease was deleted before its release").All()
		if len(lines) != 1 || lines[0].ContextMap()["znode"] != znode || lines[0].ContextMap()["path"] != w.View.Full(lockPath) {
			t.Errorf("logged %v, want one line of %s", lines, znode)
		}
		w.Empty(lockPath+"/locks", lockPath+"/leases")
	})
}
