package cache_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
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
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestChangesAreShown(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		fill(t, c, 3, 4)
		k := synced(t, c)
		m := follow(t, k)
		shows(t, w, k)
		if n := len(m.took()); n != 16 {
			t.Errorf("%d znodes were added, want 16", n)
		}
		other := w.Connect("writer")
		create(t, other, root+"/new", "1")
		shows(t, w, k)
		wantLog(t, m, "added /config/new")
		set(t, other, root+"/new", "2")
		shows(t, w, k)
		wantLog(t, m, "changed /config/new")
		remove(t, other, root+"/new")
		shows(t, w, k)
		wantLog(t, m, "removed /config/new")
		remove(t, other, root)
		shows(t, w, k)
		if got := m.took(); len(got) != 16 || got[15] != "removed /config" {
			t.Errorf("changes %q", got)
		}
		fill(t, other, 1, 1)
		shows(t, w, k)
		wantLog(t, m, "added /config", "added /config/dir-000", "added /config/dir-000/znode-000000")
		k.Close()
		noWatches(t, w)
	})
}

// What the package comment says of the cost. Kazoo's TreeCache reads all again
// at every reconnect, with two requests for a znode (Kazoo 664).
func TestCost(t *testing.T) {
	bubble.Usual(t, bubble.SmallRequest) // counts requests
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		dirs, each := 20, bubble.Few(100, 500)
		fill(t, other, dirs, each)
		w.ClientNet("reader").Latency(time.Millisecond, time.Millisecond)
		cost := func(what string, most int, do func()) {
			t.Helper()
			before := w.Requests()[testutil.OpMultiRead]
			do()
			synctest.Wait()
			got := w.Requests()[testutil.OpMultiRead] - before
			t.Logf("%s: %d requests", what, got)
			if got > most {
				t.Errorf("%s costs %d requests, more than %d", what, got, most)
			}
		}
		var k *cache.Cache
		cost("the first view", dirs*each/256+20, func() { k = synced(t, c, cache.WithRecheck(0)) })
		cost("an idle minute", 0, func() { time.Sleep(time.Minute) })
		cost("a change", 1, func() { set(t, other, root+"/dir-000/znode-000000", "1"); time.Sleep(time.Second) })
		cost("a create", 1, func() { create(t, other, root+"/dir-000/new", ""); time.Sleep(time.Second) })
		cost("a delete", 1, func() { remove(t, other, root+"/dir-000/new"); time.Sleep(time.Second) })
		cost("1000 changes at once", 20, func() {
			var ops []any
			for i := range 1000 {
				ops = append(ops, bubble.Set(fmt.Sprintf("%s/dir-%03d/znode-%06d", root, i%dirs, i/dirs), "2"))
			}
			if _, err := other.Multi(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		})
		cost("a delete of a directory", 20, func() { remove(t, other, root+"/dir-019"); time.Sleep(time.Second) })
		rechecked := synced(t, c, cache.WithRecheck(time.Hour))
		cost("a recheck", dirs*each/160, func() { time.Sleep(time.Hour) })
		rechecked.Close()
		cost("a reconnect", dirs*each/256+20, func() {
			w.ClientNet("reader").Drop()
			await(t, k, cache.Stale)
			view(t, k.Fresh)
		})
		shows(t, w, k)
		w.ResetRequests()
		for range 100 {
			k.View()
			k.Status()
			view(t, k.Synced)
		}
		if n := w.Total(); n != 0 {
			t.Errorf("views cost %d requests", n)
		}
	})
}

