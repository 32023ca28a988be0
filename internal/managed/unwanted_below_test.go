package managed_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// watchAndGiveUp arms and gives up watches of every kind for a znode, and one
// for a missing child.
func watchAndGiveUp(t *testing.T, s *framework.Session, path string) {
	t.Helper()
	data, err := s.Watch(t.Context(), path)
	must(t, err)
	_, children, err := s.WatchChildren(t.Context(), path)
	must(t, err)
	_, _, missing, err := s.WatchExists(t.Context(), layout.Join(path, "none"))
	must(t, err)
	for _, changed := range []<-chan struct{}{data, children, missing} {
		s.Unwatch(changed)
	}
}

// Beside a recursive watch, watches below its root that nobody wants are
// removed like any others, and it stays whole. Those at its root stay until it
// is removed.
func TestUnwatchBelowATree(t *testing.T) {
	for _, root := range []string{"/", "/a"} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			c, _ := connect(t, ens)
			must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
			s := session(t, c)
			tree, _, remove := mustWatchTree(t, s, root)
			const all = 100
			for i := range all {
				path := fmt.Sprint("/a/", i)
				must(t, failure(c.Create(t.Context(), path, nil, 0)))
				watchAndGiveUp(t, s, path)
			}
			watchAndGiveUp(t, s, root)
			if n := ens.WatchCount(); n != 2+3*all+1 {
				t.Fatalf("%d watches", n)
			}
			ens.ResetRequests()
			time.Sleep(10 * timeout)
			if left, n := ens.Watches(), ens.Requests()[testutil.OpRemoveWatches]; len(left) != 1 || left[root] != 2 || n != 2*all+1 {
				t.Errorf("after %d removals these are left: %v", n, left)
			}
			tree.take()
			must(t, failure(c.Set(t.Context(), "/a/1", nil, -1)))
			must(t, failure(c.Create(t.Context(), "/a/1/none", nil, 0)))
			if heard, _ := tree.take(); heard != "=/a/1 +/a/1/none" {
				t.Errorf("heard %q", heard)
			}
			remove()
			time.Sleep(2 * timeout)
			noWatches(t, ens, s)
		})
	}
}

// Somebody who hears of all events keeps the watches that it relies on, and no
// others.
func TestUnwatchBelowOneWhoHears(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		stop, err := inside(s).Events("/", func(uint64, zk.EventType, string) {}, func(path string) bool { return path == "/kept" })
		must(t, err)
		for _, path := range []string{"/kept", "/other"} {
			must(t, failure(c.Create(t.Context(), path, nil, 0)))
			watchAndGiveUp(t, s, path)
		}
		time.Sleep(3 * timeout)
		if left := ens.Watches(); len(left) != 1 || left["/kept"] != 2 {
			t.Errorf("these are left: %v", left)
		}
		stop()
		time.Sleep(2 * timeout)
		noWatches(t, ens, s)
	})
}

// What setWatches tells of a change that was missed does not use up the watch
// on a missing znode that the server has already. It is removed, whether its
// callers have given it up before, or do not come again.
func TestAWatchOutlastsWhatSetWatchesTells(t *testing.T) {
	for _, early := range []bool{true, false} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			c, _ := connect(t, ens)
			s := session(t, c)
			_, _, changed, err := s.WatchExists(t.Context(), "/none")
			must(t, err)
			if early {
				s.Unwatch(changed)
			}
			must(t, trySetWatches(t, s, 1<<40, request.Read{Path: "/none", Children: true}))
			bubble.Await(t, "the end of the channel", changed)
			if n := ens.WatchCount(); n != 1 {
				t.Fatalf("%d watches", n)
			}
			time.Sleep(3 * timeout)
			noWatches(t, ens, s)
		})
	}
}

// A watch that is to be removed stays noted while another caller is about to
// watch the same znode: that read arms none if the znode is missing.
func TestAWatchIsRemovedAlthoughAnotherWasTried(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		_, _, changed, err := s.WatchExists(t.Context(), "/none")
		must(t, err)
		s.Unwatch(changed)
		time.Sleep(timeout - time.Second)
		defer once(ens, testutil.OpAddWatch, testutil.Delay(2*time.Second))()
		done := make(chan error, 1)
		time.AfterFunc(time.Millisecond, func() { // it waits for the tree at /a, and joins both before
			all, err := inside(s).Arm(t.Context(), "/a", "/none")
			for _, a := range all {
				a.Leave()
			}
			done <- err
		})
		_, _, remove := mustWatchTree(t, s, "/a")
		must(t, <-done)
		remove()
		time.Sleep(3 * timeout)
		noWatches(t, ens, s)
	})
}

// A tree whose removal is refused, for whatever reason, is removed later.
func TestARefusedRemovalOfATreeIsTriedAgain(t *testing.T) {
	for _, code := range []testutil.Code{testutil.CodeThrottled, testutil.CodeNoAuth, testutil.CodeRequestTimeout} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens)
				s := session(t, c)
				_, _, remove := mustWatchTree(t, s, "/a")
				fault := testutil.NewFault(testutil.Match{Op: testutil.OpRemoveWatches, Times: 2}, testutil.Fail(code))
				defer ens.Control(fault.Control)()
				remove()
				time.Sleep(timeout)
				noWatches(t, ens, s)
				if fault.Count() != 2 {
					t.Errorf("refused %d times", fault.Count())
				}
			})
		})
	}
}

// A read whose call has ended while it waited for the removal of a tree is not
// sent: nobody would remove its watch.
func TestAReadThatIsTooLateArmsNothing(t *testing.T) {
	for range 20 {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			c, _ := connect(t, ens)
			must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
			s := session(t, c)
			_, _, remove := mustWatchTree(t, s, "/a")
			defer once(ens, testutil.OpRemoveWatches, testutil.DelayReply(2*time.Second))()
			remove()
			time.Sleep(time.Millisecond)
			read := request.Read{Path: "/a", Children: true}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := inside(s).ReadAllAndWatch(ctx, "/a", read); err == nil {
				t.Fatal("it has not waited")
			}
			inside(s).UnwatchReads(read)
			ens.ResetRequests()
			time.Sleep(3 * timeout)
			if n := ens.Requests()[testutil.OpGetChildren2]; n != 0 {
				t.Errorf("%d reads", n)
			}
			noWatches(t, ens, s)
		})
	}
}
