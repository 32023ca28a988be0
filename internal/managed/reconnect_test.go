package managed_test

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
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
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

// A watch ends with its connection. However often that happens, the server has
// one for each znode and kind, each costs a read, and the wire client has none.
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
		if n := inside(s).Channels(); n != 0 || ens.WatchCount() != watches {
			t.Fatalf("%d channels of the wire client, want none; %d watches, want %d", n, ens.WatchCount(), watches)
		}
		ens.ResetRequests()
		times := bubble.Few(100, 500)
		for range times {
			network.Drop()
			time.Sleep(timeout)
		}
		if n := inside(s).Channels(); n != 0 || ens.WatchCount() != watches {
			t.Errorf("%d channels of the wire client, want none; %d watches, want %d", n, ens.WatchCount(), watches)
		}
		if asked := ens.Requests(); asked[testutil.OpGetData] != 2*times || asked[testutil.OpSetWatches] != 0 { // the znode that is missing, too
			t.Errorf("%v in %d reconnects", asked, times)
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

// A watch that was used up in silence is armed again, however often that
// happens, and over reconnects.
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
				rounds := bubble.Few(30, 100)
				for i := range rounds {
					network.LoseEvents(true)
					must(t, w.change(owner, fmt.Sprintf("[%d]", i)))
					hears(t, told, soon)
					synctest.Wait()
					if n := ens.WatchCount(); n != 1 {
						t.Fatalf("round %d: %d watches, want 1", i, n)
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

// Whatever happens to the requests that arm watches after a reconnect, each is
// armed in time.
func TestWatchesThatAreNotArmedAgain(t *testing.T) {
	for name, action := range map[string]testutil.Action{
		"refused":    testutil.Fail(testutil.CodeRequestTimeout),
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
				_, _, _, _, err = inside(session(t, c)).WatchAndResume("/a")
				must(t, err)
				for i := range 21 {
					op := []testutil.Op{testutil.OpGetData, testutil.OpGetChildren2, testutil.OpSetWatches}[i%3]
					if op == testutil.OpSetWatches {
						_, _, _, _, err = inside(session(t, c)).WatchAndResume("/a")
						must(t, err)
					}
					struck := testutil.NewFault(testutil.Match{Op: op, Path: map[bool]string{true: "/a"}[op != testutil.OpSetWatches]}, action)
					stop := ens.Control(struck.Control)
					network.Drop()
					time.Sleep(2 * timeout)
					stop()
					if struck.Count() == 0 && op == testutil.OpGetChildren2 {
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

// Watches that are taken up after a reconnect, and whose paths do not fit into
// one request, are armed by several. What one of these fails for is read.
func TestManyWatchesAreTakenUpInParts(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		const largest = 16 << 10
		c, network := connect(t, ens, framework.WithMaxRequest(largest))
		other, _ := connect(t, ens)
		s := session(t, c)
		const watches = 160
		dir := "/" + strings.Repeat("d", 1000)
		_, err := other.Create(t.Context(), dir, nil, 0)
		must(t, err)
		paths := []string{"/" + strings.Repeat("x", largest-8-4-1-1)} // as long as a read may have
		for i := range watches {
			paths = append(paths, fmt.Sprintf("%s/%d", dir, i))
		}
		changed, resume := make([]<-chan struct{}, len(paths)), make([]func() (<-chan struct{}, bool), len(paths))
		for i, path := range paths {
			_, err := other.Create(t.Context(), path, nil, 0)
			must(t, err)
			_, _, changed[i], resume[i], err = inside(s).WatchAndResume(path)
			must(t, err)
		}
		failing := testutil.NewFault(testutil.Match{Op: testutil.OpSetWatches, Skip: 2}, testutil.Fail(testutil.CodeSystemError))
		for round := range 3 {
			if round == 1 {
				defer ens.Control(failing.Control)()
			}
			ens.ResetRequests()
			network.Drop()
			time.Sleep(time.Second)
			synctest.Wait()
			if n := ens.Requests()[testutil.OpSetWatches]; n < watches*1000/largest {
				t.Fatalf("%d requests to arm watches again", n)
			}
			read := 0
			for i, path := range paths {
				bubble.Await(t, "the reconnect", changed[i])
				again, ok := resume[i]()
				if !ok {
					read++
					_, _, again, resume[i], err = inside(s).WatchAndResume(path)
					must(t, err)
				}
				changed[i] = again
			}
			if least, most := 1+14*(round%2), 1+16*(round%2); read < least || read > most {
				t.Errorf("round %d: %d were read again, want %d to %d", round, read, least, most)
			}
			if n := ens.WatchCount(); n != len(paths) {
				t.Errorf("%d watches, want %d", n, len(paths))
			}
		}
		for i, path := range paths {
			_, err := other.Set(t.Context(), path, nil, -1)
			must(t, err)
			bubble.Await(t, path, changed[i])
		}
		if failing.Count() != 1 {
			t.Errorf("%d requests failed", failing.Count())
		}
	})
}

// No change is missed, whatever happens to the connection and to the requests
// that arm watches, and whenever: before, between and behind the event, the
// answers, and the next disconnect.
func TestNoChangeIsMissedAroundReconnects(t *testing.T) {
	for seed := range bubble.Few[uint64](3, 12) {
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
					switch r.Op {
					case testutil.OpGetData, testutil.OpGetChildren2, testutil.OpExists, testutil.OpSetWatches, testutil.OpRemoveWatches:
					default:
						return testutil.Pass()
					}
					if faults.IntN(8) > 0 {
						return testutil.Pass()
					}
					d := time.Duration(faults.IntN(200)) * time.Millisecond
					return []testutil.Action{
						testutil.Fail(testutil.CodeThrottled), testutil.DropBefore(), testutil.DropAfter(),
						testutil.Delay(d), testutil.DelayReply(d),
					}[faults.IntN(5)]
				})()
				s := session(t, c)
				for round := range 60 {
					network.Latency(time.Duration(random.IntN(20))*time.Millisecond, 0)
					for range random.IntN(12) {
						path := paths[random.IntN(len(paths))]
						switch random.IntN(7) {
						case 0:
							network.Drop()
						case 6: // others come and go
							if _, _, changed, err := session(t, c).WatchExists(t.Context(), path); err == nil {
								session(t, c).Unwatch(changed)
							}
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
			})
		})
	}
}
