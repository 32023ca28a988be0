package discovery_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
)

// The ensemble is rebuilt by the same script, with other instances: what was
// known of those of before, as that one has failed, is forgotten.
func TestAServiceInARebuiltEnsemble(t *testing.T) {
	for when, others := range bubble.Rebuilt {
		t.Run(when, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				script := func(others int, payload string) func(c *framework.Client) {
					return func(c *framework.Client) {
						bubble.Padding(t, others)(c)
						i := a(payload)
						i.Type = discovery.Static
						register(t, open(t, c), i)
					}
				}
				w.Provision(script(10, "old"))
				c := w.Connect("consumer")
				s := billing(t, open(t, c))
				shows(t, s, "a=old")
				var told []instance
				defer s.Listen(func(all []instance, _ discovery.Status) { told = all })()
				for range 2 {
					picked, err := s.Pick(t.Context())
					must(t, err)
					picked.Failed()
				}
				if n := s.Status().Failed; n != 1 {
					t.Errorf("%d have failed", n)
				}
				before := w.SessionID(c)
				w.Rebuild(script(others, "new"), "consumer")
				w.AwaitNext(c, before)
				_, err := s.Fresh(t.Context())
				must(t, err)
				if n := s.Status().Failed; n != 0 {
					t.Errorf("%d of the new ones have failed", n)
				}
				shows(t, s, "a=new")
				synctest.Wait()
				if show(told) != "a=new" {
					t.Errorf("the listener was told of %q", show(told))
				}
			})
		})
	}
}

// A registration writes to its own znode only, and removes no other: not one
// that has the same czxid in a rebuilt ensemble.
func TestAPersistentInstanceInARebuiltEnsemble(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Provision(bubble.Padding(t, 10))
		c := w.Connect("owner")
		i := a("mine")
		i.Type = discovery.Static
		r := register(t, open(t, c), i)
		mine, _ := w.Stat(path)
		before := w.SessionID(c)
		time.Sleep(time.Second)
		w.Rebuild(func(c *framework.Client) {
			bubble.PadTo(t, mine.Czxid-2)(c)
			bubble.Tree(t, root, "", dir, "", path, "theirs")(c)
		}, "owner")
		w.AwaitNext(c, before)
		if theirs, _ := w.Stat(path); theirs.Czxid != mine.Czxid {
			t.Fatalf("%x, want %x", theirs.Czxid, mine.Czxid)
		}
		if err := r.Update(t.Context(), instance{Payload: "new"}); !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("update: %v", err)
		}
		must(t, r.Close(t.Context()))
		if data, ok := w.Data(path); !ok || string(data) != "theirs" {
			t.Errorf("%q, it exists: %t", data, ok)
		}
	})
}
