package cache_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/hidden"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Curator's CuratorCache compares version and cversion: it shows new data
// without an event, and never reads the new children.
func TestDeletedAndMadeAgainWhileDisconnected(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		create(t, other, root, "")
		create(t, other, root+"/x", "old")
		create(t, other, root+"/dir", "")
		create(t, other, root+"/dir/b", "")
		create(t, other, root+"/same", "")
		k := synced(t, c)
		m := follow(t, k)
		m.took()
		w.ClientNet("reader").Cut()
		remove(t, other, root+"/x")
		create(t, other, root+"/x", "new")
		remove(t, other, root+"/dir")
		create(t, other, root+"/dir", "")
		create(t, other, root+"/dir/c", "")
		if got := await(t, k, cache.Stale); got.Err == nil || !strings.Contains(text(k.View()), "/x=old") {
			t.Errorf("status %+v", got)
		}
		w.ClientNet("reader").Heal()
		await(t, k, cache.Synced)
		shows(t, w, k)
		wantLog(t, m, "removed /config/x", "removed /config/dir/b", "removed /config/dir",
			"added /config/dir", "added /config/dir/c", "added /config/x")
	})
}

func TestStaleSaysSinceWhen(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		k := synced(t, c)
		time.Sleep(time.Hour)
		cut := time.Now()
		w.ClientNet("reader").Drop()
		w.ClientNet("reader").Cut()
		got := await(t, k, cache.Stale)
		time.Sleep(time.Minute)
		if got.Since != k.Status().Since || got.Since.Sub(cut) > time.Second {
			t.Errorf("stale since %v, cut at %v", k.Status().Since, cut)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := k.Synced(ctx); err != nil {
			t.Errorf("there was a whole view, and Synced fails: %v", err)
		}
		_, err := k.Fresh(ctx)
		wantErr(t, err, context.DeadlineExceeded, root)
		w.ClientNet("reader").Heal()
		shows(t, w, k)
	})
}

// The events of an outage are not replayed: the tree is compared.
func TestReconnectReportsOnlyDifferences(t *testing.T) {
	for _, expire := range []bool{false, true} {
		t.Run(fmt.Sprint("expire ", expire), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("reader"), w.Connect("writer")
				fill(t, other, 10, 50)
				k := synced(t, c)
				m := follow(t, k)
				m.took()
				w.ClientNet("reader").Cut()
				await(t, k, cache.Stale)
				set(t, other, root+"/dir-003/znode-000007", "new")
				if expire {
					w.Expire(c)
				}
				w.ClientNet("reader").Heal()
				shows(t, w, k)
				wantLog(t, m, "changed /config/dir-003/znode-000007")
			})
		})
	}
}

func TestRootComesAndGoes(t *testing.T) {
	bubble.Usual(t, bubble.NoContainers) // waits for the end of a container
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		k := synced(t, c)
		m := follow(t, k)
		if v := k.View(); v.Len() != 0 || v.Zxid() == 0 || k.Status().State != cache.Synced {
			t.Errorf("a missing root: %+v", k.Status())
		}
		for range 2 {
			if err := other.MakeContainerPath(t.Context(), root); err != nil {
				t.Fatal(err)
			}
			create(t, other, root+"/a", "")
			shows(t, w, k)
			wantLog(t, m, "added /config", "added /config/a")
			remove(t, other, root+"/a")
			bubble.AwaitTrue(t, "the container is reaped", func() bool { return !w.Exists(root) })
			shows(t, w, k)
			wantLog(t, m, "removed /config/a", "removed /config")
		}
	})
}

func TestRootOfAll(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		k := startAt(t, c, "/", cache.WithDepth(1))
		view(t, k.Synced)
		create(t, c, "/a", "")
		create(t, c, "/a/b", "")
		v := view(t, k.Fresh)
		if _, ok := v.Get("/a"); !ok {
			t.Errorf("no /a in\n%s", text(v))
		}
		if _, ok := v.Get("/a/b"); ok {
			t.Errorf("a znode too deep in\n%s", text(v))
		}
		if got, want := v.Len(), 1+len(w.Children("/")); got != want {
			t.Errorf("%d znodes, want %d", got, want)
		}
	})
}

