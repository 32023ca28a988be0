package managed_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// resets ends every connection of a client that has asked for a container,
// whether or not it was made, until the returned function is called.
func resets(network *testutil.ClientNet) (stop func()) {
	n := 0
	return network.Control(func(r testutil.Request) testutil.Action {
		if r.Op != testutil.OpCreateContainer {
			return testutil.Pass()
		}
		if n++; n%2 == 0 {
			return testutil.DropAfter()
		}
		return testutil.DropBefore()
	})
}

// Bursts of resets say nothing about the servers. A client that has made
// containers, or is new, makes them again when the bursts are over.
func TestBurstsOfResetsLeaveContainersOn(t *testing.T) {
	for _, isNew := range []bool{false, true} {
		t.Run(fmt.Sprintf("new %t", isNew), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				var dirs []string
				for i := range 8 {
					c, network := connect(t, ens)
					for j := range 20 {
						if !isNew {
							must(t, c.MakeContainerPath(t.Context(), fmt.Sprintf("/%d/%d", i, j)))
						}
					}
					stop := resets(network)
					made := make(chan error)
					go func() { made <- c.MakeContainerPath(t.Context(), fmt.Sprintf("/%d/burst", i)) }()
					time.Sleep(time.Second / 2)
					stop()
					must(t, <-made)
					time.Sleep(timeout)
					dirs = append(dirs, fmt.Sprintf("/%d/later", i))
					must(t, c.MakeContainerPath(t.Context(), dirs[i]))
				}
				c, _ := connect(t, ens)
				if gone := swept(t, ens, c, dirs...); len(gone) != len(dirs) {
					t.Errorf("%d of %d clients make no containers any more", len(dirs)-len(gone), len(dirs))
				}
			})
		})
	}
}
