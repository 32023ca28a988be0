package cache_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// loses makes changes of which the reader's server tells nothing.
func loses(w *bubble.World, change func()) {
	w.ClientNet("reader").LoseEvents(true)
	change()
	time.Sleep(time.Second)
	w.ClientNet("reader").LoseEvents(false)
}

// within fails the test unless a cache shows the data of a znode soon enough.
func within(t bubble.T, k *cache.Cache, path, data string, bound time.Duration) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(bubble.Timeout / 10) {
		if n, ok := k.View().Get(path); ok && string(n.Data) == data {
			return
		}
		if time.Since(began) > bound {
			t.Errorf("%s is not shown as %q within %v: %+v\n%s", path, data, bound, k.Status(), text(k.View()))
			return
		}
	}
}

// connectCounted returns a client and the bytes that it has received.
func connectCounted(w *bubble.World, opts ...framework.Option) (*framework.Client, *atomic.Int64) {
	var bytes atomic.Int64
	network := w.ClientNet("reader")
	return w.Connect("reader", append(opts, framework.WithDialer(func(kind, address string, limit time.Duration) (net.Conn, error) {
		conn, err := network.Dial(kind, address, limit)
		if err != nil {
			return nil, err
		}
		return counted{conn, &bytes}, nil
	}))...), &bytes
}

// An event that a server has lost is found: that of a small tree in about a
// session timeout, again and again, and that of any tree within an hour. All
// caches of a client, in all its views, ask once in a session timeout for 16
// kB.
func TestLostEventsAreFound(t *testing.T) {
	for name, opts := range map[string][]cache.Option{"recursive watch": nil, "one-shot watches": {cache.WithOneShotWatches()}} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, bytes := connectCounted(w)
				other := w.Connect("writer")
				fill(t, other, 10, 400) // takes 530 kB
				create(t, other, "/small", "")
				create(t, other, "/small/a", "0")
				view2, err := c.Namespace("small")
				if err != nil {
					t.Fatal(err)
				}
				large := synced(t, c, opts...)
				var small []*cache.Cache
				for range 5 {
					small = append(small, startAt(t, view2, "/", opts...))
				}
				for _, k := range small {
					view(t, k.Synced)
				}
				time.Sleep(bubble.Timeout)
				asked(w)
				bytes.Store(0)
				began := time.Now()
				loses(w, func() { set(t, other, root+"/dir-009/znode-000399", "new") })
				for i := range 10 {
					data := fmt.Sprint("lost ", i)
					loses(w, func() { set(t, other, "/small/a", data) })
					for _, k := range small {
						within(t, k, "/a", data, 2*bubble.Timeout)
					}
				}
				within(t, large, root+"/dir-009/znode-000399", "new", time.Hour)
				timeouts := int(time.Since(began)/bubble.Timeout) + 1
				found := 10*len(small) + 1 // each cache reads what has changed
				requests := asked(w)
				if got := requests[testutil.OpMultiRead] + requests[testutil.OpGetData] + requests[testutil.OpGetChildren]; got > timeouts+found {
					t.Errorf("%d requests in %d session timeouts: %v", got, timeouts, requests)
				}
				if got := bytes.Load(); got > int64(timeouts*(16<<10+300)+found*500) {
					t.Errorf("%d bytes in %d session timeouts", got, timeouts)
				}
				t.Logf("%d session timeouts: %v, %d bytes", timeouts, requests, bytes.Load())
			})
		})
	}
}

// Many small trees share requests.
func TestManySmallTreesShareTheRecheck(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, bytes := connectCounted(w)
		other := w.Connect("writer")
		const n, each = 200, 10 // 230 kB
		fill(t, other, n, each)
		var all []*cache.Cache
		for i := range n {
			all = append(all, startAt(t, c, fmt.Sprintf("%s/dir-%03d", root, i)))
		}
		for _, k := range all {
			view(t, k.Synced)
		}
		time.Sleep(bubble.Timeout)
		synctest.Wait()
		asked(w)
		bytes.Store(0)
		const timeouts = 40
		time.Sleep(timeouts * bubble.Timeout)
		synctest.Wait()
		requests := asked(w)
		if got := requests[testutil.OpMultiRead]; got > timeouts+1 || bytes.Load() > timeouts*17_000 {
			t.Errorf("%d requests and %d bytes in %d session timeouts", got, bytes.Load(), timeouts)
		}
		t.Logf("%v, %d bytes", requests, bytes.Load())
		loses(w, func() {
			for i := range n {
				set(t, other, fmt.Sprintf("%s/dir-%03d/znode-000003", root, i), "new")
			}
		})
		for i, k := range all {
			within(t, k, fmt.Sprintf("%s/dir-%03d/znode-000003", root, i), "new", 40*bubble.Timeout)
		}
	})
}