func TestChrootIsMissing(t *testing.T) {
	bubble.Usual(t, bubble.Below) // it has a chroot of its own
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, err := w.OpenTo("reader", w.Servers()+"/nowhere")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		k := start(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err = k.Synced(ctx)
		wantErr(t, err, zk.ErrNoNode, root, "SYNCING", "chroot /nowhere does not exist")
		other := w.Connect("writer")
		create(t, other, "/nowhere", "")
		create(t, other, "/nowhere"+root, "here")
		if v := view(t, k.Synced); v.Len() != 1 {
			t.Errorf("the view is\n%s", text(v))
		}
	})
}

// A removal that was shown by its event alone could come back: no answer would
// have told the client of a transaction that a lagging member does not have
// yet.
func TestLaggingMemberAfterADelete(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		other := w.ConnectTo("writer", w.Address(w.Leader()))
		fill(t, other, 1, 3)
		c := w.Connect("reader")
		k := synced(t, c)
		m := follow(t, k)
		m.took()
		lagging := 0
		for lagging == w.Leader() || lagging == w.MemberOf(w.SessionID(c)) {
			lagging++
		}
		w.Lag(lagging)
		remove(t, other, root+"/dir-000/znode-000001")
		bubble.AwaitTrue(t, "the removal", func() bool { _, ok := k.View().Get(root + "/dir-000/znode-000001"); return !ok })
		wantLog(t, m, "removed /config/dir-000/znode-000001")
		var tried atomic.Int32
		defer w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreateSession && r.Member == lagging {
				tried.Add(1)
			}
			return testutil.Pass()
		})()
		for range 6 {
			w.ClientNet("reader").Drop()
			await(t, k, cache.Stale)
			await(t, k, cache.Synced)
		}
		if tried.Load() == 0 {
			t.Error("the client has not tried the lagging member")
		}
		w.Unlag(lagging)
		shows(t, w, k)
		wantLog(t, m)
	}, testutil.WithMembers(3))
}

func TestExpiryInTheMiddleOfTheWalk(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	for skip := range 7 {
		t.Run(fmt.Sprint("after ", skip), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("reader"), w.Connect("writer")
				fill(t, other, 20, 20)
				release := make(chan struct{})
				hold := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead, Skip: skip}, testutil.HoldReply(release))
				defer w.ClientNet("reader").Control(hold.Control)()
				k := start(t, c)
				bubble.Await(t, "a read", hold.Hit())
				w.Expire(c)
				close(release)
				view(t, k.Synced)
				shows(t, w, k)
			})
		})
	}
}

// A list of 100,000 names has 1.7 MB: Curator's cache says that it is
// initialized, with one znode.
func TestAHundredThousandChildren(t *testing.T) {
	n := bubble.Few(20_000, 100_000)
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		fill(t, c, 1, n)
		w.ResetRequests()
		k := synced(t, c)
		if got := k.View().Len(); got != n+2 {
			t.Errorf("%d znodes, want %d", got, n+2)
		}
		if reads := w.Cost()[testutil.OpMultiRead]; reads > n/256+60 {
			t.Errorf("%d requests", reads)
		}
		t.Logf("%v, %d bytes a znode", w.Cost(), k.Status().Bytes/int64(n))
		children := 0
		for range k.View().Children(root + "/dir-000") {
			children++
		}
		if children != n {
			t.Errorf("%d children", children)
		}
		w.ResetRequests()
		w.ClientNet("reader").Drop()
		await(t, k, cache.Stale)
		view(t, k.Fresh)
		if reads := w.Cost()[testutil.OpMultiRead]; reads > n/256+60 {
			t.Errorf("%d requests after a reconnect", reads)
		}
	})
}

