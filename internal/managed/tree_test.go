package managed_test

import (
	"context"
	"errors"
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
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/hidden"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// ear hears the events of a tree.
type ear struct {
	t *testing.T

	mu     sync.Mutex
	heard  []string
	orders []uint64
	ended  bool
	deaf   bool // nothing may be heard
}

func (e *ear) on(order uint64, what zk.EventType, path string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.ended, e.deaf:
		e.t.Errorf("%v of %s after the end", what, path)
	case what == zk.EventNotWatching:
		e.ended = true
		return
	case len(e.orders) > 0 && order <= e.orders[len(e.orders)-1]:
		e.t.Errorf("%v of %s has the place %d after %v", what, path, order, e.orders)
	}
	e.heard = append(e.heard, map[zk.EventType]string{
		zk.EventNodeCreated: "+", zk.EventNodeDeleted: "-", zk.EventNodeDataChanged: "=", zk.EventNodeChildrenChanged: "*",
	}[what]+path)
	e.orders = append(e.orders, order)
}

// take returns what was heard since the last call.
func (e *ear) take() (heard string, orders []uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	heard, orders = strings.Join(e.heard, " "), e.orders
	e.heard, e.orders = nil, nil
	return heard, orders
}

func (e *ear) hasEnded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

// watchTree watches a tree, and checks what an error leaves.
func watchTree(t *testing.T, ctx context.Context, s *framework.Session, path string) (e *ear, armed uint64, remove func(), err error) {
	t.Helper()
	e = &ear{t: t}
	armed, remove, err = inside(s).WatchTree(ctx, path, e.on)
	if (err == nil) != (armed > 0) || (err == nil) != (remove != nil) {
		t.Errorf("armed %d, remove %t, error %v", armed, remove != nil, err)
	}
	if err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.deaf = true
	}
	return e, armed, remove, err
}

// mustWatchTree is watchTree, which must succeed.
func mustWatchTree(t *testing.T, s *framework.Session, path string) (e *ear, armed uint64, remove func()) {
	t.Helper()
	e, armed, remove, err := watchTree(t, t.Context(), s, path)
	must(t, err)
	return e, armed, remove
}

// noWatches checks that no watch is left at the servers, and that a session
// remembers none.
func noWatches(t *testing.T, ens *testutil.Embedded, s *framework.Session) {
	t.Helper()
	synctest.Wait()
	if left := ens.Watches(); len(left) != 0 {
		t.Errorf("watches are left: %v", left)
	}
	if n := inside(s).Followers(); n != 0 {
		t.Errorf("%d are remembered", n)
	}
}

// A tree watch hears of the znode and all below it, in the namespace of the
// session, before any later answer is returned. It costs a request, and the
// removal another one.
func TestWatchTree(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		other, _ := connect(t, ens)
		_, err := c.Create(t.Context(), "/ns", nil, 0)
		must(t, err)
		ns, err := c.Namespace("ns")
		must(t, err)
		ens.ResetRequests()
		e, armed, end := mustWatchTree(t, session(t, ns), "/a") // it does not exist
		asked := ens.Requests()
		delete(asked, testutil.OpPing)
		if asked[testutil.OpAddWatch] != 1 || len(asked) != 1 {
			t.Errorf("asked: %v", asked)
		}
		create := func(path string) func() error {
			return func() error { _, err := other.Create(t.Context(), path, nil, 0); return err }
		}
		set := func(path string) func() error {
			return func() error { _, err := other.Set(t.Context(), path, nil, -1); return err }
		}
		remove := func(path string) func() error {
			return func() error { return other.Delete(t.Context(), path, -1) }
		}
		for _, step := range []struct {
			do   func() error
			want string
		}{
			{create("/ns/a"), "+/a"},
			{create("/ns/a/b"), "+/a/b"},
			{create("/ns/ab"), ""},
			{create("/ns/a/b/c"), "+/a/b/c"},
			{set("/ns/a/b"), "=/a/b"},
			{set("/ns/a"), "=/a"},
			{remove("/ns/a/b/c"), "-/a/b/c"},
			{remove("/ns/a/b"), "-/a/b"},
			{remove("/ns/a"), "-/a"},
			{create("/ns/a"), "+/a"},
		} {
			must(t, step.do())
			must(t, c.Sync(t.Context(), "/"))
			got, err := insideOf(ns).ReadAll(t.Context(), request.Read{Path: "/a"})
			must(t, err)
			heard, orders := e.take()
			if heard != step.want {
				t.Errorf("heard %q, want %q", heard, step.want)
			}
			answered := got[0].Order
			for _, order := range orders {
				if order <= armed || order >= answered {
					t.Errorf("%q has the place %d, armed at %d, answered at %d", heard, order, armed, answered)
				}
			}
		}
		ens.ResetRequests()
		end()
		end()
		synctest.Wait()
		if n := ens.Requests()[testutil.OpRemoveWatches]; n != 1 || !e.hasEnded() {
			t.Errorf("%d removals, ended: %t", n, e.hasEnded())
		}
		noWatches(t, ens, session(t, c))
		must(t, other.Delete(t.Context(), "/ns/a", -1))
		if heard, _ := e.take(); heard != "" {
			t.Errorf("heard %q after the removal", heard)
		}
	})
}

