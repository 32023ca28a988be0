//go:build unix

package live

import (
	"context"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestLiveViewIsTrue runs the examples of the page about the live view, while
// two clients have taken two locks in two orders.
func TestLiveViewIsTrue(t *testing.T) {
	zkrtest.Parallel(t)
	e := testutil.Start(t)
	watcher := zkrtest.Dial(t, e)
	clients := []*framework.Client{zkrtest.Dial(t, e), zkrtest.Dial(t, e)}
	names := []string{"web-1", "web-2"}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	take := func(a recipes.Acquirer) {
		t.Helper()
		if _, err := a.Acquire(ctx); err != nil { // the session's end releases it
			t.Fatal(err)
		}
	}
	mutex := func(i int, path string) recipes.Acquirer {
		t.Helper()
		m, err := locks.NewMutex(clients[i], path, recipes.WithData([]byte(names[i])))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	take(mutex(0, "/app/x"))
	take(mutex(1, "/app/y"))
	s, err := semaphore.New(clients[0], "/app/workers", 3, recipes.WithData([]byte("web-1")))
	if err != nil {
		t.Fatal(err)
	}
	take(s)
	for i, path := range []string{"/app/y", "/app/x"} {
		go func() { _, _ = mutex(i, path).Acquire(ctx) }() // is canceled
		bubble.AwaitTrue(t, path+" is waited for", func() bool {
			s, err := takeSnapshot(ctx, watcher, path)
			return err == nil && len(s.Waiting) == 1
		})
	}
	if n := zkrtest.RunExamples(t, zkrtest.Page(t, "live-view.md"), e.Servers()); n < 4 {
		t.Errorf("found %d examples", n)
	}
}
