package framework_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// follower keeps the latest values of WatchData and WatchChildren.
type follower struct {
	mu       sync.Mutex
	data     framework.Data
	children framework.Children
}

func follow(t *testing.T, c *framework.Client, path string) *follower {
	t.Helper()
	f := &follower{}
	data, err := c.WatchData(t.Context(), path)
	must(t, err)
	children, err := c.WatchChildren(t.Context(), path)
	must(t, err)
	go func() {
		for v := range data {
			f.mu.Lock()
			f.data = v
			f.mu.Unlock()
		}
	}()
	go func() {
		for v := range children {
			f.mu.Lock()
			f.children = v
			f.mu.Unlock()
		}
	}()
	return f
}

// is returns how the values differ from what the ensemble has, "" if they do
// not.
func (f *follower) is(t *testing.T, ens *testutil.Embedded, path string) string {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	stat, exists := ens.Stat(path)
	names := ens.Children(path)
	slices.Sort(names)
	told := slices.Sorted(slices.Values(f.children.Names))
	switch {
	case f.data.Exists != exists || f.children.Exists != exists:
		return fmt.Sprintf("exists %t, but %+v and %+v", exists, f.data, f.children)
	case exists && f.data.Stat.Mzxid != stat.Mzxid:
		return fmt.Sprintf("changed at %#x, but %+v", stat.Mzxid, f.data.Stat)
	case !slices.Equal(names, told):
		return fmt.Sprintf("children %v, but %v", names, told)
	}
	return ""
}

// The wire client keeps a channel for each watch that was ever armed, and one
// more was armed after each reconnect: 501 channels for one watch after 500
// disconnects.
func TestWatchesDoNotGrowWithReconnects(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		other, _ := connect(t, ens)
		_, err := c.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		s := session(t, c)
		there, missing := follow(t, c, "/a"), follow(t, c, "/b")
		synctest.Wait()
		const watches = 3 // data and children of the one, and what is missing
		if n := framework.Channels(s); n != watches || ens.WatchCount() != watches {
			t.Fatalf("%d channels, %d watches, want %d", n, ens.WatchCount(), watches)
		}
		ens.ResetRequests()
		const times = 500
		for range times {
			network.Drop()
			time.Sleep(timeout)
		}
		if n := framework.Channels(s); n != watches || ens.WatchCount() != watches {
			t.Errorf("%d channels, %d watches, want %d", n, ens.WatchCount(), watches)
		}
		if n := ens.Requests()[testutil.OpGetData]; n != 2*times { // the znode that is missing, too
			t.Errorf("%d reads in %d reconnects", n, times)
		}
		if session(t, c).ID() != s.ID() {
			t.Error("the session was lost")
		}
		// They are as good as on the first day.
		for i := range 3 {
			_, err := other.Create(t.Context(), "/b", nil, 0)
			must(t, err)
			_, err = other.Set(t.Context(), "/a", fmt.Append(nil, i), -1)
			must(t, err)
			_, err = other.Create(t.Context(), fmt.Sprint("/a/", i), nil, 0)
			must(t, err)
			synctest.Wait()
			must(t, other.Delete(t.Context(), "/b", -1))
			synctest.Wait()
			for path, f := range map[string]*follower{"/a": there, "/b": missing} {
				if fault := f.is(t, ens, path); fault != "" {
					t.Errorf("%s: %s", path, fault)
				}
			}
			network.Drop()
			time.Sleep(time.Second)
		}
	})
}

// The wire client can remove no watch. A watch that was used up in silence is
// armed again as the one that the wire client has, however often that happens,
// and over reconnects.
func TestWatchesDoNotGrowWithLostEvents(t *testing.T) {
	for _, w := range watchings {
		t.Run(w.name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				owner, _ := connect(t, ens)
				_, err := owner.Create(t.Context(), "/a", nil, 0)
				must(t, err)
				told := w.watch(t, t.Context(), c)
				hears(t, told, atOnce)
				s := session(t, c)
				const rounds = 100
				for i := range rounds {
					network.LoseEvents(true)
					must(t, w.change(owner, fmt.Sprintf("[%d]", i)))
					hears(t, told, soon)
					synctest.Wait()
					if n := framework.Channels(s); n != 1 || ens.WatchCount() != 1 {
						t.Fatalf("round %d: %d channels, %d watches, want 1", i, n, ens.WatchCount())
					}
					switch i % 10 {
					case 7:
						network.Drop()
						time.Sleep(time.Second)
					case 9: // the watch is a good one
						network.LoseEvents(false)
						must(t, w.change(owner, fmt.Sprintf("[%d]", rounds+i)))
						hears(t, told, 100*time.Millisecond)
					}
				}
				if session(t, c).ID() != s.ID() {
					t.Error("the session was lost")
				}
			})
		})
	}
}