// All who watch a tree share one watch at the server. Each hears of all that
// comes after its call has returned.
func TestWatchTreeIsShared(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		other, _ := connect(t, ens)
		s := session(t, c)
		ens.ResetRequests()
		var ears []*ear
		var removes []func()
		for i := range 20 {
			if i == 10 {
				_, err := other.Create(t.Context(), "/a", nil, 0)
				must(t, err)
				must(t, c.Sync(t.Context(), "/"))
			}
			e, armed, remove := mustWatchTree(t, s, "/a")
			ears, removes = append(ears, e), append(removes, remove)
			if _, orders := ears[0].take(); i == 10 && (len(orders) != 1 || orders[0] > armed) {
				t.Errorf("what has come before, at %v, is not before %d", orders, armed)
			}
		}
		if n := ens.Requests()[testutil.OpAddWatch]; n != 1 || ens.WatchCount() != 2 { // one in each of the server's tables
			t.Errorf("%d requests, watches: %v", n, ens.Watches())
		}
		for i, remove := range removes {
			_, err := other.Set(t.Context(), "/a", nil, -1)
			must(t, err)
			must(t, c.Sync(t.Context(), "/"))
			for j, e := range ears {
				if heard, _ := e.take(); (heard == "=/a") != (j >= i) && !(i == 0 && j > 0 && j < 10 && heard == "+/a =/a") {
					t.Errorf("%d of %d heard %q", j, i, heard)
				}
			}
			remove()
			synctest.Wait()
			if !ears[i].hasEnded() {
				t.Errorf("%d has not ended", i)
			}
		}
		noWatches(t, ens, session(t, c))
	})
}

// A tree watch ends once, with its connection or with its session, however that
// ends.
func TestWatchTreeEnds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, ens *testutil.Embedded, c *framework.Client, n *testutil.ClientNet){
		"dropped": func(_ *testing.T, _ *testutil.Embedded, _ *framework.Client, n *testutil.ClientNet) { n.Drop() },
		"expired": func(t *testing.T, ens *testutil.Embedded, c *framework.Client, _ *testutil.ClientNet) {
			must(t, ens.ExpireSession(session(t, c).ID()))
		},
		"closed": func(t *testing.T, _ *testutil.Embedded, c *framework.Client, _ *testutil.ClientNet) {
			must(t, c.Close())
		},
		"cut": func(_ *testing.T, _ *testutil.Embedded, _ *framework.Client, n *testutil.ClientNet) { n.Cut() },
		"lost": func(t *testing.T, _ *testutil.Embedded, c *framework.Client, n *testutil.ClientNet) {
			holdUntilLost(t, session(t, c))
			n.Cut()
			<-session(t, c).Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				other, _ := connect(t, ens)
				s := session(t, c)
				e, _, remove := mustWatchTree(t, s, "/a")
				end(t, ens, c, network)
				time.Sleep(2 * timeout)
				if !e.hasEnded() {
					t.Fatal("it has not ended")
				}
				remove()
				network.Heal()
				if name == "closed" {
					_, _, _, err := watchTree(t, t.Context(), s, "/a")
					if !errors.Is(err, framework.ErrClosed) {
						t.Errorf("after the end: %v", err)
					}
					noWatches(t, ens, s)
					return
				}
				must(t, c.WaitConnected(t.Context()))
				e, _, remove = mustWatchTree(t, session(t, c), "/a")
				_, err := other.Create(t.Context(), "/a", nil, 0)
				must(t, err)
				must(t, c.Sync(t.Context(), "/"))
				if heard, _ := e.take(); heard != "+/a" {
					t.Errorf("heard %q in the next connection", heard)
				}
				remove()
				noWatches(t, ens, session(t, c))
			})
		})
	}
}

