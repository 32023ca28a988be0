package presence_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A client whose Nodes have all ended gets others. They hear of its state as
// the first ones did.
func TestNodesAfterTheLastOne(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, net := w.Connect("ours"), w.ClientNet("ours")
		for range 3 {
			n := announce(t, c, path, "a")
			net.Cut()
			net.Drop()
			awaitState(t, n, presence.Suspended)
			net.Heal()
			awaitState(t, n, presence.Standing)
			closed(t, w, n)
		}
	})
}

// The directory is gone each time after it was made. The status names it, the
// Node pauses, and tries again.
func TestADirectoryThatIsGoneEachTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		missing := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: path, Times: -1}, testutil.Fail(testutil.CodeNoNode))
		stop := w.Control(missing.Control)
		n, err := presence.New(c, path, nil)
		must(t, err)
		must(t, n.Start())
		bubble.AwaitTrue(t, "the error", func() bool {
			err := n.Status().Err
			return errors.Is(err, zk.ErrNoNode) && strings.Contains(err.Error(), "directory /services/billing was made 9 times")
		})
		if got := missing.Count(); got < 10 || got > 20 { // it may have begun again
			t.Errorf("%d creates", got)
		}
		time.Sleep(10 * time.Minute)
		if got := missing.Count(); got < 50 || got > 500 {
			t.Errorf("%d creates in ten minutes", got)
		}
		stop()
		awaitState(t, n, presence.Standing)
		closed(t, w, n)
	})
}

// A znode that was deleted again and again has pauses that have grown. Once it
// has stood for a minute they begin anew: for all removals that follow.
func TestPausesOfTheNextRemovals(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.ConnectNext(), w.ConnectNext()
		n := announce(t, c, path, "a")
		removed := func() time.Duration {
			must(t, other.Delete(t.Context(), path, -1))
			began := time.Now()
			bubble.AwaitTrue(t, "the znode", func() bool { return w.Exists(path) })
			awaitState(t, n, presence.Standing)
			return time.Since(began)
		}
		for range 3 {
			for range 10 {
				removed()
			}
			time.Sleep(2 * time.Minute)
			removed() // the first
			if took := removed(); took > time.Second {
				t.Errorf("the second removal: back after %v", took)
			}
		}
		closed(t, w, n)
	})
}

// Another session's znode is changed again and again. That may be its deletion
// the first time, and is not worth a refused create any later time.
func TestANameWhoseZnodeIsChangedOften(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		theirs := announce(t, w.ConnectNext(), path, "theirs")
		n, err := presence.New(w.ConnectNext(), path, []byte("ours"))
		must(t, err)
		must(t, n.Start())
		awaitState(t, n, presence.Taken)
		w.ResetRequests()
		for i := range 20 {
			must(t, theirs.Set(t.Context(), fmt.Append(nil, i)))
			time.Sleep(time.Second)
		}
		if got := w.Cost()[testutil.OpCreate]; got > 1 {
			t.Errorf("%d creates for 20 changes", got)
		}
		must(t, theirs.Close(t.Context()))
		awaitState(t, n, presence.Standing)
		closed(t, w, n)
	})
}

// A state begins once: another reason for it is no other beginning.
func TestAStateThatHasAnotherReason(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		must(t, c.MakeContainerPath(t.Context(), "/services/billing"))
		n, err := presence.New(c, path, nil)
		must(t, err)
		began := time.Now()
		refuse := func(code testutil.Code) (stop func()) {
			return w.Control(func(r testutil.Request) testutil.Action {
				if r.Op == testutil.OpCreate && r.Path == path {
					return testutil.Fail(code)
				}
				return testutil.Pass()
			})
		}
		stop := refuse(testutil.CodeNoAuth)
		must(t, n.Start())
		time.Sleep(time.Minute)
		first := n.Status()
		stop()
		stop = refuse(testutil.CodeQuotaExceeded)
		time.Sleep(2 * time.Minute)
		if s := n.Status(); s.State != presence.Pending || s.Err.Error() == first.Err.Error() || !s.Since.Equal(first.Since) || s.Since.Sub(began) > time.Second {
			t.Errorf("%+v, first %+v", s, first)
		}
		stop()
		standing(t, w, c, n, "")
		closed(t, w, n)
	})
}

// A write has lost its answer, and what would replace it is refused. It is not
// made again and again.
func TestALostWriteThatIsThenRefused(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		n := announce(t, c, path, "a")
		lost := testutil.NewFault(testutil.Match{Op: testutil.OpSetData}, testutil.DropBefore())
		refused := testutil.NewFault(testutil.Match{Op: testutil.OpSetData, Times: -1}, testutil.Fail(testutil.CodeNoAuth))
		stop := w.Control(func(r testutil.Request) testutil.Action {
			if a := lost.Control(r); a != testutil.Pass() {
				return a
			}
			return refused.Control(r)
		})
		w.Latency(time.Millisecond)
		if err := n.Set(t.Context(), []byte("b")); !errors.Is(err, zk.ErrNoAuth) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if tries := refused.Count(); tries > 3 || lost.Count() != 1 {
			t.Errorf("%d writes after the one that was lost", tries)
		}
		stop()
		standing(t, w, c, n, "a")
		must(t, n.Set(t.Context(), []byte("c")))
		closed(t, w, n)
	})
}

// A Node whose last delete has lost its answer leaves a guard behind, which
// ends some time, and then nothing.
func TestNothingIsLeftOfGuards(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		guarded := func(times int) bubble.Census {
			for i := range times {
				n := announce(t, c, fmt.Sprint(path, i), "a")
				stop := w.Control(testutil.NewFault(testutil.Match{Op: testutil.OpDelete}, testutil.DropAfter()).Control)
				closed(t, w, n)
				stop()
			}
			time.Sleep(100 * bubble.Timeout)
			synctest.Wait()
			return w.Count(c)
		}
		before := guarded(5)
		for _, grown := range guarded(50).Grown(before, 10) {
			if strings.Contains(grown, "presence") {
				t.Errorf("left behind: %s", grown)
			}
		}
	})
}
