package cache_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/hidden"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// asked returns how many requests of each operation the clients have sent since
// it was called before, but those that every client sends.
func asked(w *bubble.World) map[testutil.Op]int {
	synctest.Wait()
	all := maps.Clone(w.Requests())
	w.ResetRequests()
	for _, op := range []testutil.Op{testutil.OpPing, testutil.OpSync, testutil.OpCreateSession, testutil.OpCloseSession, testutil.OpSetData, testutil.OpCreate, testutil.OpDelete, testutil.OpSetACL} {
		delete(all, op)
	}
	return all
}

// After a reconnect the watches of a single event are armed again by setWatches
// alone. What these name is read, and nothing else is.
func TestReconnectOfOneShotWatches(t *testing.T) {
	bubble.Usual(t, bubble.Below, bubble.SmallRequest) // counts frames of 128 kB of absolute paths; makes large requests
	type requests = map[testutil.Op]int
	znode := root + "/dir-003/znode-000100"
	for name, tt := range map[string]struct {
		before, during func(t *testing.T, other *framework.Client)
		parts          int // of what was read before, at no more times than that
		want           requests
		again          int // a list that is answered before the get that says the znode is another one is read again
	}{
		"nothing has changed": {},
		"something had": {
			before: func(t *testing.T, other *framework.Client) {
				set(t, other, znode, "1")
				remove(t, other, root+"/dir-004/znode-000001")
				create(t, other, root+"/dir-005/new", "")
			},
			parts: 3,
		},
		"a change": {
			during: func(t *testing.T, other *framework.Client) { set(t, other, znode, "1") },
			want:   requests{testutil.OpGetData: 1},
		},
		"again": {
			before: func(t *testing.T, other *framework.Client) { set(t, other, znode, "1") },
			during: func(t *testing.T, other *framework.Client) { set(t, other, znode, "2") },
			parts:  1,
			want:   requests{testutil.OpGetData: 1},
		},
		"a create": {
			during: func(t *testing.T, other *framework.Client) { create(t, other, znode+"/below", "1") },
			want:   requests{testutil.OpGetChildren2: 2, testutil.OpGetData: 1},
		},
		"a delete": {
			during: func(t *testing.T, other *framework.Client) { remove(t, other, znode) },
			want:   requests{testutil.OpGetChildren2: 1},
		},
		"made again": {
			during: func(t *testing.T, other *framework.Client) {
				remove(t, other, znode)
				create(t, other, znode, "data of "+znode)
			},
			want:  requests{testutil.OpGetChildren2: 2, testutil.OpGetData: 1},
			again: 1,
		},
		"a directory is made again": {
			during: func(t *testing.T, other *framework.Client) {
				create(t, other, znode+"/a", "")
				remove(t, other, znode)
				create(t, other, znode, "data of "+znode)
				create(t, other, znode+"/b", "")
			},
			want:  requests{testutil.OpGetChildren2: 3, testutil.OpGetData: 2},
			again: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("reader"), w.Connect("writer")
				fill(t, other, 10, bubble.Few(101, 200))
				k := synced(t, c, cache.WithOneShotWatches(), cache.WithRecheck(0))
				shows(t, w, k)
				if tt.before != nil {
					tt.before(t, other)
					shows(t, w, k)
				}
				frames := bubble.Few(1, 2) // of 128 kB of paths
				parts := tt.parts
				for range bubble.Few(1, 3) {
					w.ClientNet("reader").Cut()
					await(t, k, cache.Stale)
					if tt.during != nil {
						tt.during(t, other)
					}
					asked(w)
					w.ClientNet("reader").Heal()
					await(t, k, cache.Synced)
					got := asked(w)
					if n := got[testutil.OpSetWatches]; n < frames || n > frames+parts {
						t.Errorf("%d requests to arm watches", n)
					}
					delete(got, testutil.OpSetWatches)
					if lists := tt.want[testutil.OpGetChildren2]; got[testutil.OpGetChildren2] > lists && got[testutil.OpGetChildren2] <= lists+tt.again {
						got[testutil.OpGetChildren2] = lists
					}
					if !maps.Equal(got, tt.want) {
						t.Errorf("asked: %v, want %v", got, tt.want)
					}
					shows(t, w, k)
					if tt.during != nil {
						return
					}
					parts = 0 // everything is as of this reconnect
				}
			})
		})
	}
}

