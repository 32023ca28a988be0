package barrier_test

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The client gives up one session after the other by its own clock, while the
// ensemble has them still: see TestItsEarlierSessionLivesOn. The member waits
// for the end of the latest one each time.
func TestItsEarlierSessionsLiveOn(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		slow, other := w.Connect("slow", patient), w.ConnectNext(patient)
		first := entering(t.Context(), double(t, slow, 2))
		net := w.ClientNet("slow")
		for range 3 {
			pending(t, first)
			must(t, w.Session(slow).Prove(t.Context()))
			_, err := w.Session(slow).Hold(nil)
			must(t, err)
			net.Cut()
			time.Sleep(bubble.Timeout * 9 / 10)
			leader := w.Leader()
			must(t, w.Stop(leader))
			time.Sleep(bubble.Timeout / 30)
			must(t, w.Restart(leader))
			time.Sleep(bubble.Timeout / 6)
			stop := net.Control(func(r testutil.Request) testutil.Action {
				if r.Op == testutil.OpCloseSession {
					return testutil.Delay(bubble.Timeout / 6)
				}
				return testutil.Pass()
			})
			net.Heal()
			for range 200 {
				time.Sleep(bubble.Timeout / 100)
				if names := w.Children(path); len(names) > 1 {
					t.Fatalf("it stands there twice: %v", names)
				}
			}
			stop()
		}
		pending(t, first)
		in := enter(t, entering(t.Context(), double(t, other, 2)))
		leaveTogether(t, in, enter(t, first))
		nothingLeft(t, w)
	}, testutil.WithMembers(3))
}

// The answer to the delete of a member that leaves is lost. It has left, in
// each round, whether it is the last one or not.
func TestLeavesWithoutAnAnswer(t *testing.T) {
	for _, loser := range []int{0, 1} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			names := []string{"a", "b"}
			a, b := w.Connect(names[0], patient), w.Connect(names[1], patient)
			for range 4 { // each of them stays sometimes
				inside := enterTogether(t, double(t, a, 2), double(t, b, 2))
				lost := testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.DropAfter())
				stop := w.ClientNet(names[loser]).Control(lost.Control)
				leaveTogether(t, inside...)
				stop()
				if lost.Count() != 1 {
					t.Errorf("%d answers lost", lost.Count())
				}
			}
			nothingLeft(t, w)
		})
	}
}

// A round begins and ends after a member has armed its watch, and before its
// znode is there. A watch of a single event tells of the ready of that round,
// and not that it was deleted: the member entered alone.
func TestARoundThatWasOverBefore(t *testing.T) {
	bubble.Usual(t, bubble.ShortTimeout) // the held create lasts longer: the member enters in its next session
	bothKindsOfWatches(t, func(t *testing.T, w *bubble.World) {
		slow, other := w.Connect("slow"), w.ConnectNext()
		must(t, other.MakeContainerPath(t.Context(), path))
		release := make(chan struct{})
		held := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.Hold(release))
		defer w.ClientNet("slow").Control(held.Control)()
		first := entering(t.Context(), double(t, slow, 2))
		bubble.Await(t, "the create", held.Hit())
		leaveTogether(t, enterTogether(t, double(t, other, 2), double(t, other, 2))...)
		close(release)
		pending(t, first)
		in := enter(t, entering(t.Context(), double(t, other, 2)))
		leaveTogether(t, in, enter(t, first))
		nothingLeft(t, w)
	})
}