// A client that moves to another server because its list has changed pays what
// a reconnect costs, and its cache tells of no change.
func TestAMoveCostsAWalk(t *testing.T) {
	bubble.Usual(t, bubble.SmallRequest, bubble.Below) // counts requests; gives a list without a chroot
	for name, opts := range map[string][]cache.Option{"a recursive watch": nil, "one-shot watches": {cache.WithOneShotWatches()}} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.Connect("reader")
				fill(t, w.Connect("writer"), 5, 20)
				k := synced(t, c, append(opts, cache.WithRecheck(0))...)
				m := follow(t, k)
				m.took()
				cost := func(disconnect func()) map[testutil.Op]int {
					asked(w)
					disconnect()
					bubble.AwaitTrue(t, "the end of the connection", func() bool { return k.Status().State != cache.Synced })
					view(t, k.Fresh)
					all := asked(w)
					delete(all, testutil.OpExists) // what the ensemble is known by
					return all
				}
				drop := cost(w.ClientNet("reader").Drop)
				left := c.Server()
				move := cost(func() {
					others := slices.DeleteFunc(strings.Split(w.Servers(), ","), func(s string) bool { return s == left })
					if err := c.SetServers(t.Context(), strings.Join(others, ",")); err != nil {
						t.Fatal(err)
					}
				})
				if c.Server() == left || !maps.Equal(move, drop) || len(drop) == 0 {
					t.Errorf("a move from %s to %s costs %v, and a reconnect %v", left, c.Server(), move, drop)
				}
				wantLog(t, m)
			}, testutil.WithMembers(3))
		})
	}
}

func TestReadYourOwnWrite(t *testing.T) {
	bubble.Usual(t, bubble.ShortTimeout) // has times of its own
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		create(t, c, root, "")
		k := synced(t, c)
		reach := func(zxid int64) cache.View {
			t.Helper()
			return view(t, func(ctx context.Context) (cache.View, error) { return k.Reach(ctx, zxid) })
		}
		for i := range 20 {
			writer := c
			if i%2 == 1 {
				writer = other
			}
			stat := set(t, writer, root, fmt.Sprint(i))
			v := reach(stat.Mzxid)
			if n, _ := v.Get(root); string(n.Data) != fmt.Sprint(i) || v.Zxid() < stat.Mzxid {
				t.Errorf("write %d at %x: the view has %s at %x", i, stat.Mzxid, n.Data, v.Zxid())
			}
		}
		// A write outside of the tree has no event.
		create(t, other, "/outside", "")
		stat := set(t, other, "/outside", "1")
		reach(stat.Mzxid)
		w.ResetRequests()
		reach(stat.Mzxid)
		if n := w.Total(); n != 0 {
			t.Errorf("%d requests for what is shown already", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w.ResetRequests()
		_, err := k.Reach(ctx, stat.Mzxid+1000)
		wantErr(t, err, context.DeadlineExceeded, root)
		if n := w.Cost()[testutil.OpMultiRead]; n > 70 {
			t.Errorf("%d reads in a minute for a transaction that does not come", n)
		}
	}, testutil.WithMembers(3))
}

// What was committed before the call is shown, whatever the member lags.
func TestFreshOnALaggingMember(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		create(t, other, root, "old")
		k := synced(t, c)
		member := w.MemberOf(w.SessionID(c))
		w.Lag(member)
		for w.MemberOf(w.SessionID(other)) == member {
			if err := w.DropConnections(w.SessionID(other)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
		}
		set(t, other, root, "new")
		time.Sleep(100 * time.Millisecond)
		time.AfterFunc(2*time.Second, func() { w.Unlag(member) })
		v := view(t, k.Fresh)
		if n, _ := v.Get(root); string(n.Data) != "new" {
			t.Errorf("Fresh shows %s", n.Data)
		}
	}, testutil.WithMembers(3))
}

func TestDepthAndFilter(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		fill(t, c, 2, 2)
		paths := func(k *cache.Cache) (all []string) {
			t.Helper()
			for n := range view(t, k.Fresh).All() {
				all = append(all, strings.TrimPrefix(n.Path, root))
			}
			return all
		}
		none := synced(t, c, cache.WithDepth(0))
		one := synced(t, c, cache.WithDepth(1))
		odd := synced(t, c, cache.WithFilter(func(path string) bool { return !strings.HasSuffix(path, "0") }))
		want := func(of string, got []string, want string) {
			t.Helper()
			if text := strings.Join(got, " "); text != want {
				t.Errorf("%s: %q, want %q", of, text, want)
			}
		}
		want("depth 0", paths(none), "")
		want("depth 1", paths(one), " /dir-000 /dir-001")
		want("filter", paths(odd), " /dir-001 /dir-001/znode-000001")
		w.ResetRequests()
		create(t, c, root+"/dir-000/hidden1", "")
		set(t, c, root+"/dir-001/znode-000000", "")
		want("depth 0", paths(none), "")
		want("filter", paths(odd), " /dir-001 /dir-001/znode-000001")
		if n := w.Cost()[testutil.OpMultiRead]; n > 0 {
			t.Errorf("%d reads of what is not shown", n)
		}
		create(t, c, root+"/dir-001/new1", "")
		create(t, c, root+"/new1", "")
		create(t, c, root+"/new1/new1", "")
		want("depth 1", paths(one), " /dir-000 /dir-001 /new1")
		want("filter", paths(odd), " /dir-001 /dir-001/new1 /dir-001/znode-000001 /new1 /new1/new1")
		_, _ = c.Session()
		w.ClientNet("reader").Drop()
		await(t, odd, cache.Stale)
		want("filter", paths(odd), " /dir-001 /dir-001/new1 /dir-001/znode-000001 /new1 /new1/new1")
	})
}