func TestLargeData(t *testing.T) {
	bubble.Usual(t, bubble.SmallRequest) // makes large requests
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		create(t, c, root, "")
		for i := range 12 {
			create(t, c, fmt.Sprintf("%s/large-%02d", root, i), strings.Repeat("x", 1_000_000))
		}
		for i := range 300 {
			create(t, c, fmt.Sprintf("%s/small-%03d", root, i), "")
		}
		k := synced(t, c)
		shows(t, w, k)
		without := synced(t, c, cache.WithoutData())
		if n, ok := without.View().Get(root + "/large-03"); !ok || n.Data != nil || n.Stat.DataLength != 1_000_000 {
			t.Errorf("without data: %v, %+v", ok, n.Stat)
		}
		if got := without.Status().Bytes; got > 100_000 {
			t.Errorf("%d bytes without data", got)
		}
		limited := start(t, c, cache.WithMaxBytes(5_000_000))
		got := await(t, limited, cache.Failed)
		wantErr(t, got.Err, nil, "5000000", root+"/large-")
		_, err := limited.Synced(t.Context())
		wantErr(t, err, nil, "5000000")
		if n := limited.View().Len(); n != 0 {
			t.Errorf("%d znodes in a view that is not whole", n)
		}
	})
}

// The tree grows past the limit while it is followed.
func TestGrowsPastTheLimit(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		create(t, c, root, "")
		k := synced(t, c, cache.WithMaxBytes(10_000))
		create(t, c, root+"/a-small", strings.Repeat("x", 5000))
		before := shows(t, w, k)
		create(t, c, root+"/large", strings.Repeat("x", 5000))
		got := await(t, k, cache.Failed)
		wantErr(t, got.Err, nil, root+"/large")
		if text(k.View()) != text(before) {
			t.Error("the view was changed")
		}
		k.Close()
		if got := k.Status().State; got != cache.Closed {
			t.Errorf("state %v", got)
		}
		noWatches(t, w)
	})
}

// Before and after a move the tree is within the limit. What is new is read
// before the cache knows what is gone: in a walk, and in a round of several
// requests.
func TestMovesWithinTheLimit(t *testing.T) {
	bubble.Usual(t, bubble.OneShot, bubble.SmallRequest) // needs multiRead, or recursive watches; makes large requests

	const n = 300 // more than a request has
	move := func(t *testing.T, c *framework.Client) {
		t.Helper()
		for from := 0; from < n; from += 100 {
			var ops []any
			for i := from; i < from+100; i++ {
				ops = append(ops,
					&zk.DeleteRequest{Path: fmt.Sprintf("%s/z/deep/%03d", root, i), Version: -1},
					&zk.CreateRequest{Path: fmt.Sprintf("%s/a/%03d", root, i), Data: make([]byte, 1000), Acl: zk.WorldACL(zk.PermAll)})
			}
			if _, err := c.Multi(t.Context(), ops...); err != nil {
				t.Error(err)
			}
		}
	}
	for name, while := range map[string]func(t *testing.T, w *bubble.World, k *cache.Cache, move func()){
		"there is no connection": func(t *testing.T, w *bubble.World, k *cache.Cache, move func()) {
			w.ClientNet("reader").Cut()
			await(t, k, cache.Stale)
			move()
			w.ClientNet("reader").Heal()
		},
		"a read is under way": func(t *testing.T, w *bubble.World, k *cache.Cache, move func()) {
			release := make(chan struct{})
			hold := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead}, testutil.HoldReply(release))
			defer w.ClientNet("reader").Control(hold.Control)()
			set(t, w.Connect("another"), root, "new")
			bubble.Await(t, "the read", hold.Hit())
			move()
			close(release)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("reader"), w.Connect("writer")
				for _, path := range []string{"", "/a", "/z", "/z/deep", "/z/deep/stays"} {
					create(t, other, root+path, "")
				}
				for i := range n {
					create(t, other, fmt.Sprintf("%s/z/deep/%03d", root, i), strings.Repeat("x", 1000))
				}
				k := synced(t, c, cache.WithMaxBytes(3*n*1000/2))
				while(t, w, k, func() { move(t, other) })
				shows(t, w, k)
				for i := range n {
					create(t, other, fmt.Sprintf("%s/z/%03d", root, i), strings.Repeat("x", 1000))
				}
				wantErr(t, await(t, k, cache.Failed).Err, nil, "more than 450000 bytes at "+root)
			})
		})
	}
}

