package managed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// leaves are the znodes of plant without children.
var leaves = []string{"/tree/a/1", "/tree/a/2", "/tree/b/deep/er", "/tree/c"}

// plant makes a tree of eight znodes, and a neighbor of it.
func plant(t *testing.T, c *framework.Client) {
	t.Helper()
	for _, path := range append(leaves, "/treetop") {
		must(t, c.MakePersistentPath(t.Context(), path))
	}
}

// Each fault strikes at each request. What DeleteTree says is gone was there,
// and is gone, each once. A nil error says that of all; an error that is not
// MaybeApplied says that all else stands.
func TestDeleteTreeOverFaults(t *testing.T) {
	canceled := bubble.Fault{Name: "canceled", Action: testutil.Delay(1), Happen: func(s *bubble.Strike) { s.Cancel() }, Fails: true}
	late := bubble.Fault{Name: "canceled, and executed", Action: testutil.DelayReply(bubble.Timeout), Happen: func(s *bubble.Strike) { s.Cancel() }, Fails: true}
	bubble.EveryFault(t, bubble.Faults(canceled, late), 1, func(t *testing.T, at bubble.At) (requests int) {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			maker := w.Connect("maker")
			below, err := maker.Namespace("app")
			must(t, err)
			plant(t, below)
			root, err := w.Connect("ours").Namespace("app")
			must(t, err)
			must(t, root.WaitConnected(t.Context()))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			strikes, net := w.Strikes(at), w.ClientNet("ours")
			net.Control(func(r testutil.Request) testutil.Action { return strikes.Control(net, r, cancel) })
			deleted, err := root.DeleteTree(ctx, "/tree")
			requests = strikes.End()
			if err != nil && !at.Fails && at.Happen == nil {
				t.Errorf("at request %d: %v", at.N, err)
			}
			all := slices.Clone(deleted)
			slices.Sort(all)
			if len(slices.Compact(all)) != len(deleted) {
				t.Errorf("at request %d: twice: %v", at.N, deleted)
			}
			for _, path := range deleted {
				if !strings.HasPrefix(path, "/tree") || w.Exists("/app"+path) {
					t.Errorf("at request %d: %s is not gone", at.N, path)
				}
			}
			if err == nil && len(deleted) != 8 || err != nil && !framework.MaybeApplied(err) && len(deleted)+strings.Count(w.Tree(), "\n") != 10 {
				t.Errorf("at request %d: %v, error %v\n%s", at.N, deleted, err, w.Tree())
			}
			if _, err = below.DeleteTree(t.Context(), "/tree"); err != nil && !errors.Is(err, zk.ErrNoNode) || w.Exists("/app/tree") || !w.Exists("/app/treetop") {
				t.Errorf("at request %d, then: %v\n%s", at.N, err, w.Tree())
			}
		}, testutil.WithMembers(3))
		return requests
	})
}

// Somebody makes a znode below one that is about to be deleted: it is deleted,
// too.
func TestDeleteTreeThatGrows(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("ours"), w.Connect("other")
		plant(t, c)
		held, found := make(chan struct{}), make(chan struct{})
		net := w.ClientNet("ours")
		stop := net.Control(func(r testutil.Request) testutil.Action {
			if r.Op != testutil.OpMulti || closed.Is(found) {
				return testutil.Pass()
			}
			close(found)
			return testutil.Hold(held)
		})
		defer stop()
		go func() {
			<-found
			_, _ = other.Create(t.Context(), "/tree/c/new", nil, 0) // seen below
			close(held)
		}()
		deleted, err := c.DeleteTree(t.Context(), "/tree")
		if err != nil || !slices.Contains(deleted, "/tree/c/new") || len(deleted) != 9 || w.Exists("/tree") {
			t.Errorf("%v, error %v\n%s", deleted, err, w.Tree())
		}
	})
}

// It costs a sync, lists, and a delete for a hundred znodes, or fewer where
// their paths are long.
func TestDeleteTreeCosts(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext(framework.WithMaxRequest(16 << 10))
		for _, tt := range []struct {
			name      string
			n, multis int
		}{{"n", 250, 3}, {strings.Repeat("n", 4000), 12, 3}, {strings.Repeat("n", 16_000), 2, 2}} {
			must(t, c.MakePersistentPath(t.Context(), "/tree"))
			for i := range tt.n {
				_, err := c.Create(t.Context(), fmt.Sprint("/tree/", tt.name, i), nil, 0)
				must(t, err)
			}
			w.ResetRequests()
			deleted, err := c.DeleteTree(t.Context(), "/tree")
			must(t, err)
			cost := w.Requests()
			if len(deleted) != tt.n+1 || cost[testutil.OpMulti] != tt.multis || cost[testutil.OpSync] != 1 || len(cost) != 3 {
				t.Errorf("%d of %.9s: %d are gone, it cost %v", tt.n, tt.name, len(deleted), cost)
			}
		}
	})
}

// What cannot be deleted.
func TestDeleteTreeRefuses(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		for path, want := range map[string]string{"/": "the root is not deleted", "": "", "/none": "node does not exist", "/a/": ""} {
			deleted, err := c.DeleteTree(t.Context(), path)
			if err == nil || len(deleted) > 0 || framework.MaybeApplied(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, error %v", path, deleted, err)
			}
		}
	})
}