func TestFilterThatMisbehaves(t *testing.T) {
	for name, filter := range map[string]func(string) bool{
		"panics":             func(string) bool { panic("no such thing") },
		"ends its goroutine": func(string) bool { runtime.Goexit(); return true },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.Connect("reader")
				create(t, c, root, "")
				calm := synced(t, c)
				k := synced(t, c, cache.WithFilter(filter))
				create(t, c, root+"/a", "")
				wantErr(t, await(t, k, cache.Failed).Err, nil, root+"/a", "filter")
				shows(t, w, calm)
				_, err := k.Fresh(t.Context())
				wantErr(t, err, nil, "filter")
			})
		})
	}
	t.Run("blocks", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c := w.Connect("reader")
			fill(t, c, 1, 1)
			release := make(chan struct{})
			calm := synced(t, c)
			k := start(t, c, cache.WithFilter(func(string) bool { <-release; return true }))
			time.Sleep(time.Hour)
			shows(t, w, calm)
			if got := k.Status().State; got != cache.Syncing {
				t.Errorf("state %v", got)
			}
			began := time.Now()
			k.Close()
			if took := time.Since(began); took > 0 {
				t.Errorf("Close took %v", took)
			}
			close(release)
		})
	})
}

func TestListenersThatMisbehave(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		create(t, c, root, "")
		k := synced(t, c)
		m := follow(t, k)
		m.took()
		release := make(chan struct{})
		var slow []cache.Batch
		k.Listen(func(b cache.Batch) {
			slow = append(slow, b)
			<-release
		})
		calls := 0
		k.Listen(func(cache.Batch) { calls++; panic("no such thing") })
		exits := 0
		k.Listen(func(cache.Batch) { exits++; runtime.Goexit() })
		synctest.Wait()
		for i := range 10 {
			create(t, c, fmt.Sprint(root, "/", i), "")
			shows(t, w, k)
			synctest.Wait()
		}
		remove(t, c, root+"/3")
		shows(t, w, k)
		synctest.Wait()
		if n := len(m.took()); n != 11 || calls != 12 || exits != 12 {
			t.Errorf("%d changes; the one that panics has %d calls, the one that exits %d", n, calls, exits)
		}
		began := time.Now()
		k.Close()
		if took := time.Since(began); took > 0 {
			t.Errorf("Close took %v", took)
		}
		close(release)
		synctest.Wait()
		if len(slow) != 2 || len(slow[1].Changes) != 9 || slow[1].Status.State != cache.Closed {
			t.Errorf("the slow one has %d batches", len(slow))
		}
		if m.status.State != cache.Closed || calls != 13 || exits != 13 {
			t.Errorf("the last batch: %v, %d, %d", m.status.State, calls, exits)
		}
	})
}

// A listener, a filter and a decoder may close the cache, or the client.
func TestCloseInACallback(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		fill(t, c, 1, 3)
		for what, in := range map[string]func(end func(*cache.Cache)){
			"a listener": func(end func(*cache.Cache)) {
				k := start(t, c)
				k.Listen(func(cache.Batch) { end(k) })
			},
			"a filter": func(end func(*cache.Cache)) {
				var k *cache.Cache
				k, err := cache.New(c, root, cache.WithFilter(func(string) bool { end(k); return true }))
				if err != nil {
					t.Fatal(err)
				}
				k.Start()
			},
			"a decoder": func(end func(*cache.Cache)) {
				k := start(t, c)
				cache.NewValue(k, root, func([]byte) (int, error) { end(k); return 0, nil })
			},
		} {
			ended := make(chan struct{}, 10)
			in(func(k *cache.Cache) { k.Close(); ended <- struct{}{} })
			bubble.Await(t, what, ended)
		}
		k := start(t, c)
		ended := make(chan struct{}, 10)
		k.Listen(func(cache.Batch) { _ = c.Close(); k.Close(); ended <- struct{}{} })
		bubble.Await(t, "a listener that closes the client", ended)
	})
}