func TestRightsComeAndGo(t *testing.T) {
	t.Run("recursive watch", func(t *testing.T) { rightsComeAndGo(t) })
	t.Run("one-shot watches", func(t *testing.T) { rightsComeAndGo(t, cache.WithOneShotWatches()) })
}

func rightsComeAndGo(t *testing.T, opts ...cache.Option) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		owner := w.Connect("owner", framework.WithAuth("digest", []byte("owner:secret")))
		only := zk.DigestACL(zk.PermAll, "owner", "secret")
		create(t, owner, root, "")
		create(t, owner, root+"/open", "")
		create(t, owner, root+"/open/a", "")
		if _, err := owner.Create(t.Context(), root+"/secret", nil, zk.FlagPersistent, only...); err != nil {
			t.Fatal(err)
		}
		create(t, owner, root+"/secret/public", "")
		k := synced(t, c, append(opts, cache.WithRecheck(time.Minute))...)
		m := follow(t, k)
		wantLog(t, m, "added /config", "added /config/open", "added /config/open/a")
		if got := k.Status(); got.State != cache.Synced || len(got.Unreadable) != 1 {
			t.Errorf("status %+v", got)
		}
		grant := func(path string, acl []zk.ACL) {
			t.Helper()
			if _, err := owner.SetACL(t.Context(), path, acl, -1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Minute)
		}
		set(t, owner, root+"/secret/public", "readable, below what is not")
		if v := view(t, k.Fresh); v.Len() != 3 {
			t.Errorf("the view is\n%s", text(v))
		}
		grant(root+"/secret", zk.WorldACL(zk.PermAll))
		wantLog(t, m, "added /config/secret", "added /config/secret/public")
		grant(root+"/open", only)
		wantLog(t, m, "removed /config/open/a", "removed /config/open")
		if got := k.Status(); got.State != cache.Synced || len(got.Unreadable) != 1 {
			t.Errorf("status %+v", got)
		}
		remove(t, owner, root+"/open")
		time.Sleep(3 * time.Minute)
		if got := k.Status().Unreadable; len(got) != 0 {
			t.Errorf("%q are unreadable", got)
		}
		// Without a right to the root nothing is known, and nothing is removed.
		grant(root, only)
		if got := k.Status(); got.State != cache.Stale || !errors.Is(got.Err, zk.ErrNoAuth) || got.Znodes != 3 {
			t.Errorf("status %+v", got)
		}
		grant(root, zk.WorldACL(zk.PermAll))
		shows(t, w, k)
		wantLog(t, m)
	})
}

func TestTwoCachesOnOneTree(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		fill(t, c, 2, 2)
		a, b := synced(t, c), synced(t, c)
		inner := startAt(t, c, root+"/dir-000")
		view(t, inner.Synced)
		if n := w.WatchCount(); n != 4 { // data and children of two paths
			t.Errorf("%d watches at the server: %v", n, w.Watches())
		}
		set(t, c, root+"/dir-000/znode-000001", "1")
		shows(t, w, a)
		shows(t, w, b)
		a.Close()
		set(t, c, root+"/dir-000/znode-000001", "2")
		shows(t, w, b)
		if n, _ := view(t, inner.Fresh).Get(root + "/dir-000/znode-000001"); string(n.Data) != "2" {
			t.Errorf("the inner cache shows %s", n.Data)
		}
		if _, err := a.Fresh(t.Context()); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("Fresh of a closed cache: %v", err)
		}
		again := synced(t, c)
		b.Close()
		set(t, c, root+"/dir-000/znode-000001", "3")
		shows(t, w, again)
		again.Close()
		inner.Close()
		noWatches(t, w)
	})
}

// The request that removes a recursive watch removes every watch of the client
// on the path. A cache with watches of a single event did not arm its own
// again, and missed what happened to its root from then on. The simulator found
// it.
func TestARecursiveWatchGoesBesideOneShotWatches(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		create(t, other, root, "")
		k := synced(t, c, cache.WithOneShotWatches(), cache.WithRecheck(0))
		m := follow(t, k)
		m.took()
		synced(t, c).Close()
		create(t, other, root+"/a", "")
		wantLog(t, m, "added /config/a")
		beside := synced(t, c)
		set(t, other, root, "1")
		beside.Close()
		time.Sleep(time.Second)
		set(t, other, root, "2")
		create(t, other, root+"/b", "")
		time.Sleep(time.Second)
		wantLog(t, m, "changed /config", "changed /config", "added /config/b")
	})
}

