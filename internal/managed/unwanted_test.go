package managed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A watch that all callers have given up is removed after a session timeout, by
// one request, and not before. The others on its path stay.
func TestUnwatch(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
		s := session(t, c)
		first, err := s.Watch(t.Context(), "/a")
		must(t, err)
		_, _, second, err := s.GetAndWatch(t.Context(), "/a")
		must(t, err)
		_, children, err := s.WatchChildren(t.Context(), "/a")
		must(t, err)
		_, _, missing, err := s.WatchExists(t.Context(), "/none")
		must(t, err)
		count := func(after time.Duration, watches, removals int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if n, asked := ens.WatchCount(), ens.Requests()[testutil.OpRemoveWatches]; n != watches || asked != removals {
				t.Errorf("%d watches after %d removals, want %d after %d", n, asked, watches, removals)
			}
		}
		ens.ResetRequests()
		sweeps := func(want bool) {
			t.Helper()
			if inside(s).Sweeps() != want {
				t.Errorf("it is going to remove watches: %v", !want)
			}
		}
		sweeps(false)
		s.Unwatch(first)
		s.Unwatch(missing)
		s.Unwatch(nil)
		s.Unwatch(make(chan struct{}))
		sweeps(true)
		count(timeout-time.Millisecond, 3, 0)
		count(time.Millisecond, 2, 1)
		sweeps(false)
		s.Unwatch(second)
		time.Sleep(timeout / 2)
		again, err := s.Watch(t.Context(), "/a") // another one comes in time
		must(t, err)
		count(2*timeout, 2, 1)
		if n := ens.Requests()[testutil.OpGetData]; n != 0 {
			t.Errorf("it has not joined the first: %d reads", n)
		}
		s.Unwatch(children)
		count(2*timeout, 1, 2)
		bubble.Await(t, "the end of the channel", children)
		must(t, failure(c.Set(t.Context(), "/a", nil, -1)))
		bubble.Await(t, "the event", again)
		s.Unwatch(again)
		_, children, err = s.WatchChildren(t.Context(), "/a")
		must(t, err)
		again, err = s.Watch(t.Context(), "/a")
		must(t, err)
		s.Unwatch(children)
		s.Unwatch(again)
		count(2*timeout, 0, 3) // both at once
	})
}

// A removal that the server has answered with an error is sent again.
func TestARemovalIsTriedAgain(t *testing.T) {
	for _, code := range []testutil.Code{testutil.CodeThrottled, testutil.CodeNoAuth, testutil.CodeRequestTimeout, testutil.CodeSystemError} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens)
				must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
				s := session(t, c)
				changed, err := s.Watch(t.Context(), "/a")
				must(t, err)
				_, children, err := s.WatchChildren(t.Context(), "/a")
				must(t, err)
				failing := testutil.NewFault(testutil.Match{Op: testutil.OpRemoveWatches, Times: 2}, testutil.Fail(code))
				defer ens.Control(failing.Control)()
				s.Unwatch(changed)
				s.Unwatch(children)
				time.Sleep(4 * timeout)
				synctest.Wait()
				if n, left := failing.Count(), ens.Watches(); n != 2 || len(left) > 0 {
					t.Errorf("after %d errors these are left: %v", n, left)
				}
			})
		})
	}
}

// Many removals are under way at a time.
func TestManyRemovals(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		books := library(t, c, 500)
		s := session(t, c)
		_, stop := listen(t, s, "/lib")
		must(t, failure(inside(s).ReadAllAndWatch(t.Context(), "/lib/none", books...)))
		inside(s).UnwatchReads(books...)
		network.Latency(timeout/20, 0)
		time.Sleep(3 * timeout)
		if n := ens.WatchCount(); n < 500 {
			t.Errorf("%d watches, while somebody hears of them", n)
		}
		stop()
		time.Sleep(2*timeout + 500/64*timeout/10)
		if left := ens.Watches(); len(left) > 0 {
			t.Errorf("watches are left: %v", left)
		}
	})
}

// WatchData and WatchChildren give up their watches when they end.
func TestFollowersGiveUpTheirWatches(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
		for _, path := range []string{"/a", "/none"} {
			for _, changed := range []bool{false, true} {
				ctx, cancel := context.WithCancel(t.Context())
				data, err := c.WatchData(ctx, path)
				must(t, err)
				children, err := c.WatchChildren(ctx, path)
				must(t, err)
				<-data
				<-children
				if changed && path == "/a" {
					must(t, failure(c.Set(t.Context(), path, []byte("new"), -1)))
					<-data
				}
				if ens.WatchCount() == 0 {
					t.Errorf("%s: no watch", path)
				}
				cancel()
				time.Sleep(timeout)
				synctest.Wait()
				if n := ens.WatchCount(); n != 0 {
					t.Errorf("%s: %d watches are left", path, n)
				}
			}
		}
	})
}