func TestListenSaysWhatIsFirst(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		k, err := cache.New(c, root)
		if err != nil {
			t.Fatal(err)
		}
		var states []cache.State
		stop := k.Listen(func(b cache.Batch) { states = append(states, b.Status.State) })
		synctest.Wait()
		w.ClientNet("reader").Cut()
		k.Start()
		time.Sleep(time.Minute) // another reason for the same state is no batch
		w.ClientNet("reader").Heal()
		view(t, k.Synced)
		synctest.Wait()
		stop()
		stop()
		k.Close()
		k.Close()
		k.Start()
		synctest.Wait()
		if want := []cache.State{cache.Syncing, cache.Synced}; fmt.Sprint(states) != fmt.Sprint(want) {
			t.Errorf("states %v, want %v", states, want)
		}
		late := 0
		k.Listen(func(b cache.Batch) {
			late++
			if b.Status.State != cache.Closed {
				t.Errorf("state %v", b.Status.State)
			}
		})
		synctest.Wait()
		if late != 1 {
			t.Errorf("%d batches of a closed cache", late)
		}
	})
}

// Close at every request of a life leaves no watch and no goroutine.
func TestCloseAtEveryStep(t *testing.T) {
	for name, tt := range map[string]struct {
		opts  []cache.Option
		steps []int32
	}{
		"recursive watch":  {nil, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}},
		"one-shot watches": {[]cache.Option{cache.WithOneShotWatches()}, []int32{0, 1, 2, 3, 5, 70, 200, 368, 369, 370, 371, 372, 373, 374, 375, 376, 377, 378}},
	} {
		for _, step := range tt.steps {
			t.Run(fmt.Sprint(name, ", step ", step), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					c, other := w.Connect("reader"), w.Connect("writer")
					fill(t, other, 3, 60)
					w.ClientNet("reader").Latency(time.Millisecond, time.Millisecond)
					reader := w.SessionID(c)
					k := start(t, c, tt.opts...)
					var requests atomic.Int32
					var closing sync.WaitGroup
					defer w.Control(func(r testutil.Request) testutil.Action {
						if r.Session == reader && r.Op != testutil.OpPing && requests.Add(1) == step {
							closing.Go(k.Close)
						}
						return testutil.Pass()
					})()
					for i := range 5 {
						time.Sleep(20 * time.Millisecond)
						set(t, other, fmt.Sprintf("%s/dir-00%d", root, i%3), fmt.Sprint(i))
					}
					if step%2 == 0 { // otherwise the watches do not end with the connection
						w.ClientNet("reader").Drop()
					}
					time.Sleep(2 * bubble.Timeout)
					closing.Wait()
					k.Close()
					time.Sleep(2 * bubble.Timeout)
					noWatches(t, w)
				})
			})
		}
	}
}

// A cache that is closed has its one-shot watches removed, but not those that
// another one relies on, and what it has read of other znodes in vain.
func TestCloseOfOneShotWatches(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer")
		fill(t, other, 3, 20)
		first, second := synced(t, c, cache.WithOneShotWatches()), synced(t, c, cache.WithOneShotWatches())
		create(t, other, root+"/dir-000/new", "")
		shows(t, w, first)
		shows(t, w, second)
		first.Close()
		// Not a multiple: the second closes between two removals.
		time.Sleep(3*bubble.Timeout + bubble.Timeout/2)
		for i := range 3 {
			set(t, other, fmt.Sprintf("%s/dir-00%d/znode-000007", root, i), "new")
		}
		shows(t, w, second)
		second.Close()
		noWatches(t, w)
		if n := w.Requests()[testutil.OpRemoveWatches]; n != 65 {
			t.Errorf("%d requests to remove the watches of 65 znodes", n)
		}
	})
}

