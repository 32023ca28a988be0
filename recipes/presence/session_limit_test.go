package presence_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A presence keeps its room: it stands again after somebody has deleted it, and
// in a new session, although others have taken all that is left. One for which
// there is no room says so, and stands as soon as there is.
func TestAPresenceIsMadeAgainWhateverTheSessionsSize(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // such servers have no limit
	for name, opts := range map[string][]presence.Option{"": nil, "sequential": {presence.WithSequential()}} {
		t.Run(name, func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				c := w.Connect("a", bubble.Narrow)
				must(t, c.MakePersistentPath(t.Context(), "/members"))
				n := announce(t, c, "/members/one", "", opts...)
				bubble.Fill(t, c)
				must(t, w.Connect("b").Delete(t.Context(), n.Path(), -1))
				bubble.Await(t, "its end", changed(n, presence.Pending))
				awaitState(t, n, presence.Standing)
				before := w.Session(c)
				w.Expire(c)
				bubble.Await(t, "the end of the session", before.Done())
				must(t, c.WaitConnected(t.Context()))
				full := bubble.Fill(t, c)
				awaitState(t, n, presence.Standing)

				late, err := presence.New(c, "/members/late", nil, opts...)
				must(t, err)
				must(t, late.Start())
				bubble.AwaitTrue(t, "the refusal", func() bool { return late.Status().Err != nil })
				bubble.WantErr(t, late.Status().Err, framework.ErrTooLarge)
				must(t, c.Delete(t.Context(), full[0], -1))
				awaitState(t, late, presence.Standing)
				bubble.Fill(t, c)
				must(t, n.Close(t.Context()))
				must(t, late.Close(t.Context()))
				if more := bubble.Fill(t, c); len(more) == 0 {
					t.Error("the room of closed presences is not free")
				}
			})
		})
	}
}

// A request was lost that has made the znode, or not, while the session was
// full. The next one is not refused, and so neither is a Set that waits for it.
func TestASetIsNotRefusedForTheSessionsSize(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // such servers have no limit
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a", bubble.Narrow)
		must(t, c.MakePersistentPath(t.Context(), "/members"))
		n := announce(t, c, "/members/one", "old")
		bubble.Fill(t, c)
		var lost atomic.Bool
		w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreate && r.Path == n.Path() && !lost.Swap(true) {
				return testutil.DropBefore()
			}
			return testutil.Pass()
		})
		must(t, w.Connect("b").Delete(t.Context(), n.Path(), -1))
		must(t, n.Set(t.Context(), []byte("new")))
		if data, _, err := c.Get(t.Context(), n.Path()); err != nil || string(data) != "new" || !lost.Load() {
			t.Errorf("%q, %v", data, err)
		}
	})
}

// A takeover uses the room of the znode that was there before, also after a
// look has failed: otherwise a full session refuses it, and a Set with it.
func TestATakeoverIsNotRefusedForTheSessionsSize(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // such servers have no limit
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("a", bubble.Narrow), w.Connect("b")
		must(t, c.MakePersistentPath(t.Context(), "/members"))
		n := announce(t, c, "/members/one", "old", presence.WithTakeover(func([]byte) bool { return true }))
		bubble.Fill(t, c)
		var lost atomic.Bool
		defer w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpGetData && r.Session == w.Session(c).ID() && !lost.Swap(true) {
				return testutil.DropBefore()
			}
			return testutil.Pass()
		})()
		_, err := other.Set(t.Context(), n.Path(), []byte("other"), -1)
		must(t, err)
		bubble.AwaitTrue(t, "the look that fails", lost.Load)
		must(t, c.WaitConnected(t.Context()))
		time.Sleep(time.Minute)
		_, err = other.Multi(t.Context(), &zk.DeleteRequest{Path: n.Path(), Version: -1}, &zk.CreateRequest{Path: n.Path(), Flags: zk.FlagEphemeral})
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must(t, n.Set(ctx, []byte("new")))
		if data, stat, err := c.Get(t.Context(), n.Path()); err != nil || string(data) != "new" || stat.EphemeralOwner != w.Session(c).ID() {
			t.Errorf("%q, %v", data, err)
		}
	})
}

// changed is closed when a Node has come to a state.
func changed(n *presence.Node, to presence.State) <-chan struct{} {
	came := make(chan struct{}, 16)
	n.Listen(func(s presence.Status) {
		if s.State == to {
			came <- struct{}{}
		}
	})
	return came
}