// The time of a recheck goes on over lost connections, which end a little more
// often than it is due. With one-shot watches nothing else finds that a right
// to read was withdrawn, or granted.
func TestConnectionsThatEndMoreOftenThanTheRecheckIsDue(t *testing.T) {
	const every, ends = 10 * time.Minute, 9 * time.Minute
	only, all := zk.DigestACL(zk.PermAll, "owner", "secret"), zk.WorldACL(zk.PermAll)
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer", framework.WithAuth("digest", []byte("owner:secret")))
		create(t, other, root, "")
		create(t, other, root+"/a", "")
		k := synced(t, c, cache.WithOneShotWatches(), cache.WithRecheck(every))
		m := follow(t, k)
		m.took()
		for _, step := range []struct {
			acl  []zk.ACL
			want string
		}{{only, "removed " + root + "/a"}, {all, "added " + root + "/a"}, {only, "removed " + root + "/a"}} {
			if _, err := other.SetACL(t.Context(), root+"/a", step.acl, -1); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				time.Sleep(ends)
				w.ClientNet("reader").Drop()
			}
			time.Sleep(bubble.Timeout)
			if got := strings.Join(m.took(), " "); got != step.want {
				t.Errorf("after 3 connections: %q, want %q", got, step.want)
			}
		}
	})
}

// A list that differs at each recheck, because of a filter, counts: all the
// rechecks together cost what they may.
func TestTheRecheckOfAFilteredTree(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, bytes := connectCounted(w)
		other := w.Connect("writer")
		fill(t, other, 1, 2000)
		k := synced(t, c, cache.WithFilter(func(path string) bool { return !strings.Contains(path, "znode-") || strings.HasSuffix(path, "7") }))
		time.Sleep(bubble.Timeout)
		asked(w)
		bytes.Store(0)
		const timeouts = 100
		time.Sleep(timeouts * bubble.Timeout)
		synctest.Wait()
		if got := asked(w)[testutil.OpMultiRead]; got > timeouts || bytes.Load() > timeouts*17_000 {
			t.Errorf("%d requests and %d bytes in %d session timeouts", got, bytes.Load(), timeouts)
		}
		loses(w, func() { create(t, other, root+"/dir-000/new", "new") })
		within(t, k, root+"/dir-000/new", "new", 30*bubble.Timeout)
	})
}

// A list that is read again delays no recheck of a cache with WithRecheck.
// Where the tree had grown since the pass began, the rest of the pass waited
// until what the list costs was due.
func TestListsDelayNoRecheckWithATime(t *testing.T) {
	const every = 10 * bubble.Timeout
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		fill(t, other, 1, 5)
		k := synced(t, c, cache.WithRecheck(every))
		for i := range 10 {
			time.Sleep(2 * bubble.Timeout)
			create(t, other, fmt.Sprint(root, "/dir-000/a-", i), "")
			data := fmt.Sprint("lost ", i)
			loses(w, func() {
				create(t, other, fmt.Sprint(root, "/dir-000/b-", i), "")
				set(t, other, root+"/dir-000/znode-000004", data)
			})
			within(t, k, root+"/dir-000/znode-000004", data, every+2*bubble.Timeout)
		}
	})
}

// A server without multiRead is asked once in a session timeout.
func TestTheRecheckWithoutMultiRead(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		fill(t, other, 1, 28)
		k := synced(t, c)
		time.Sleep(10 * bubble.Timeout)
		asked(w)
		const timeouts = 100
		time.Sleep(timeouts * bubble.Timeout)
		synctest.Wait()
		requests := asked(w)
		if got := requests[testutil.OpGetData]; got > timeouts+1 || got < timeouts-1 {
			t.Errorf("%v in %d session timeouts", requests, timeouts)
		}
		loses(w, func() { set(t, other, root+"/dir-000/znode-000007", "new") })
		within(t, k, root+"/dir-000/znode-000007", "new", 32*bubble.Timeout)
	}, testutil.WithoutNewOperations())
}

// What a recheck asks for is lost, or refused, and asked for again. When a
// cache is closed nothing is asked for it any more, although others are
// rechecked.
func TestARecheckThatFails(t *testing.T) {
	for name, action := range map[string]testutil.Action{
		"no answer": testutil.DropAfter(), "throttled": testutil.Fail(testutil.Code(-127)), "late": testutil.DelayReply(bubble.Timeout / 4),
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("reader"), w.Connect("writer")
				create(t, other, root, "old")
				create(t, other, "/other", "old")
				k, stays := synced(t, c, cache.WithOneShotWatches()), startAt(t, c, "/other")
				view(t, stays.Synced)
				fault := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead}, action)
				stop := w.ClientNet("reader").Control(fault.Control)
				loses(w, func() { set(t, other, root, "new") })
				within(t, k, root, "new", 4*bubble.Timeout)
				if fault.Count() == 0 {
					t.Error("no recheck has failed")
				}
				stop()
				k.Close()
				w.Control(func(r testutil.Request) testutil.Action {
					if r.Does(testutil.OpGetData, root) {
						t.Errorf("asked after Close: %+v", r)
					}
					return testutil.Pass()
				})
				loses(w, func() { set(t, other, "/other", "new") })
				within(t, stays, "/other", "new", 2*bubble.Timeout)
			})
		})
	}
}

// Caches that come and go, more often than a recheck is due, delay no other's.
func TestCachesThatComeAndGoDelayNoRecheck(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		create(t, other, root, "")
		k := synced(t, c)
		over := make(chan struct{})
		var others sync.WaitGroup
		others.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(bubble.Timeout / 7):
					synced(t, c, cache.WithRecheck(time.Hour)).Close()
				}
			}
		})
		for i := range 3 {
			data := fmt.Sprint("lost ", i)
			loses(w, func() { set(t, other, root, data) })
			within(t, k, root, data, 2*bubble.Timeout)
		}
		close(over)
		others.Wait()
	})
}