// A cache with one-shot watches keeps those that it needs, and no others of its
// client.
func TestOneShotWatchesThatNobodyNeeds(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		fill(t, c, 1, 2)
		k := synced(t, c, cache.WithOneShotWatches())
		before, s := w.WatchCount(), w.Session(c)
		for _, path := range []string{root + "/none", root + "/dir-000"} {
			_, _, changed, err := s.WatchExists(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			s.Unwatch(changed)
		}
		time.Sleep(3 * bubble.Timeout)
		if n := w.WatchCount(); n != before {
			t.Errorf("%d watches, and %d before: %v", n, before, w.Watches())
		}
		set(t, c, root+"/dir-000", "new")
		shows(t, w, k)
	})
}

// A cache that pauses after errors is closed with its client at once.
func TestClosedClientInAPause(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, err := w.OpenTo("reader", w.Servers()+"/nowhere")
		if err != nil {
			t.Fatal(err)
		}
		k := start(t, c)
		time.Sleep(time.Minute)
		began := time.Now()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if await(t, k, cache.Closed); time.Since(began) > 0 {
			t.Errorf("after %v", time.Since(began))
		}
	})
}

// Close ends what waits, also for a connection, or before it asks again.
func TestCloseEndsWaits(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		k := synced(t, c)
		w.ClientNet("reader").Cut()
		await(t, k, cache.Stale)
		fresh, asks := start(t, c), synced(t, w.ConnectNext())
		ended := make(chan error, 4)
		go func() { _, err := asks.Reach(t.Context(), 1<<60); ended <- err }()
		go func() { _, err := k.Fresh(t.Context()); ended <- err }()
		go func() { _, err := k.Reach(t.Context(), 1<<60); ended <- err }()
		go func() { _, err := fresh.Synced(t.Context()); ended <- err }()
		time.Sleep(time.Second)
		k.Close()
		fresh.Close()
		asks.Close()
		began := time.Now()
		for range 4 {
			wantErr(t, bubble.Await(t, "a call to end", ended), framework.ErrClosed, root)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("they took %v", took)
		}
	})
}

func TestClosedClient(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		create(t, c, root, "data")
		k := synced(t, c)
		m := follow(t, k)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		await(t, k, cache.Closed)
		m.took()
		if m.status.State != cache.Closed || k.View().Len() != 1 {
			t.Errorf("%+v", k.Status())
		}
		for _, get := range []func(context.Context) (cache.View, error){k.Synced, k.Fresh} {
			_, err := get(t.Context())
			wantErr(t, err, framework.ErrClosed, root)
		}
		_, err := k.Reach(t.Context(), 1)
		wantErr(t, err, framework.ErrClosed, root)
		late := start(t, c)
		_, err = late.Synced(t.Context())
		wantErr(t, err, framework.ErrClosed, root)
	})
}

func TestZeroAndWrongValues(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		for _, tt := range []struct {
			c    *framework.Client
			path string
			opt  cache.Option
			want string
		}{
			{nil, root, nil, "client: nil"},
			{c, "", nil, `path ""`},
			{c, "config", nil, `path "config": not absolute`},
			{c, "/a//b", nil, "empty name"},
			{c, root, nil, "option <nil>"},
			{c, root, cache.WithDepth(-1), "depth -1"},
			{c, root, cache.WithMaxBytes(0), "at most 0 bytes"},
			{c, root, cache.WithMaxBytes(-5), "at most -5 bytes"},
			{c, root, cache.WithRecheck(-time.Second), "recheck every -1s"},
		} {
			opts := []cache.Option{tt.opt}
			if tt.opt == nil && !strings.Contains(tt.want, "option") {
				opts = nil
			}
			_, err := cache.New(tt.c, tt.path, opts...)
			wantErr(t, err, nil, "cache: ", tt.want)
		}
		tiny := start(t, c, cache.WithMaxBytes(1))
		create(t, c, root, "")
		wantErr(t, await(t, tiny, cache.Failed).Err, nil, root, "more than 1 bytes")

		unstarted, err := cache.New(c, root)
		if err != nil {
			t.Fatal(err)
		}
		_, err = unstarted.Synced(t.Context())
		wantErr(t, err, nil, "not started")
		_, err = unstarted.Fresh(t.Context())
		wantErr(t, err, nil, "not started")
		unstarted.Close()

		var zero cache.Cache
		zero.Start()
		zero.Close()
		if zero.View().Len() != 0 || zero.Status().State != cache.Closed {
			t.Errorf("zero: %+v", zero.Status())
		}
		for _, get := range []func(context.Context) (cache.View, error){zero.Synced, zero.Fresh} {
			if _, err := get(t.Context()); err == nil {
				t.Error("a zero cache has a view")
			}
		}
		if _, err := zero.Reach(t.Context(), 1); err == nil {
			t.Error("a zero cache has a view")
		}
		batches := 0
		zero.Listen(func(cache.Batch) { batches++ })()
		synctest.Wait()
		if batches > 1 {
			t.Errorf("%d batches of a zero cache", batches)
		}
		var none cache.View
		if _, ok := none.Get(root); ok || none.Len() != 0 || none.Zxid() != 0 {
			t.Error("a zero view is not empty")
		}
		for range none.All() {
			t.Error("a zero view is not empty")
		}
	})
}

