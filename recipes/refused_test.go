package recipes_test

import (
	"context"
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Whichever of its requests is refused, a query fails with that error.
func TestARefusedRequestIsNoAnswer(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		election, err := leader.New(c, "/leader")
		must(err)
		keyed, err := locks.NewKeyed(c, "/keyed")
		must(err)
		permits, err := semaphore.New(c, "/permits", 1)
		must(err)
		waits, err := semaphore.New(w.Connect("b"), "/permits", 1)
		must(err)
		var held []*recipes.Lease
		for _, a := range []recipes.Acquirer{election, keyed.Key("a"), permits} {
			held = append(held, bubble.Acquire(t, t.Context(), a))
		}
		ctx, cancel := context.WithCancel(t.Context())
		waiting := bubble.Acquiring(ctx, waits)
		w.InLine("/permits/locks", 1)
		mine := w.SessionID(c)
		for name, test := range map[string]struct {
			query    func() error
			requests int
		}{
			"Participants":          {func() error { _, err := keyed.Key("a").Participants(t.Context()); return err }, 2},
			"Leader":                {func() error { _, err := election.Leader(t.Context()); return err }, 2},
			"Participants, permits": {func() error { _, err := permits.Participants(t.Context()); return err }, 4},
			"Available":             {func() error { _, err := permits.Available(t.Context()); return err }, 2},
			"Keys":                  {func() error { _, err := keyed.Keys(t.Context()); return err }, 1},
			"Revoke":                {func() error { return keyed.Key("a").Revoke(t.Context(), recipes.Participant{Path: held[1].Path()}) }, 1},
			"SetMax":                {func() error { return permits.SetMax(t.Context(), 1) }, 4},
			"Multi":                 {func() error { _, err := held[0].Multi(t.Context(), bubble.Set("/permits", "1")); return err }, 1},
		} {
			for refused := range test.requests + 1 {
				n := 0
				stop := w.Control(func(r testutil.Request) testutil.Action {
					if r.Session != mine || r.Op == testutil.OpSync || r.Op == testutil.OpPing {
						return testutil.Pass()
					}
					if n++; n == refused+1 {
						return testutil.Fail(testutil.CodeNoAuth)
					}
					return testutil.Pass()
				})
				err := test.query()
				stop()
				if name == "SetMax" && refused < 2 {
					continue // to make the path and what keeps it, which are there
				}
				if refused < test.requests && !errors.Is(err, zk.ErrNoAuth) || refused == test.requests && (err != nil || n != test.requests) {
					t.Errorf("%s, request %d of %d refused: %v", name, refused+1, n, err)
				}
			}
		}
		cancel()
		<-waiting
		bubble.Release(t, held...)
	})
}