// A watch that cannot be armed again leaves none of before: the look has found
// that the znode may not be read, and so does the next caller.
func TestAWatchThatCannotBeArmedAgainIsRemoved(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
		s := session(t, c)
		changed, err := s.Watch(t.Context(), "/a")
		must(t, err)
		defer once(ens, testutil.OpExists, testutil.Fail(testutil.CodeNoAuth))()
		time.Sleep(timeout)
		defer once(ens, testutil.OpGetData, testutil.Fail(testutil.CodeNoAuth))()
		if _, err = s.Watch(t.Context(), "/a"); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("watched: %v", err)
		}
		bubble.Await(t, "the end of the first", changed)
		time.Sleep(3 * timeout)
		synctest.Wait()
		if n := ens.WatchCount(); n != 0 {
			t.Errorf("%d watches are left", n)
		}
	})
}

// Who joins a watch whose read is refused reads again: that read may have begun
// before, as before the create of the same caller.
func TestAJoinerIsNotToldOfAnEarlierRead(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		network.Latency(5*time.Millisecond, 0)
		s := session(t, c)
		for i := range 500 {
			path := fmt.Sprint("/n", i)
			var all sync.WaitGroup
			all.Go(func() { _, _ = s.Watch(t.Context(), path) })
			all.Go(func() {
				must(t, failure(s.Create(t.Context(), path, nil, 0)))
				if _, err := s.Watch(t.Context(), path); err != nil {
					t.Errorf("just created: %v", err)
				}
			})
			all.Wait()
		}
	})
}

// A look that was refused for a moment is made again.
func TestARefusedLookIsMadeAgain(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
		s := session(t, c)
		must(t, failure(s.Watch(t.Context(), "/a")))
		defer once(ens, testutil.OpExists, testutil.Fail(testutil.CodeThrottled))()
		ens.ResetRequests()
		_, _, _, _, err := inside(s).WatchAndResume("/a")
		must(t, err)
		if n := ens.Requests()[testutil.OpExists]; n != 1 {
			t.Errorf("%d looks were executed after the refused one, want 1", n)
		}
	})
}

// A caller that gives up while its watch is being armed leaves none, nor does
// one of a znode that was created while its absence was read.
func TestWatchesOfCallersThatGaveUp(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
		stop := ens.Control(testutil.NewFault(testutil.Match{Op: testutil.OpGetData}, testutil.DelayReply(time.Second)).Control)
		if _, err := session(t, c).Watch(within(t, time.Millisecond), "/a"); err == nil {
			t.Fatal("it was not slow")
		}
		time.Sleep(time.Second)
		stop()
		if ens.WatchCount() != 1 {
			t.Fatalf("%d watches", ens.WatchCount())
		}
		defer once(ens, testutil.OpGetData, testutil.Fail(testutil.CodeNoNode))()
		_, _, changed, err := session(t, c).WatchExists(t.Context(), "/a")
		must(t, err)
		session(t, c).Unwatch(changed)
		time.Sleep(2 * timeout)
		noWatches(t, ens, session(t, c))
	})
}