// Watches of a single event on the path of a tree, whenever they are armed,
// neither silence the tree nor are silenced by it or by its removal. Up to 3.8
// a server would let one replace the other (ZOOKEEPER-4466).
func TestWatchTreeBesideOtherWatches(t *testing.T) {
	for seed := range uint64(60) {
		inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
			random := rand.New(rand.NewPCG(seed, 0))
			c, network := connect(t, ens)
			other, _ := connect(t, ens)
			paths := []string{"/a", "/a/b", "/"}
			exists := map[string]bool{"/": true}
			data, children := map[string]<-chan framework.Data{}, map[string]<-chan framework.Children{}
			ears, removes := map[string]*ear{}, map[string]func(){}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			follow := func(path string) {
				var err error
				if data[path] == nil {
					data[path], err = c.WatchData(ctx, path)
					must(t, err)
					<-data[path]
				}
				if children[path] == nil {
					children[path], err = c.WatchChildren(ctx, path)
					must(t, err)
					<-children[path]
				}
			}
			hears := func(path, event string) {
				t.Helper()
				must(t, c.Sync(t.Context(), "/"))
				time.Sleep(time.Millisecond) // less than any look
				for root, e := range ears {
					heard, _ := e.take()
					within := root == path || root == "/" || strings.HasPrefix(path, root+"/")
					if within && !e.hasEnded() && !slices.Contains(strings.Fields(heard), event+path) {
						t.Fatalf("seed %d: the tree of %s does not hear of %s%s: %q", seed, root, event, path, heard)
					}
				}
				if d := data[path]; d != nil {
					select {
					case v := <-d:
						if v.Exists != (event != "-") || v.Err != nil {
							t.Fatalf("seed %d: %s%s: %+v", seed, event, path, v)
						}
					default:
						t.Fatalf("seed %d: WatchData of %s hears nothing of %s", seed, path, event)
					}
				}
				for _, of := range []string{path, parent(path)} {
					ch := children[of]
					if ch == nil || event == "=" {
						continue
					}
					select {
					case v := <-ch:
						if v.Err != nil {
							t.Fatal(v.Err)
						}
					default:
						t.Fatalf("seed %d: WatchChildren of %s hears nothing of %s%s", seed, of, event, path)
					}
				}
			}
			for range 40 {
				path := paths[random.IntN(len(paths))]
				switch random.IntN(7) {
				case 0:
					follow(path)
				case 1:
					if ears[path] == nil || ears[path].hasEnded() {
						ears[path], _, removes[path] = mustWatchTree(t, session(t, c), path)
					}
				case 2:
					if remove := removes[path]; remove != nil {
						remove()
						delete(removes, path)
						delete(ears, path)
						if random.IntN(2) == 0 {
							time.Sleep(time.Millisecond)
						}
					}
				case 3:
					if random.IntN(3) == 0 {
						network.Drop()
						time.Sleep(2 * time.Second)
						must(t, c.WaitConnected(t.Context()))
						for path := range ears {
							if !ears[path].hasEnded() {
								t.Fatalf("seed %d: the tree of %s outlives its connection", seed, path)
							}
						}
						clear(ears)
						clear(removes)
					}
				default:
					switch {
					case path == "/":
					case !exists[path] && exists[parent(path)]:
						_, err := other.Create(t.Context(), path, nil, 0)
						must(t, err)
						exists[path] = true
						hears(path, "+")
					case exists[path] && random.IntN(2) == 0 && !exists[path+"/b"]:
						must(t, other.Delete(t.Context(), path, -1))
						exists[path] = false
						hears(path, "-")
					case exists[path]:
						_, err := other.Set(t.Context(), path, nil, -1)
						must(t, err)
						hears(path, "=")
					}
				}
			}
			for _, remove := range removes {
				remove()
			}
		})
	}
}

func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