func TestValue(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		k, err := cache.New(c, root)
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		path := root + "/port"
		decodes := 0
		decode := func(data []byte) (int, error) {
			decodes++
			switch string(data) {
			case "panic":
				panic("no such thing")
			case "exit":
				runtime.Goexit()
			}
			var n int
			_, err := fmt.Sscan(string(data), &n)
			return n, err
		}
		port := cache.NewValue(k, path, decode)
		var heard []string
		defer port.Listen(func(n int, err error) { heard = append(heard, fmt.Sprint(n, err != nil)) })()
		want := func(n int, is error, words ...string) {
			t.Helper()
			synctest.Wait()
			got, err := port.Get()
			if got != n {
				t.Errorf("value %d, want %d", got, n)
			}
			if len(words) > 0 {
				wantErr(t, err, is, words...)
			} else if err != nil {
				t.Error(err)
			}
		}
		want(0, nil, "no view yet")
		k.Start()
		view(t, k.Synced)
		want(0, zk.ErrNoNode, path)
		create(t, c, root, "")
		create(t, c, path, "bad")
		shows(t, w, k)
		want(0, nil, "decode "+path)
		for _, data := range []string{"80", "bad", "81", "panic", "exit", "82"} {
			set(t, c, path, data)
			shows(t, w, k)
			synctest.Wait()
			switch data {
			case "bad":
				want(80, nil, "decode "+path)
			case "panic":
				want(81, nil, "decode "+path, "no such thing")
			case "exit":
				want(81, nil, "decode "+path, "goroutine")
			default:
				n := 0
				fmt.Sscan(data, &n)
				want(n, nil)
			}
		}
		decoded := decodes
		for range 10 {
			want(82, nil)
		}
		set(t, c, root, "another znode")
		shows(t, w, k)
		want(82, nil)
		if decodes != decoded || decodes != 7 {
			t.Errorf("%d decodes of 7 states", decodes)
		}
		remove(t, c, path)
		shows(t, w, k)
		want(82, zk.ErrNoNode, path)
		if got, want := strings.Join(heard, ", "), "0true, 0true, 80false, 80true, 81false, 81true, 81true, 82false, 82true"; strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("heard %s, want %s", got, want)
		}
		_, err = cache.NewValue(k, "/elsewhere", decode).Get()
		wantErr(t, err, nil, `"/elsewhere" is outside`)
	})
}

// A decoder that blocks delays its own Value, and neither the cache nor others.
func TestADecoderThatBlocks(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		fill(t, c, 1, 3)
		k := synced(t, c)
		release := make(chan struct{})
		decode := func(data []byte) (string, error) {
			if string(data) == "block" {
				<-release
			}
			return string(data), nil
		}
		blocked, all := cache.NewValue(k, root, decode), cache.NewDir(k, root+"/dir-000", decode)
		set(t, c, root, "block")
		set(t, c, root+"/dir-000/znode-000001", "new")
		shows(t, w, k)
		if entries := all.All(); len(entries) != 3 || entries[1].Value != "new" {
			t.Errorf("entries %v", entries)
		}
		time.Sleep(time.Hour)
		k.Close()
		close(release)
		if value, err := blocked.Get(); value != "block" || err != nil {
			t.Errorf("%q, %v", value, err)
		}
	})
}