// What is lost without an event is found by a reconnect as well: the events of
// a bad network, and those that servers withhold while the session may not read
// a znode. Later reads of others do not hide that.
func TestReconnectFindsWhatNoEventHasTold(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		other := w.Connect("writer", framework.WithAuth("digest", []byte("owner:secret")))
		fill(t, other, 3, 3)
		k := synced(t, c, cache.WithOneShotWatches(), cache.WithRecheck(0))
		for round := range 3 {
			secret := root + "/dir-001"
			for _, acl := range [][]zk.ACL{zk.DigestACL(zk.PermAll, "owner", "secret"), zk.WorldACL(zk.PermAll)} {
				if _, err := other.SetACL(t.Context(), secret, acl, -1); err != nil {
					t.Fatal(err)
				}
				set(t, other, secret, fmt.Sprint("withheld ", round))
			}
			set(t, other, root+"/dir-000", fmt.Sprint("seen ", round))
			w.ClientNet("reader").LoseEvents(true)
			set(t, other, root+"/dir-002", fmt.Sprint("lost ", round))
			create(t, other, fmt.Sprint(root, "/dir-002/", round), "")
			time.Sleep(time.Second)
			w.ClientNet("reader").LoseEvents(false)
			set(t, other, root, fmt.Sprint("seen ", round))
			time.Sleep(time.Second)
			if text(k.View()) == truth(w, root) {
				t.Fatal("every event was told")
			}
			w.ClientNet("reader").Drop()
			await(t, k, cache.Stale)
			shows(t, w, k)
		}
	})
}

// Before 3.6 a member may not count it as a change of the list that a child has
// ended with its session.
func TestReconnectWhereAListDoesNotTell(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		fill(t, other, 2, 2)
		guest := w.Connect("guest")
		for i := range 3 {
			if _, err := guest.Create(t.Context(), fmt.Sprint(root, "/dir-001/", i), nil, zk.FlagEphemeral); err != nil {
				t.Fatal(err)
			}
		}
		k := synced(t, c, cache.WithRecheck(0))
		shows(t, w, k)
		w.ClientNet("reader").Cut()
		await(t, k, cache.Stale)
		w.Expire(guest)
		w.ClientNet("reader").Heal()
		await(t, k, cache.Synced)
		if v := shows(t, w, k); v.Len() != 7 {
			t.Errorf("%d znodes", v.Len())
		}
	}, testutil.WithoutNewOperations(), hidden.WithStaleLists())
}

// Marks, and what was being read when the connection was lost, are read in the
// next one. The rest is not.
func TestReadsOutliveTheConnection(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		fill(t, other, 3, 30)
		k := synced(t, c, cache.WithOneShotWatches(), cache.WithRecheck(0))
		m := follow(t, k)
		m.took()
		for _, tt := range []struct {
			op   testutil.Op
			do   func()
			want string
		}{
			{testutil.OpGetData, func() {
				set(t, other, root+"/dir-000", "new")
				set(t, other, root+"/dir-001", "new")
			}, "changed /config/dir-000, changed /config/dir-001"},
			{testutil.OpGetChildren2, func() {
				removeLeaf(t, other, root+"/dir-002/znode-000001")
				create(t, other, root+"/dir-002/znode-000001", "again")
			}, "removed /config/dir-002/znode-000001, added /config/dir-002/znode-000001"},
		} {
			hits := w.Once(tt.op, root, testutil.DropAfter())
			session := w.SessionID(c)
			tt.do()
			await(t, k, cache.Stale)
			asked(w)
			await(t, k, cache.Synced)
			if got := asked(w); got[testutil.OpSetWatches] == 0 || got[testutil.OpGetData]+got[testutil.OpGetChildren2] > 4 {
				t.Errorf("asked: %v", got)
			}
			shows(t, w, k)
			wantLog(t, m, strings.Split(tt.want, ", ")...)
			if hits.Load() != 1 || w.SessionID(c) != session {
				t.Errorf("%d hits", hits.Load())
			}
		}
	})
}