// Up to ZooKeeper 3.8 a watch for one event replaces a recursive one of the
// same client and path (ZOOKEEPER-4466).
func TestOtherWatchesInTheTree(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		create(t, c, root, "")
		k := synced(t, c)
		m := follow(t, k)
		m.took()
		ctx, stop := context.WithCancel(t.Context())
		data, err := c.WatchData(ctx, root)
		if err != nil {
			t.Fatal(err)
		}
		names, err := c.WatchChildren(ctx, root)
		if err != nil {
			t.Fatal(err)
		}
		mutex, err := locks.NewMutex(c, root)
		if err != nil {
			t.Fatal(err)
		}
		rival, err := locks.NewMutex(other, root)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			first := bubble.Acquire(t, t.Context(), rival)
			second := bubble.Acquiring(t.Context(), mutex)
			synctest.Wait()
			bubble.Release(t, first)
			bubble.Release(t, bubble.Granted(t, second).Lease)
			set(t, other, root, fmt.Sprint(i))
			time.Sleep(time.Second)
			if d := <-data; string(d.Data) != fmt.Sprint(i) {
				t.Errorf("WatchData has %s in round %d", d.Data, i)
			}
			<-names
			if n, _ := k.View().Get(root); string(n.Data) != fmt.Sprint(i) {
				t.Errorf("the cache shows %s in round %d", n.Data, i)
			}
			shows(t, w, k)
			if log := m.took(); !slices.Contains(log, "changed /config") || len(log) < 5 {
				t.Errorf("round %d: %q", i, log)
			}
			if i == 2 {
				w.ClientNet("reader").Drop()
				time.Sleep(10 * time.Second)
			}
		}
		stop()
		k.Close()
		time.Sleep(time.Second)
	})
}

func TestTenThousandChangesASecond(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		fill(t, other, 1, 500)
		w.ClientNet("reader").Latency(time.Millisecond, time.Millisecond)
		k := synced(t, c)
		m := follow(t, k)
		seconds := bubble.Few(1, 3)
		began, zxid := time.Now(), k.View().Zxid()
		for i := 0; time.Since(began) < time.Duration(seconds)*time.Second; i++ {
			var ops []any
			for j := range 100 {
				path := fmt.Sprintf("%s/dir-000/znode-%06d", root, (100*i+j)%500)
				ops = append(ops, bubble.Set(path, fmt.Sprint(i)))
			}
			if _, err := other.Multi(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
			if i%50 == 49 {
				v := view(t, k.Fresh) // ends, although changes go on
				if v.Zxid() <= zxid {
					t.Errorf("zxid %x after %x", v.Zxid(), zxid)
				}
				zxid = v.Zxid()
				if got := k.Status().State; got != cache.Synced {
					t.Errorf("state %v", got)
				}
			}
		}
		shows(t, w, k)
		if n := len(m.took()); n < 10_000*seconds/3 {
			t.Errorf("%d changes were seen", n)
		}
	})
}

