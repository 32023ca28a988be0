package managed_test

import (
	"context"
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Each fault strikes at each request of a Put that creates, and of one that
// sets. A nil error says what it was; an error that is not MaybeApplied says
// that nothing was written.
func TestPutOverFaults(t *testing.T) {
	canceled := bubble.Fault{Name: "canceled", Action: testutil.DropAfter(), Happen: func(s *bubble.Strike) { s.Cancel() }, Fails: true}
	bubble.EveryFault(t, bubble.Faults(canceled), 1, func(t *testing.T, at bubble.At) (requests int) {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, other, net := w.Connect("ours"), w.Connect("other"), w.ClientNet("ours")
			must(t, c.WaitConnected(t.Context()))
			for set := range 2 {
				want := string('a' + rune(set))
				was, _ := w.Stat("/n")
				ctx, cancel := context.WithCancel(t.Context())
				strikes := w.Strikes(at)
				net.Control(func(r testutil.Request) testutil.Action { return strikes.Control(net, r, cancel) })
				version, err := c.Put(ctx, "/n", []byte(want))
				requests = max(requests, strikes.End())
				cancel()
				data, _ := w.Data("/n")
				now, exists := w.Stat("/n")
				switch {
				case err == nil && (string(data) != want || version != now.Version):
					t.Errorf("at request %d: %q at version %d, told %d", at.N, data, now.Version, version)
				case err != nil && !framework.MaybeApplied(err) && exists && now.Mzxid != was.Mzxid:
					t.Errorf("at request %d: %v, and it was written", at.N, err)
				case err != nil && !framework.MaybeApplied(err) && !at.Fails && at.Happen == nil:
					t.Errorf("at request %d: %v", at.N, err)
				}
				if !exists { // it comes by the next one, which sets
					_, err = other.Create(t.Context(), "/n", nil, 0)
					must(t, err)
				}
			}
		}, testutil.WithMembers(3))
		return requests
	})
}

// Others create and delete the znode between the two requests of a Put.
func TestPutMeetsOthers(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("ours"), w.Connect("other")
		times := 0
		w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
			switch done := make(chan struct{}); {
			case times == 4: // it has the znode to itself
			case r.Does(testutil.OpSetData, "/n"):
				times++
				go func() { defer close(done); _ = other.Delete(context.Background(), "/n", -1) }()
				return testutil.Hold(done)
			case r.Does(testutil.OpCreate, "/n"):
				go func() { defer close(done); _, _ = other.Create(context.Background(), "/n", nil, 0) }()
				return testutil.Hold(done)
			}
			return testutil.Pass()
		})
		version, err := c.Put(t.Context(), "/n", []byte("ours"))
		must(t, err)
		if data, _ := w.Data("/n"); string(data) != "ours" || version != 0 {
			t.Errorf("%q, told version %d", data, version)
		}
	})
}

// A Put has the ACL that it was given, and makes no directory.
func TestPutCreates(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		if _, err := c.Put(t.Context(), "/a/b", nil); !errors.Is(err, zk.ErrNoNode) || framework.MaybeApplied(err) {
			t.Error(err)
		}
		w.ResetRequests()
		for want := range int32(3) {
			if version, err := c.Put(t.Context(), "/a", []byte("x"), zk.WorldACL(zk.PermRead|zk.PermWrite)...); err != nil || version != want {
				t.Error(version, err)
			}
		}
		if cost := w.Cost(); cost[testutil.OpSetData] != 3 || cost[testutil.OpCreate] != 1 || w.Total() != 4 {
			t.Error(cost)
		}
		if acl, _, err := c.GetACL(t.Context(), "/a"); err != nil || acl[0].Perms != zk.PermRead|zk.PermWrite {
			t.Error(acl, err)
		}
	})
}