// After a reconnect the wire client presents credentials before it sends what
// waits in its queue. A tree watch is then armed before the wire client has set
// its watches again, and would be replaced by one of them.
func TestWatchTreeBeforeTheWireClientsWatches(t *testing.T) {
	for _, followed := range []bool{false, true} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			c, network := connect(t, ens, framework.WithAuth("digest", []byte("a:b")))
			other, _ := connect(t, ens)
			must(t, failure(other.Create(t.Context(), "/a", nil, 0)))
			defer ens.Control(testutil.NewFault(testutil.Match{Op: testutil.OpAuth, Times: -1}, testutil.DelayReply(time.Second)).Control)()
			var values <-chan framework.Data
			for range 3 {
				if followed && values == nil {
					var err error
					values, err = c.WatchData(within(t, time.Hour), "/a")
					must(t, err)
				} else if !followed {
					must(t, failure(session(t, c).Watch(t.Context(), "/a")))
				}
				network.Drop()
				synctest.Wait()
				must(t, c.WaitConnected(t.Context()))
				e, _, remove := mustWatchTree(t, session(t, c), "/a")
				time.Sleep(time.Second)
				e.take()
				for i := range 2 {
					must(t, failure(other.Set(t.Context(), "/a", nil, -1)))
					must(t, c.Sync(t.Context(), "/"))
					if heard, _ := e.take(); heard != "=/a" {
						t.Fatalf("followed %t: the tree hears %q of change %d", followed, heard, i)
					}
				}
				remove()
			}
		})
	}
}

// Whatever happens to the requests of a tree, and whenever its caller gives up,
// it fails or hears of everything, other watches on its path work, and none is
// left at the server.
func TestWatchTreeUnderFaults(t *testing.T) {
	for name, action := range map[string]func() testutil.Action{
		"nothing":      testutil.Pass,
		"not executed": testutil.DropBefore,
		"no answer":    testutil.DropAfter,
		"throttled":    func() testutil.Action { return testutil.Fail(testutil.CodeThrottled) },
		"failed":       func() testutil.Action { return testutil.Fail(testutil.CodeSystemError) },
		"timed out":    func() testutil.Action { return testutil.Fail(testutil.CodeRequestTimeout) },
		"late":         func() testutil.Action { return testutil.DelayReply(timeout / 3) },
		"held back":    func() testutil.Action { return testutil.Delay(timeout / 3) },
		"too late":     func() testutil.Action { return testutil.DelayReply(2 * timeout) },
		"never":        func() testutil.Action { return testutil.Hold(nil) },
	} {
		for _, op := range []testutil.Op{testutil.OpAddWatch, testutil.OpRemoveWatches} {
			for _, patience := range []time.Duration{0, timeout / 6, timeout / 3, timeout} {
				t.Run(fmt.Sprintf("%s/%v/%v", name, op, patience), func(t *testing.T) {
					inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
						c, _ := connect(t, ens)
						other, _ := connect(t, ens)
						must(t, failure(other.Create(t.Context(), "/a", nil, 0)))
						following, stop := context.WithCancel(t.Context())
						values, err := c.WatchData(following, "/a")
						must(t, err)
						<-values
						fault := testutil.NewFault(testutil.Match{Op: op, Times: 1}, action())
						uncontrol := ens.Control(fault.Control)
						for i := range 3 {
							must(t, c.WaitConnected(t.Context()))
							ctx, cancel := context.WithTimeout(t.Context(), patience)
							e, _, remove, err := watchTree(t, ctx, session(t, c), "/a")
							cancel()
							if err == nil {
								must(t, failure(other.Set(t.Context(), "/a", nil, -1)))
								must(t, c.Sync(t.Context(), "/"))
								if heard, _ := e.take(); heard != "=/a" && !e.hasEnded() {
									t.Errorf("heard %q", heard)
								}
								remove()
							} else if patience == timeout && name == "nothing" {
								t.Error(err)
							}
							if i < 2 && err == nil {
								synctest.Wait()
							}
						}
						must(t, failure(other.Set(t.Context(), "/a", []byte("last"), -1)))
						time.Sleep(3 * timeout)
						uncontrol()
						for last := ""; last != "last"; {
							select {
							case v := <-values:
								last = string(v.Data)
							default:
								t.Fatalf("the last value is %q", last)
							}
						}
						if patience > 0 && op == testutil.OpAddWatch && fault.Count() == 0 {
							t.Error("nothing was hit")
						}
						stop()
						must(t, other.Delete(t.Context(), "/a", -1))
						noWatches(t, ens, session(t, c))
					})
				})
			}
		}
	}
}