// A watch is used again only after the server has confirmed it. If a setWatches
// fails, is not answered, or is never sent, another watch is armed in time.
func TestWatchesThatAreNotArmedAgain(t *testing.T) {
	for name, action := range map[string]testutil.Action{
		"refused":    testutil.Fail(testutil.CodeSystemError),
		"throttled":  testutil.Fail(testutil.CodeThrottled),
		"lost":       testutil.DropBefore(),
		"answer":     testutil.DropAfter(),
		"late":       testutil.Delay(timeout),
		"reply late": testutil.DelayReply(timeout),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				other, _ := connect(t, ens)
				_, err := other.Create(t.Context(), "/a", nil, 0)
				must(t, err)
				f := follow(t, c, "/a")
				for i := range 20 {
					struck := testutil.NewFault(testutil.Match{Op: testutil.OpSetWatches}, action)
					stop := ens.Control(struck.Control)
					network.Drop()
					time.Sleep(2 * timeout)
					stop()
					if struck.Count() == 0 {
						t.Fatal("no watches were to be armed again")
					}
					_, err := other.Set(t.Context(), "/a", fmt.Append(nil, i), -1)
					must(t, err)
					_, err = other.Create(t.Context(), fmt.Sprint("/a/", i), nil, 0)
					must(t, err)
					synctest.Wait()
					time.Sleep(10 * time.Millisecond)
					if fault := f.is(t, ens, "/a"); fault != "" {
						t.Fatal(fault)
					}
				}
			})
		})
	}
}

// Watches of long paths do not fit into one setWatches. The wire client sends
// the next one after an answer, and none after one that failed.
func TestManyWatchesAreArmedAgainInParts(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		other, _ := connect(t, ens)
		s := session(t, c)
		const watches = 160
		dir := "/" + strings.Repeat("d", 1000)
		_, err := other.Create(t.Context(), dir, nil, 0)
		must(t, err)
		path := func(i int) string { return fmt.Sprintf("%s/%d", dir, i) }
		followers := make([]*follower, watches)
		for i := range followers {
			_, err := other.Create(t.Context(), path(i), nil, 0)
			must(t, err)
			followers[i] = follow(t, c, path(i))
		}
		synctest.Wait()
		if n := framework.Channels(s); n != 2*watches {
			t.Fatalf("%d channels, want %d", n, 2*watches)
		}
		failing := testutil.NewFault(testutil.Match{Op: testutil.OpSetWatches, Skip: 2, Times: 3}, testutil.Fail(testutil.CodeSystemError))
		for i := range 10 {
			if i == 5 { // all was well until now; now the third part fails, then twice the first
				if n := framework.Channels(s); n != 2*watches || ens.WatchCount() != 2*watches {
					t.Errorf("%d channels, %d watches, want %d", n, ens.WatchCount(), 2*watches)
				}
				defer ens.Control(failing.Control)()
			}
			ens.ResetRequests()
			network.Drop()
			time.Sleep(time.Second)
			if n := ens.Requests()[testutil.OpSetWatches]; i < 5 && n < 3 {
				t.Fatalf("%d requests to arm watches again", n)
			}
			for k := range followers {
				_, err := other.Set(t.Context(), path(k), fmt.Append(nil, i), -1)
				must(t, err)
			}
			time.Sleep(time.Second)
			for k, f := range followers {
				if fault := f.is(t, ens, path(k)); fault != "" {
					t.Fatalf("after %d reconnects: %d: %s", i+1, k, fault)
				}
			}
		}
		if failing.Count() != 3 {
			t.Errorf("%d requests failed", failing.Count())
		}
	})
}

// No change is missed, whatever happens to the connection and to the requests
// that arm watches, and whenever: before, between and behind the event, the
// answers, and the next disconnect.
func TestNoChangeIsMissedAroundReconnects(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				random := rand.New(rand.NewPCG(seed, 1))
				c, network := connect(t, ens)
				other, _ := connect(t, ens)
				paths := []string{"/a", "/b", "/c"}
				followers := map[string]*follower{}
				for _, path := range paths {
					followers[path] = follow(t, c, path)
				}
				var mu sync.Mutex // guards faults
				faults := rand.New(rand.NewPCG(seed, 2))
				defer ens.Control(func(r testutil.Request) testutil.Action {
					mu.Lock()
					defer mu.Unlock()
					if r.Op != testutil.OpSetWatches || faults.IntN(3) > 0 {
						return testutil.Pass()
					}
					d := time.Duration(faults.IntN(200)) * time.Millisecond
					return []testutil.Action{
						testutil.Fail(testutil.CodeSystemError), testutil.DropBefore(), testutil.DropAfter(),
						testutil.Delay(d), testutil.DelayReply(d),
					}[faults.IntN(5)]
				})()
				s := session(t, c)
				for round := range 60 {
					network.Latency(time.Duration(random.IntN(20))*time.Millisecond, 0)
					for range random.IntN(12) {
						path := paths[random.IntN(len(paths))]
						switch random.IntN(6) {
						case 0:
							network.Drop()
						case 1:
							_, _ = other.Create(t.Context(), path, nil, 0)
						case 2:
							for _, name := range ens.Children(path) {
								must(t, other.Delete(t.Context(), path+"/"+name, -1))
							}
							_ = other.Delete(t.Context(), path, -1)
						case 3:
							_, _ = other.Set(t.Context(), path, fmt.Append(nil, round), -1)
						case 4:
							_, _ = other.Create(t.Context(), fmt.Sprint(path, "/", random.IntN(5)), nil, zk.FlagPersistent)
						}
						time.Sleep(time.Duration(random.IntN(80)) * time.Millisecond)
					}
					time.Sleep(timeout) // as long as anything may take
					for path, f := range followers {
						if fault := f.is(t, ens, path); fault != "" {
							t.Fatalf("round %d: %s: %s", round, path, fault)
						}
					}
				}
				if session(t, c).ID() != s.ID() {
					t.Error("the session was lost: the test shows less than it should")
				}
				if n := framework.Channels(s); n > 60 {
					t.Errorf("%d channels", n)
				}
			})
		})
	}
}