// A Value never says that there is no znode if the cache does not know: the
// session may not read it, it is too deep, or the data were not read.
func TestValueOfWhatIsNotKnown(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		owner := w.Connect("owner", framework.WithAuth("digest", []byte("owner:secret")))
		fill(t, owner, 2, 2)
		shut, below := root+"/dir-000", root+"/dir-000/znode-000000"
		grant := func(acl []zk.ACL) {
			t.Helper()
			if _, err := owner.SetACL(t.Context(), shut, acl, -1); err != nil {
				t.Fatal(err)
			}
		}
		grant(zk.DigestACL(zk.PermAll, "owner", "secret"))
		value := func(k *cache.Cache, path string) *cache.Value[string] {
			return cache.NewValue(k, path, func(data []byte) (string, error) { return "<" + string(data) + ">", nil })
		}
		want := func(k *cache.Cache, path string, is error, words ...string) {
			t.Helper()
			got, err := value(k, path).Get()
			if got != "" {
				t.Errorf("%s: %q", path, got)
			}
			wantErr(t, err, is, words...)
		}
		k := synced(t, c, cache.WithRecheck(time.Minute))
		want(k, shut, zk.ErrNoAuth, shut)
		want(k, below, zk.ErrNoAuth, shut)
		want(k, root+"/dir-001/none", zk.ErrNoNode, "/dir-001/none")
		grant(zk.WorldACL(zk.PermAll))
		time.Sleep(3 * time.Minute)
		if got, err := value(k, below).Get(); got != "<data of "+below+">" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		want(synced(t, c, cache.WithDepth(1)), below, nil, "is outside")
		without := synced(t, c, cache.WithoutData())
		want(without, root, nil, "WithoutData")
		for _, e := range cache.NewDir(without, root, func(data []byte) (string, error) { return string(data), nil }).All() {
			wantErr(t, e.Err, nil, "WithoutData")
		}
	})
}

// What ends without a view says nothing of the znodes.
func TestNoValueWithoutAView(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		create(t, c, root, "data")
		failing := start(t, c, cache.WithMaxBytes(1))
		await(t, failing, cache.Failed)
		closing, err := cache.New(c, root)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range []*cache.Cache{failing, closing} {
			value := cache.NewValue(k, root, func(data []byte) (string, error) { return string(data), nil })
			defer value.Listen(func(s string, err error) { t.Errorf("a value %q, %v", s, err) })()
			dir := cache.NewDir(k, root, func(data []byte) (string, error) { return string(data), nil })
			defer dir.Listen(func(all []cache.Entry[string]) { t.Errorf("entries %v", all) })()
			synctest.Wait()
			k.Close()
			synctest.Wait()
		}
	})
}

func TestDir(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		create(t, c, root, "")
		create(t, c, root+"/services", "")
		k := synced(t, c)
		decodes := 0
		dir := cache.NewDir(k, root+"/services", func(data []byte) (string, error) {
			decodes++
			if len(data) == 0 {
				return "", errors.New("empty")
			}
			return strings.ToUpper(string(data)), nil
		})
		heard := 0
		defer dir.Listen(func([]cache.Entry[string]) { heard++ })()
		want := func(want string) {
			t.Helper()
			shows(t, w, k)
			synctest.Wait()
			var all []string
			for _, e := range dir.All() {
				all = append(all, fmt.Sprintf("%s=%s %v", e.Node.Path[len(root+"/services/"):], e.Value, e.Err != nil))
			}
			if got := strings.Join(all, ", "); got != want {
				t.Errorf("children %s, want %s", got, want)
			}
		}
		want("")
		create(t, c, root+"/services/b", "one")
		want("b=ONE false")
		create(t, c, root+"/services/a", "two")
		create(t, c, root+"/services/a/deeper", "three")
		create(t, c, root+"/other", "four")
		want("a=TWO false, b=ONE false")
		set(t, c, root+"/services/b", "")
		want("a=TWO false, b=ONE true")
		set(t, c, root+"/services/b", "five")
		want("a=TWO false, b=FIVE false")
		remove(t, c, root+"/services/a")
		want("b=FIVE false")
		if decodes != 4 || heard != 6 {
			t.Errorf("%d decodes, heard %d times", decodes, heard)
		}
	})
}

func TestAListenerStopsBehind(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		fill(t, c, 1, 1)
		k := synced(t, c)
		bubble.StoppedBehind(t, func(hear func()) func() { return k.Listen(func(cache.Batch) { hear() }) }, func() {
			set(t, c, root, "changed")
			view(t, k.Fresh)
		})
	})
}