// A WatchTree whose caller has gone is removed when it is armed, and one that
// is being removed can be armed again.
func TestWatchTreeIsNotLeft(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		ens.Latency(10 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Millisecond)
		defer cancel()
		_, _, _, err := watchTree(t, ctx, s, "/a")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		noWatches(t, ens, session(t, c))
		ens.ResetRequests()
		_, _, remove := mustWatchTree(t, s, "/a")
		remove()
		e, _, remove := mustWatchTree(t, s, "/a") // waits for the removal
		if asked := ens.Requests(); asked[testutil.OpAddWatch] != 2 || asked[testutil.OpRemoveWatches] != 1 || ens.WatchCount() == 0 || e.hasEnded() {
			t.Errorf("asked: %v; watches: %v", asked, ens.Watches())
		}
		remove()
		time.Sleep(time.Second)
		noWatches(t, ens, session(t, c))
	})
}

// Servers before 3.6 refuse addWatch and close the connection. They are never
// asked on the connection of the session, so a lease under
// ErrorPolicyConnection lasts, whether they tell their version or not.
func TestWatchTreeAtOldServers(t *testing.T) {
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
				if _, _, _, err := watchTree(t, t.Context(), s, "/a"); !managed.TreesRefused(err) {
					t.Errorf("error %v", err)
				}
			}
			time.Sleep(time.Minute)
			if n := len(ens.Sessions()); n != 1 {
				t.Errorf("%d sessions", n)
			}
		}, testutil.WithMembers(3), testutil.WithoutNewOperations())
	}
}

// While members are replaced by newer ones, each connection asks for itself.
func TestWatchTreeWhileServersAreUpgraded(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, network := connect(t, w.Embedded)
		seen := map[bool]bool{}
		for range 12 {
			_, _, _, err := watchTree(t, t.Context(), session(t, c), "/a")
			old := memberOf(t, w.Embedded, session(t, c).ID()) == 0
			if managed.TreesRefused(err) != old || !old && err != nil {
				t.Errorf("old %t: %v", old, err)
			}
			seen[old] = true
			network.Drop()
			time.Sleep(2 * time.Second)
		}
		if len(seen) != 2 {
			t.Error("the client has met one kind of member only")
		}
	}, testutil.WithMembers(3), testutil.WithoutNewOperations(0))
}

// A server that refuses addWatch although its version has it, because of its
// watch manager or because it is behind a proxy, is asked once. Other watches
// on the path go on.
func TestWatchTreeIsRefused(t *testing.T) {
	for name, opts := range map[string][]testutil.Option{
		"by the watch manager": {hidden.WithoutLastingWatches()},
		"behind a proxy":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				ens := w.Embedded
				c, _ := connect(t, ens)
				other, _ := connect(t, ens)
				must(t, failure(other.Create(t.Context(), "/a", nil, 0)))
				changed, err := session(t, c).Watch(t.Context(), "/a")
				must(t, err)
				if opts == nil {
					defer ens.Control(testutil.NewFault(testutil.Match{Op: testutil.OpAddWatch, Times: -1}, testutil.Fail(testutil.CodeUnimplemented)).Control)()
				} else {
					holdThroughout(t, session(t, c))
				}
				ens.ResetRequests()
				for range 3 {
					must(t, c.WaitConnected(t.Context()))
					if _, _, _, err := watchTree(t, t.Context(), session(t, c), "/a"); !managed.TreesRefused(err) {
						t.Errorf("error %v", err)
					}
				}
				if n := ens.Requests()[testutil.OpAddWatch]; n > 1 {
					t.Errorf("asked %d times", n)
				}
				must(t, failure(other.Set(t.Context(), "/a", nil, -1)))
				must(t, c.Sync(t.Context(), "/"))
				select {
				case <-changed:
				default:
					t.Error("the other watch is silent")
				}
			}, opts...)
		})
	}
}