// At the end of each round there is an event from before its first answer. Zxid
// must rise all the same: Synced waits for it, and so does Reach.
func TestSteadyChanges(t *testing.T) {
	path := func(i int) string { return fmt.Sprintf("%s/dir-000/znode-%06d", root, i) }
	for name, change := range map[string]func(c *framework.Client, i int) error{
		"of znodes that stay": func(c *framework.Client, i int) error {
			_, err := c.Set(context.Background(), path(i%500), nil, -1)
			return err
		},
		"of znodes that come and go": func(c *framework.Client, i int) error {
			_, err := c.Create(context.Background(), path(1000+i), nil, zk.FlagPersistent)
			return errors.Join(err, c.Delete(context.Background(), path(1000+i), -1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("reader"), w.Connect("writer")
				fill(t, other, 1, 500)
				const oneWay = 10 * time.Millisecond
				w.ClientNet("reader").Latency(oneWay, oneWay)
				var stop atomic.Bool
				ended := make(chan error, 1)
				go func() {
					var err error
					for i := 0; err == nil && !stop.Load(); i++ {
						time.Sleep(oneWay)
						err = change(other, i)
					}
					ended <- err
				}()
				defer stop.Store(true)
				reached := func(what string, get func(context.Context) (cache.View, error)) cache.View {
					t.Helper()
					began := time.Now()
					v := view(t, get)
					if took := time.Since(began); took > time.Second {
						t.Errorf("%s took %v", what, took)
					}
					return v
				}
				k := start(t, c)
				reached("Synced", k.Synced)
				for i := range 3 {
					stat := set(t, c, root, fmt.Sprint(i))
					v := reached("Reach", func(ctx context.Context) (cache.View, error) { return k.Reach(ctx, stat.Mzxid) })
					if n, _ := v.Get(root); string(n.Data) != fmt.Sprint(i) {
						t.Errorf("Reach of write %d shows %s", i, n.Data)
					}
				}
				stop.Store(true)
				if err := <-ended; err != nil {
					t.Error(err)
				}
				shows(t, w, k)
			})
		})
	}
}

// More paths change than are remembered: then all is read.
func TestManyPathsChangeWhileNothingIsRead(t *testing.T) {
	bubble.Usual(t, bubble.OneShot, bubble.SmallRequest) // needs multiRead, or recursive watches; makes large requests
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		create(t, other, root, "")
		k := synced(t, c)
		release := make(chan struct{})
		hold := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead}, testutil.Hold(release))
		defer w.Control(hold.Control)()
		create(t, other, root+"/first", "")
		bubble.Await(t, "a read", hold.Hit())
		const n = 101_000
		for i := 0; i < n; i += 1000 {
			var ops []any
			for j := range 1000 {
				ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/%06d", root, i+j), Acl: zk.WorldACL(zk.PermAll)})
			}
			if _, err := other.Multi(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
		}
		close(release)
		if v := view(t, k.Fresh); v.Len() != n+2 {
			t.Errorf("%d znodes, want %d", v.Len(), n+2)
		}
	})
}

// The events are lost on their way, as a server can lose them.
func TestLostEventsAreFoundByTheRecheck(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		fill(t, other, 5, 100)
		k := synced(t, c, cache.WithRecheck(10*time.Minute))
		m := follow(t, k)
		m.took()
		w.ClientNet("reader").LoseEvents(true)
		set(t, other, root+"/dir-001/znode-000001", "new")
		remove(t, other, root+"/dir-002")
		create(t, other, root+"/dir-003/new", "")
		remove(t, other, root+"/dir-004/znode-000004")
		create(t, other, root+"/dir-004/new", "")
		time.Sleep(25 * time.Minute)
		synctest.Wait()
		// The number of children of dir-004 is the same: its new one cannot be
		// noticed, until the old one was.
		if got, want := text(k.View()), truth(w, root); got != want {
			t.Errorf("the view is\n%s\nand the truth\n%s", got, want)
		}
	})
}

// A pass of rechecks reads each znode once, in several parts. The next one
// begins only after a pause.
func TestARecheckReadsEachZnodeOnce(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		fill(t, other, 1, 300)
		k := synced(t, c, cache.WithRecheck(10*time.Minute))
		var mu sync.Mutex
		read := map[string]int{}
		defer w.Control(func(r testutil.Request) testutil.Action {
			mu.Lock()
			defer mu.Unlock()
			for _, o := range r.Operations {
				read[o.Path]++
			}
			return testutil.Action{}
		})()
		for pass := 1; pass <= 2; pass++ {
			time.Sleep(10*time.Minute + time.Second)
			synctest.Wait()
			mu.Lock()
			for n := range k.View().All() {
				if read[n.Path] != pass {
					t.Errorf("%s was read %d times in %d passes", n.Path, read[n.Path], pass)
				}
			}
			mu.Unlock()
		}
	})
}