// Whatever happens to a setWatches, nothing is missed. One that is refused is
// replaced by reads.
func TestReconnectUnderFaults(t *testing.T) {
	for name, action := range map[string]func() testutil.Action{
		"not executed": testutil.DropBefore,
		"no answer":    testutil.DropAfter,
		"refused":      func() testutil.Action { return testutil.Fail(testutil.CodeSystemError) },
		"throttled":    func() testutil.Action { return testutil.Fail(testutil.CodeThrottled) },
		"timed out":    func() testutil.Action { return testutil.Fail(testutil.CodeRequestTimeout) },
		"late":         func() testutil.Action { return testutil.DelayReply(bubble.Timeout / 3) },
		"too late":     func() testutil.Action { return testutil.DelayReply(2 * bubble.Timeout) },
		"never":        func() testutil.Action { return testutil.Hold(nil) },
	} {
		for skip := range bubble.Few(1, 3) {
			t.Run(fmt.Sprint(name, " ", skip), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					c, other := w.Connect("reader", framework.WithMaxRequest(16<<10)), w.Connect("writer")
					fill(t, other, 3, 200)
					k := synced(t, c, cache.WithOneShotWatches(), cache.WithRecheck(0))
					m := follow(t, k)
					m.took()
					fault := testutil.NewFault(testutil.Match{Op: testutil.OpSetWatches, Skip: skip}, action())
					defer w.Control(fault.Control)()
					w.ClientNet("reader").Cut()
					await(t, k, cache.Stale)
					set(t, other, root+"/dir-000/znode-000000", "new")
					set(t, other, root+"/dir-002", "new")
					w.ClientNet("reader").Heal()
					shows(t, w, k)
					wantLog(t, m, "changed /config/dir-000/znode-000000", "changed /config/dir-002")
					set(t, other, root+"/dir-001", "new")
					time.Sleep(time.Second)
					wantLog(t, m, "changed /config/dir-001")
					if fault.Count() != 1 {
						t.Errorf("%d requests were hit", fault.Count())
					}
				})
			})
		}
	}
}

// The same on the real server.
func TestReconnectOnTheRealServer(t *testing.T) {
	ens := apache.Start(t, 1)
	var mu sync.Mutex // guards requests
	requests := map[string]int{}
	o := framework.Observer{RequestEnd: func(_ context.Context, r framework.Request, _ framework.RequestResult) {
		mu.Lock()
		defer mu.Unlock()
		requests[r.Op]++
	}}
	connect := func(name string, opts ...framework.Option) *framework.Client {
		c, err := framework.New(ens.Servers(), append(opts, framework.WithSessionTimeout(4*time.Second), framework.WithDialer(ens.ClientNet(name).Dial))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		return c
	}
	c, other := connect("reader", framework.WithObserver(o)), connect("writer")
	fill(t, other, 10, 200)
	defer remove(t, other, root)
	k := synced(t, c, cache.WithOneShotWatches(), cache.WithRecheck(0))
	network := ens.ClientNet("reader")
	for round, tt := range []struct {
		during func()
		want   map[string]int
	}{
		{func() {}, map[string]int{"watch": 2}},
		{func() { set(t, other, root+"/dir-001", "new") }, map[string]int{"watch": 2, "get": 1}},
		// What was read in the round before has a request of its own.
		{func() { create(t, other, root+"/dir-001/znode-000001/below", "") }, map[string]int{"watch": 3, "get": 1, "list": 2}},
	} {
		network.Cut()
		await(t, k, cache.Stale)
		tt.during()
		time.Sleep(100 * time.Millisecond) // for the observer
		mu.Lock()
		clear(requests)
		mu.Unlock()
		network.Heal()
		await(t, k, cache.Synced)
		time.Sleep(100 * time.Millisecond)
		mu.Lock()
		if !maps.Equal(requests, tt.want) {
			t.Errorf("round %d: asked %v, want %v", round, requests, tt.want)
		}
		mu.Unlock()
		if got, want := text(view(t, k.Fresh)), realTruth(t, other, root); got != want {
			t.Fatalf("round %d: the view is\n%s\nand the truth\n%s", round, got, want)
		}
	}
	if !strings.Contains(text(k.View()), "/dir-001=new") {
		t.Error("nothing was changed")
	}
}