// After an event that names another znode than the one that has changed, the
// client uses tree watches no more: those that are armed end, those that are
// being armed fail, and the server has none any longer.
func TestDistrustTrees(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		ens := w.Embedded
		c, _ := connect(t, ens)
		other, _ := connect(t, ens)
		must(t, failure(other.Create(t.Context(), "/a", nil, 0)))
		s := session(t, c)
		e, _, remove := mustWatchTree(t, s, "/a")
		values, err := c.WatchData(within(t, time.Hour), "/a")
		must(t, err)
		<-values
		must(t, failure(other.Create(t.Context(), "/a/b", nil, 0)))
		must(t, c.Sync(t.Context(), "/"))
		if heard, _ := e.take(); heard != "+/a" {
			t.Fatalf("heard %q", heard)
		}
		defer ens.Control(testutil.NewFault(testutil.Match{Op: testutil.OpAddWatch, Times: 1}, testutil.Delay(time.Second)).Control)()
		failed := make(chan error)
		go func() {
			_, _, _, err := watchTree(t, t.Context(), s, "/b")
			failed <- err
		}()
		synctest.Wait()
		insideOf(c).DistrustTrees("an event named another znode")
		insideOf(c).DistrustTrees("an event named another znode")
		if err := <-failed; !managed.TreesRefused(err) {
			t.Errorf("the one that was being armed: %v", err)
		}
		if !e.hasEnded() {
			t.Error("it has not ended")
		}
		remove()
		if _, _, _, err := watchTree(t, t.Context(), s, "/a"); !managed.TreesRefused(err) {
			t.Errorf("afterwards: %v", err)
		}
		must(t, failure(other.Set(t.Context(), "/a", []byte("1"), -1)))
		must(t, c.Sync(t.Context(), "/"))
		time.Sleep(time.Millisecond)
		if v := <-values; string(v.Data) != "1" {
			t.Errorf("WatchData: %+v", v)
		}
		synctest.Wait()
		if n := ens.WatchCount(); n != 1 {
			t.Errorf("watches: %v, want that of WatchData", ens.Watches())
		}
	}, hidden.WithWatchPaths())
}

// Who hears of the events of other watches goes on to, also at the path of a
// tree that is armed, being armed or being removed just then.
func TestDistrustTreesEndsNothingElse(t *testing.T) {
	for name, tt := range map[string]struct {
		slow   testutil.Op
		remove bool
	}{
		"armed":         {slow: testutil.OpCloseSession},
		"being armed":   {slow: testutil.OpAddWatch},
		"being removed": {slow: testutil.OpRemoveWatches, remove: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				ens := w.Embedded
				c, _ := connect(t, ens)
				must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
				s := session(t, c)
				e, stop := listen(t, s, "/a")
				defer stop()
				slow := testutil.NewFault(testutil.Match{Op: tt.slow, Times: 1}, testutil.Delay(time.Second))
				defer ens.Control(slow.Control)()
				go func() {
					if _, _, remove, err := watchTree(t, t.Context(), s, "/a"); err == nil && tt.remove {
						remove()
					}
				}()
				synctest.Wait()
				insideOf(c).DistrustTrees("an event named another znode")
				time.Sleep(2 * time.Second)
				if e.hasEnded() {
					t.Fatal("it has ended")
				}
				must(t, failure(inside(s).ReadAllAndWatch(t.Context(), "/a", request.Read{Path: "/a"})))
				must(t, failure(c.Set(t.Context(), "/a", nil, -1)))
				must(t, c.Sync(t.Context(), "/"))
				if heard, _ := e.take(); !strings.HasSuffix(heard, "/a") {
					t.Errorf("heard %q", heard)
				}
			})
		})
	}
}

// Who waits until a tree is removed, to arm it again, does not when trees are
// distrusted in the meantime: nobody would distrust that one.
func TestDistrustTreesWhileOneIsAwaited(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		ens := w.Embedded
		c, _ := connect(t, ens)
		must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
		s := session(t, c)
		_, _, remove := mustWatchTree(t, s, "/a")
		slow := testutil.NewFault(testutil.Match{Op: testutil.OpRemoveWatches}, testutil.Delay(time.Second))
		defer ens.Control(slow.Control)()
		remove()
		ended := make(chan error)
		go func() {
			_, _, _, err := watchTree(t, t.Context(), s, "/a")
			ended <- err
		}()
		synctest.Wait()
		insideOf(c).DistrustTrees("an event named another znode")
		if err := <-ended; !managed.TreesRefused(err) {
			t.Errorf("the one that has waited: %v", err)
		}
		noWatches(t, ens, s)
	})
}

func failure[A any](_ A, err error) error { return err }