// So is the event that tells of the root's creation.
func TestALostRootIsFoundByTheRecheck(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		k := synced(t, c, cache.WithRecheck(10*time.Minute))
		w.ClientNet("reader").LoseEvents(true)
		create(t, other, root, "")
		create(t, other, root+"/a", "")
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if got, want := text(k.View()), truth(w, root); got != want {
			t.Errorf("the view is\n%s\nand the truth\n%s", got, want)
		}
	})
}

// Keeper sends the path of the watch (ClickHouse 115475). The read of it finds
// nothing new, which no true event can have: the cache uses other watches from
// then on.
func TestEventsOfAnotherPath(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		fill(t, other, 2, 2)
		k := synced(t, c)
		set(t, other, root, "its own path is right")
		shows(t, w, k)
		if n := w.WatchCount(); n != 2 {
			t.Errorf("%d watches", n)
		}
		create(t, other, root+"/dir-000/new", "")
		await(t, k, cache.Stale)
		shows(t, w, k)
		remove(t, other, root+"/dir-001")
		shows(t, w, k)
		if c.State() != framework.Connected {
			t.Errorf("the client is %v", c.State())
		}
	}, hidden.WithWatchPaths())
}

// A server answers pings, and not one of a cache's requests. The connection is
// given up, and the next one does without it.
func TestUnansweredRequests(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries, bubble.OneShot) // outlasts an outage; needs multiRead, or recursive watches
	for _, tt := range []struct {
		op   testutil.Op
		opts []cache.Option
	}{
		{testutil.OpAddWatch, nil},
		{testutil.OpMultiRead, nil},
		{testutil.OpGetData, []cache.Option{cache.WithOneShotWatches()}},
		{testutil.OpSetWatches, []cache.Option{cache.WithOneShotWatches()}},
	} {
		t.Run(tt.op.String(), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("reader"), w.Connect("writer")
				fill(t, other, 3, 3)
				fault := testutil.NewFault(testutil.Match{Op: tt.op}, testutil.Hold(nil))
				defer w.ClientNet("reader").Control(fault.Control)()
				began, session := time.Now(), w.SessionID(c)
				k := synced(t, c, tt.opts...)
				w.ClientNet("reader").Drop()
				await(t, k, cache.Stale)
				shows(t, w, k)
				if took := time.Since(began); took > 2*bubble.Timeout || fault.Count() != 1 {
					t.Errorf("it took %v; %d requests were not answered", took, fault.Count())
				}
				if w.SessionID(c) != session {
					t.Error("the session was lost")
				}
				k.Close()
				time.Sleep(2 * bubble.Timeout)
				noWatches(t, w)
			})
		})
	}
}

// oneShot are the ways to one-shot watches.
var oneShot = map[string]struct {
	ensemble []testutil.Option
	cache    []cache.Option
}{
	"refused":    {ensemble: []testutil.Option{hidden.WithoutLastingWatches()}},
	"before 3.6": {ensemble: []testutil.Option{testutil.WithoutNewOperations()}},
	"asked for":  {cache: []cache.Option{cache.WithOneShotWatches()}},
}

func TestOneShotWatches(t *testing.T) {
	for name, mode := range oneShot {
		t.Run(name, func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("reader"), w.Connect("writer")
				session := w.SessionID(c)
				k := synced(t, c, mode.cache...)
				fill(t, other, 3, 4)
				m := follow(t, k)
				shows(t, w, k)
				m.took()
				change := func(log string, do func()) {
					t.Helper()
					do()
					shows(t, w, k)
					wantLog(t, m, strings.Split(log, ", ")...)
				}
				for range 3 {
					change("added /config/new", func() { create(t, other, root+"/new", "1") })
					change("changed /config/new", func() { set(t, other, root+"/new", "2") })
					change("added /config/new/below", func() { create(t, other, root+"/new/below", "") })
					change("removed /config/new/below", func() { remove(t, other, root+"/new/below") })
					change("removed /config/new, added /config/new", func() {
						remove(t, other, root+"/new")
						create(t, other, root+"/new", "3")
					})
					change("removed /config/new", func() { remove(t, other, root+"/new") })
				}
				w.ClientNet("reader").Drop()
				await(t, k, cache.Stale)
				change("changed /config/dir-001", func() { set(t, other, root+"/dir-001", "4") })
				if n, znodes := w.WatchCount(), 16; n > 2*znodes+1 {
					t.Errorf("%d watches of %d znodes: %v", n, znodes, w.Watches())
				}
				remove(t, other, root)
				shows(t, w, k)
				m.took()
				change("added /config", func() { create(t, other, root, "") })
				if w.SessionID(c) != session {
					t.Error("the session was lost")
				}
			}, mode.ensemble...)
		})
	}
}