// A removal is sent before any later arming of its path, or not at all: who
// comes while it is under way, however long that takes, hears of every change.
func TestAWatchIsWantedWhileItIsRemoved(t *testing.T) {
	for name, action := range map[string]func() testutil.Action{
		"slow":      func() testutil.Action { return testutil.Delay(timeout / 3) },
		"slow back": func() testutil.Action { return testutil.DelayReply(timeout / 3) },
		"lost":      testutil.DropBefore,
		"no answer": testutil.DropAfter,
		"throttled": func() testutil.Action { return testutil.Fail(testutil.CodeThrottled) },
		"refused":   func() testutil.Action { return testutil.Fail(testutil.CodeUnimplemented) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens)
				other, _ := connect(t, ens)
				must(t, failure(other.Create(t.Context(), "/a", nil, 0)))
				s := session(t, c)
				for range 5 {
					changed, err := s.Watch(t.Context(), "/a")
					must(t, err)
					_, children, err := s.WatchChildren(t.Context(), "/a")
					must(t, err)
					s.Unwatch(changed)
					s.Unwatch(children)
					fault := testutil.NewFault(testutil.Match{Op: testutil.OpRemoveWatches}, action())
					stop := ens.Control(fault.Control)
					time.Sleep(timeout + time.Millisecond)
					changed, err = s.Watch(t.Context(), "/a")
					must(t, err)
					e, stopListening := listen(t, s, "/a")
					must(t, failure(inside(s).ReadAllAndWatch(t.Context(), "/a", request.Read{Path: "/a", Children: true})))
					time.Sleep(time.Second)
					select {
					case <-changed: // the connection has ended
						changed, err = s.Watch(t.Context(), "/a")
						must(t, err)
					default:
					}
					must(t, failure(other.Create(t.Context(), "/a/b", nil, 0)))
					must(t, other.Delete(t.Context(), "/a/b", -1))
					must(t, failure(other.Set(t.Context(), "/a", nil, -1)))
					bubble.Await(t, "the event", changed)
					synctest.Wait()
					if heard, _ := e.take(); heard != "*/a =/a" && !e.hasEnded() {
						t.Errorf("heard %q", heard)
					}
					stopListening()
					stop()
					if fault.Count() == 0 && name != "refused" {
						t.Error("no removal was under way")
					}
				}
				if session(t, c).ID() != s.ID() {
					t.Error("the session was lost")
				}
			})
		})
	}
}

// Watches that a tree, or somebody who hears of all events, relies on are not
// removed.
func TestWatchesThatOthersRelyOnStay(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
		must(t, failure(c.Create(t.Context(), "/b", nil, 0)))
		s := session(t, c)
		tree, _, remove := mustWatchTree(t, s, "/a")
		e, stop := listen(t, s, "/b")
		must(t, failure(inside(s).ReadAllAndWatch(t.Context(), "/a", request.Read{Path: "/b"}, request.Read{Path: "/b", Children: true})))
		for _, path := range []string{"/a", "/b"} {
			changed, err := s.Watch(t.Context(), path)
			must(t, err)
			_, children, err := s.WatchChildren(t.Context(), path)
			must(t, err)
			s.Unwatch(changed)
			s.Unwatch(children)
		}
		ens.ResetRequests()
		time.Sleep(10 * timeout)
		if n := ens.Requests()[testutil.OpRemoveWatches]; n != 0 {
			t.Errorf("%d removals", n)
		}
		for path, e := range map[string]*ear{"/a": tree, "/b": e} {
			must(t, failure(c.Create(t.Context(), path+"/x", nil, 0)))
			must(t, failure(c.Set(t.Context(), path, nil, -1)))
			want := map[string]string{"/a": "+/a/x */a =/a", "/b": "*/b =/b"}[path]
			if heard, _ := e.take(); heard != want {
				t.Errorf("heard %q, want %q", heard, want)
			}
		}
		remove()
		stop()
		time.Sleep(2 * timeout)
		noWatches(t, ens, s)
	})
}

// Servers before 3.5 refuse a removal, and hang up. They are not asked.
func TestUnwatchAtOldServers(t *testing.T) {
	for _, silent := range []bool{false, true} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			ens := w.Embedded
			network := ens.ClientNet("watcher")
			c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithErrorPolicy(framework.ErrorPolicyConnection),
				framework.WithDialer(withoutWords(network.Dial, silent)))
			must(t, err)
			defer c.Close()
			must(t, c.WaitConnected(t.Context()))
			s := session(t, c)
			holdThroughout(t, s)
			for range 3 {
				_, _, changed, err := s.WatchExists(t.Context(), "/a")
				must(t, err)
				s.Unwatch(changed)
				time.Sleep(3 * timeout)
			}
			if n := ens.Requests()[testutil.OpRemoveWatches]; n != 0 && silent {
				t.Errorf("%d removals", n)
			}
		}, testutil.WithMembers(3), testutil.WithoutNewOperations())
	}
}

