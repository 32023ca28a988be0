package barrier_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const config = path + "/config"

// others are the children of a barrier that are no members.
var others = map[string]func(t *testing.T, c *framework.Client){
	"a persistent znode": func(t *testing.T, c *framework.Client) { persistent(t, c) },
	"a container": func(t *testing.T, c *framework.Client) {
		must(t, c.MakeContainerPath(t.Context(), config+"/a"))
	},
	"one of a lower name": func(t *testing.T, c *framework.Client) {
		_, err := c.Create(t.Context(), path+"/!", nil, zk.FlagPersistent)
		must(t, err)
	},
}

func persistent(t *testing.T, c *framework.Client) {
	t.Helper()
	_, err := c.Create(t.Context(), config, nil, zk.FlagPersistent)
	must(t, err)
}

// What somebody keeps in the directory of a barrier counted as a member: one
// entered alone, and nobody could leave.
func TestOthersAreNoMembers(t *testing.T) {
	for name, create := range others {
		t.Run(name, func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				c := w.ConnectNext()
				a, b := double(t, c, 2), double(t, w.ConnectNext(), 2)
				must(t, c.MakeContainerPath(t.Context(), path))
				create(t, c)
				for range 2 {
					round(t, a, b)
				}
			})
		})
	}
}

// The same while others are inside, of whom one is late.
func TestOthersComeMeanwhile(t *testing.T) {
	for name, create := range others {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.ConnectNext()
				a, b, x := double(t, c, 2), double(t, w.ConnectNext(), 2), double(t, w.ConnectNext(), 2)
				inside := enterTogether(t, a, b)
				inside = append(inside, enter(t, entering(t.Context(), x)))
				create(t, c)
				leaveTogether(t, inside...)
				round(t, x, a)
			})
		})
	}
}

// A ready that was left behind is not valid because something older is there
// that is no member.
func TestOthersMakeNoReadyValid(t *testing.T) {
	for name, create := range others {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.ConnectNext()
				must(t, c.MakeContainerPath(t.Context(), path))
				create(t, c)
				_, err := c.Create(t.Context(), ready, nil, zk.FlagPersistent)
				must(t, err)
				round(t, double(t, c, 2), double(t, w.ConnectNext(), 2))
			})
		})
	}
}

// An ephemeral znode of another name is a member, as of Curator, in one request
// of the one that finds n names. Of one that may not be read nobody knows.
func TestNeighborsAreMembers(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, neighbor := w.ConnectNext(), w.ConnectNext()
		must(t, c.MakeContainerPath(t.Context(), path))
		persistent(t, c)
		join := func(acl ...zk.ACL) (leave func()) {
			_, err := neighbor.Create(t.Context(), path+"/neighbor", nil, zk.FlagEphemeral, acl...)
			must(t, err)
			return func() { must(t, neighbor.Delete(t.Context(), path+"/neighbor", -1)) }
		}
		leave := join()
		w.ResetRequests()
		first := entering(t.Context(), double(t, c, 3)) // three names
		pending(t, first)
		if n := w.Cost()[testutil.OpMultiRead]; n != 1 {
			t.Errorf("%d reads for a list of 3 names", n)
		}
		inside := []*barrier.Inside{enter(t, entering(t.Context(), double(t, w.ConnectNext(), 3))), enter(t, first)}
		leaving := leaving(t.Context(), inside[0])
		time.Sleep(time.Second)
		leave()
		leaveTogether(t, inside[1])
		must(t, bubble.Await(t, "Leave", leaving))
		defer join(zk.WorldACL(zk.PermDelete)...)()
		e := bubble.Await(t, "Enter", entering(t.Context(), double(t, c, 2)))
		if wantErr(t, e.err, zk.ErrNoAuth); !strings.Contains(e.err.Error(), path+"/neighbor") {
			t.Error(e.err)
		}
	})
}