// What the package comment says of the cost.
func TestCostOfOneShotWatches(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		fill(t, other, 10, 100)
		var k *cache.Cache
		cost := func(what string, want int, do func()) {
			t.Helper()
			count := func() int {
				requests := w.Requests()
				return requests[testutil.OpGetData] + requests[testutil.OpGetChildren2] + requests[testutil.OpExists] + requests[testutil.OpMultiRead]
			}
			before := count()
			do()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := count() - before; got != want {
				t.Errorf("%s costs %d requests, want %d", what, got, want)
			}
		}
		cost("the first view", 2*1011, func() { k = synced(t, c, cache.WithOneShotWatches(), cache.WithRecheck(0)) })
		cost("an idle minute", 0, func() { time.Sleep(time.Minute) })
		cost("a change", 1, func() { set(t, other, root+"/dir-000/znode-000000", "1") })
		cost("a create", 3, func() { create(t, other, root+"/dir-000/new", "") })
		cost("a delete", 1, func() { removeLeaf(t, other, root+"/dir-000/new") })
		shows(t, w, k)
	})
}

// The clients that have lost a server do not read again all at once.
func TestReconnectsAreSpread(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		all, limit := 60, bubble.Timeout/3
		for range 3 {
			var caches []*cache.Cache
			for range all {
				caches = append(caches, synced(t, c))
			}
			w.ClientNet("reader").Drop()
			for _, k := range caches {
				await(t, k, cache.Stale)
			}
			began, early := time.Now(), 0
			for _, k := range caches {
				took := await(t, k, cache.Synced).Since.Sub(began)
				if took > limit+time.Second {
					t.Errorf("synced after %v", took)
				}
				if took < limit/2 {
					early++
				}
				k.Close()
			}
			if early < all/6 || early > all*5/6 {
				t.Errorf("%d of %d are synced within %v", early, all, limit/2)
			}
		}
	})
}

// narrow is a connection that receives so many bytes a second.
type narrow struct {
	net.Conn
	bytes int
}

func (c narrow) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), 4096)])
	time.Sleep(time.Second * time.Duration(n) / time.Duration(c.bytes))
	return n, err
}

// Heartbeats share the connection with the reads of a large tree. They get
// through on a slow link as well, at the first walk and after a reconnect.
func TestALargeTreeOnASlowLinkCostsNoLease(t *testing.T) {
	bubble.Usual(t, bubble.ShortTimeout) // has times of its own
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		network := w.ClientNet("reader")
		c := w.Connect("reader", framework.WithDialer(func(kind, address string, limit time.Duration) (net.Conn, error) {
			conn, err := network.Dial(kind, address, limit)
			return narrow{conn, 200_000}, err
		}))
		other := w.Connect("writer")
		create(t, other, root, "")
		for i := range 2000 {
			create(t, other, fmt.Sprintf("%s/%04d", root, i), strings.Repeat("a", 4000))
		}
		mutex, err := locks.NewMutex(c, "/lock")
		if err != nil {
			t.Fatal(err)
		}
		l := bubble.Acquire(t, t.Context(), mutex)
		began := time.Now()
		k := synced(t, c)
		if took := time.Since(began); took < 3*bubble.Timeout {
			t.Errorf("the walk took only %v", took)
		}
		network.Drop()
		await(t, k, cache.Stale)
		await(t, k, cache.Synced)
		if err := l.Err(); err != nil {
			t.Error(err)
		}
		bubble.Release(t, l)
	})
}