// Callers that come and go at random never miss a change, and leave nothing.
func TestUnwatchAtRandom(t *testing.T) {
	for seed := range bubble.Few[uint64](5, 20) {
		inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
			random := rand.New(rand.NewPCG(seed, 7))
			c, network := connect(t, ens)
			other, _ := connect(t, ens)
			paths := []string{"/a", "/b"}
			for _, path := range paths {
				must(t, failure(other.Create(t.Context(), path, nil, 0)))
			}
			s := session(t, c)
			wanted := map[<-chan struct{}]string{}
			forget := func(path string) {
				for changed, of := range wanted {
					select {
					case <-changed:
						delete(wanted, changed)
					default:
						if of == path {
							t.Fatalf("seed %d: a change of %s was missed", seed, path)
						}
					}
				}
			}
			for i := range 150 {
				network.Latency(time.Duration(random.IntN(20))*time.Millisecond, 0)
				path := paths[random.IntN(len(paths))]
				switch random.IntN(6) {
				case 0, 1:
					changed, err := s.Watch(t.Context(), path)
					must(t, err)
					wanted[changed] = path
				case 2:
					for changed := range wanted {
						s.Unwatch(changed)
						delete(wanted, changed)
						break
					}
				case 3:
					must(t, failure(other.Set(t.Context(), path, fmt.Append(nil, i), -1)))
					must(t, c.Sync(t.Context(), "/"))
					synctest.Wait()
					forget(path)
				case 4:
					time.Sleep(timeout + time.Duration(random.IntN(60))*time.Millisecond)
					forget("")
				case 5:
					if random.IntN(5) == 0 {
						network.Drop()
						time.Sleep(time.Second)
						must(t, c.WaitConnected(t.Context()))
						forget("")
					}
				}
			}
			for _, path := range paths {
				must(t, other.Delete(t.Context(), path, -1))
			}
			time.Sleep(3 * timeout)
			noWatches(t, ens, s)
		})
	}
}

// Without a connection there is nothing to be removed.
func TestUnwatchWithoutAConnection(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		network.Cut()
		network.Drop()
		time.Sleep(time.Second)
		inside(s).UnwatchReads(request.Read{Path: "/a"})
		if inside(s).Sweeps() {
			t.Error("a watch of no connection is to be removed")
		}
		network.Heal()
	})
}

// A watch that fires before it is removed leaves nothing to remove, and no
// server is asked what it offers.
func TestASweepOfNothingAsksNoServer(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var dials atomic.Int32
		network := ens.ClientNet("counted")
		c, _ := connect(t, ens, framework.WithDialer(func(kind, address string, limit time.Duration) (net.Conn, error) {
			dials.Add(1)
			return network.Dial(kind, address, limit)
		}))
		must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
		s := session(t, c)
		changed, err := s.Watch(t.Context(), "/a")
		must(t, err)
		s.Unwatch(changed)
		must(t, failure(c.Set(t.Context(), "/a", nil, -1)))
		<-changed
		before := dials.Load()
		time.Sleep(5 * timeout)
		if n := dials.Load() - before; n > 0 {
			t.Errorf("%d connections for nothing", n)
		}
	})
}

// A caller who says twice that it does not need its channel ends no other
// caller's watch.
func TestUnwatchTwice(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
		s := session(t, c)
		watch := func() <-chan struct{} {
			t.Helper()
			changed, err := s.Watch(t.Context(), "/a")
			must(t, err)
			return changed
		}
		mine, theirs := watch(), watch()
		s.Unwatch(mine)
		s.Unwatch(mine)
		time.Sleep(3 * timeout)
		synctest.Wait()
		select {
		case <-theirs:
			t.Error("another caller's watch has ended")
		default:
		}
		select {
		case <-mine:
		default:
			t.Error("the channel that is not needed is open")
		}
		if n, removals := ens.WatchCount(), ens.Requests()[testutil.OpRemoveWatches]; n != 1 || removals != 0 {
			t.Errorf("%d watches after %d removals", n, removals)
		}
		must(t, failure(c.Set(t.Context(), "/a", nil, -1)))
		bubble.Await(t, "the event", theirs)
		s.Unwatch(theirs) // after the event, while the next watch is wanted
		next := watch()
		s.Unwatch(theirs)
		time.Sleep(3 * timeout)
		select {
		case <-next:
			t.Error("the next watch has ended")
		default:
		}
		s.Unwatch(next)
		time.Sleep(2 * timeout)
		if n := ens.WatchCount(); n != 0 {
			t.Errorf("%d watches are left", n)
		}
	})
}

// A caller who watches again and again, and never gives a watch up, does not
// use up the memory.
func TestWatchesThatAreNeverGivenUp(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
		s := session(t, c)
		const most = 1024
		channels := make(map[<-chan struct{}]bool)
		for range 2 * most {
			changed, err := s.Watch(t.Context(), "/a")
			must(t, err)
			channels[changed] = true
		}
		if len(channels) != most+1 {
			t.Errorf("%d channels, want %d", len(channels), most+1)
		}
		must(t, failure(c.Set(t.Context(), "/a", nil, -1)))
		for changed := range channels {
			bubble.Await(t, "the event", changed)
		}
	})
}
