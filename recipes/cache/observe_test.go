package cache_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// observed collects what an observer gets about caches, one event a line.
type observed struct {
	t    bubble.T
	view bubble.View // of the paths

	mu     sync.Mutex // guards what follows
	id     uint64
	events []string
	last   cache.Read
}

func (o *observed) observer() cache.Observer {
	return cache.Observer{
		StateChanged: func(c cache.StateChange) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.of(c.Cache)
			if time.Since(c.At) < 0 || c.To != "synced" && c.To != "syncing" && c.To != "closed" && c.Err == nil {
				o.t.Errorf("%+v", c)
			}
			o.events = append(o.events, c.From+">"+c.To)
		},
		Read: func(r cache.Read) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.of(r.Cache)
			if r.Took < 0 || time.Since(r.Began) < r.Took {
				o.t.Errorf("%+v", r)
			}
			o.last = r
			line := fmt.Sprintf("%s +%d ~%d -%d", r.Reason, r.Added, r.Changed, r.Removed)
			if r.Err != nil {
				line += " failed"
			}
			o.events = append(o.events, line)
		},
	}
}

func (o *observed) of(c cache.Info) {
	if o.id == 0 {
		o.id = c.ID
	}
	if c.ID != o.id || o.view.Path(c.Path) != root || c.Label != "settings" {
		o.t.Errorf("%+v", c)
	}
}

// want compares what has come since it was called before.
func (o *observed) want(want ...string) {
	o.t.Helper()
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.events, want) {
		o.t.Errorf("events %q, want %q", o.events, want)
	}
	o.events = nil
}

// Observers get each state of a cache once, and each time that it reads, with
// what has changed by that.
func TestObserversOfACache(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		other := w.Connect("writer")
		fill(t, other, 2, 3)
		o := &observed{t: t, view: w.View}
		c := w.Connect("reader", cache.WithObserver(o.observer()))
		never, err := cache.New(c, root, recipes.WithLabel("settings"))
		if err != nil {
			t.Fatal(err)
		}
		never.Close()
		o.want()

		k := synced(t, c, recipes.WithLabel("settings"), cache.WithRecheck(time.Hour))
		o.want(">syncing", "first +9 ~0 -0", "syncing>synced")
		status := k.Status()
		if got := o.last; got.Znodes != 9 || got.Bytes != status.Bytes || got.Zxid != status.Zxid || got.Began.IsZero() {
			t.Errorf("%+v, and the status %+v", got, status)
		}
		create(t, other, root+"/new", "")
		o.want("events +1 ~0 -0")
		set(t, other, root+"/new", "data")
		o.want("events +0 ~1 -0")
		w.ClientNet("reader").Cut()
		await(t, k, cache.Stale)
		o.want("synced>stale")
		remove(t, other, root+"/new")
		create(t, other, root+"/new", "")
		w.ClientNet("reader").Heal()
		await(t, k, cache.Synced)
		o.want("reconnect +1 ~0 -1", "stale>synced")
		view(t, k.Fresh)
		o.want()
		create(t, other, "/elsewhere", "")
		stat, _ := w.Stat("/elsewhere")
		if _, err := k.Reach(t.Context(), stat.Czxid); err != nil {
			t.Fatal(err)
		}
		o.want("reach +0 ~0 -0")
		time.Sleep(time.Hour + time.Second)
		o.want() // a recheck finds nothing
		loses(w, func() { set(t, other, root+"/new", "lost") })
		time.Sleep(time.Hour + time.Second)
		o.want("recheck +0 ~1 -0")
		k.Close()
		k.Close()
		o.want("synced>closed")
		if err := other.Delete(t.Context(), "/elsewhere", -1); err != nil {
			t.Fatal(err)
		}
	})
}

// A cache that is past its limit says which walk has found that, and that it
// has failed.
func TestObserversOfACacheThatFails(t *testing.T) {
	bubble.Usual(t, bubble.SmallRequest) // makes large requests
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		other := w.Connect("writer")
		create(t, other, root, "")
		o := &observed{t: t, view: w.View}
		core, logged := observer.New(zap.DebugLevel)
		c := w.Connect("reader", cache.WithObserver(o.observer()), framework.WithLogger(zap.New(core)))
		k := synced(t, c, recipes.WithLabel("settings"), cache.WithMaxBytes(10_000))
		o.want(">syncing", "first +1 ~0 -0", "syncing>synced")
		create(t, other, root+"/large", strings.Repeat("x", 20_000))
		await(t, k, cache.Failed)
		o.want("events +0 ~0 -0 failed", "size +0 ~0 -0 failed", "synced>failed")
		k.Close()
		o.want("failed>closed")
		wantLine(t, logged, "a cache has failed", map[string]any{"path": w.View.Full(root), "label": "settings"})
	})
}

// wantLine fails the test unless the only line with this message has these
// fields.
func wantLine(t bubble.T, logged *observer.ObservedLogs, message string, want map[string]any) {
	t.Helper()
	synctest.Wait()
	lines := logged.FilterMessage(message).All()
	if len(lines) != 1 {
		t.Fatalf("%d lines %q", len(lines), message)
	}
	got := lines[0].ContextMap()
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: %s is %v, want %v", message, name, got[name], value)
		}
	}
}

// The log has the states of a cache, but not what follows from a lost
// connection, which it has by the client; and each walk.
func TestLogOfACache(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		other := w.Connect("writer")
		fill(t, other, 1, 1)
		core, logged := observer.New(zap.DebugLevel)
		c := w.Connect("reader", framework.WithLogger(zap.New(core)))
		k := synced(t, c)
		wantLine(t, logged, "cache changed", map[string]any{"path": w.View.Full(root), "label": w.View.Full(root), "from": "SYNCING", "to": "SYNCED"})
		status := k.Status()
		wantLine(t, logged, "a cache has read its tree", map[string]any{
			"path": w.View.Full(root), "label": w.View.Full(root), "reason": "first", "znodes": int64(3), "bytes": status.Bytes, "zxid": fmt.Sprintf("0x%x", status.Zxid),
		})
		logged.TakeAll()
		set(t, other, root, "events are not logged")
		w.ClientNet("reader").Cut()
		await(t, k, cache.Stale)
		w.ClientNet("reader").Heal()
		await(t, k, cache.Synced)
		wantLine(t, logged, "a cache has read its tree", map[string]any{"reason": "reconnect"})
		k.Close()
		wantLine(t, logged, "cache changed", map[string]any{"from": "SYNCED", "to": "CLOSED"})
	})
}

// A function of an observer may block, panic or end its goroutine. The cache,
// and the other observers, do not wait for it.
func TestObserversThatMisbehave(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	never := make(chan struct{})
	for name, misbehave := range map[string]func(){
		"panics":             func() { panic("observer") },
		"ends its goroutine": runtime.Goexit,
		"blocks":             func() { <-never },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				never = make(chan struct{})
				defer close(never)
				other := w.Connect("writer")
				fill(t, other, 1, 1)
				o := &observed{t: t, view: w.View}
				c := w.Connect("reader", cache.WithObserver(cache.Observer{
					StateChanged: func(cache.StateChange) { misbehave() },
					Read:         func(cache.Read) { misbehave() },
				}), cache.WithObserver(o.observer()))
				k := synced(t, c, recipes.WithLabel("settings"))
				set(t, other, root, "changed")
				shows(t, w, k)
				w.ClientNet("reader").Cut()
				await(t, k, cache.Stale)
				w.ClientNet("reader").Heal()
				shows(t, w, k)
				k.Close()
				o.want(">syncing", "first +3 ~0 -0", "syncing>synced", "events +0 ~1 -0", "synced>stale", "reconnect +0 ~0 -0", "stale>synced", "synced>closed")
			})
		})
	}
}

// Observers can tell the caches of a program apart, also those of one path.
func TestEachCacheHasItsID(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var mu sync.Mutex
		ids := map[uint64]bool{}
		client := w.Connect("a", cache.WithObserver(cache.Observer{StateChanged: func(c cache.StateChange) {
			mu.Lock()
			defer mu.Unlock()
			ids[c.Cache.ID] = true
		}}))
		for range 3 {
			c, err := cache.New(client, root)
			if err != nil {
				t.Fatal(err)
			}
			c.Start()
			defer c.Close()
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(ids) != 3 {
			t.Errorf("ids of three caches: %v", ids)
		}
	})
}

// A cache whose reads fail after a reconnect is Stale until one succeeds.
func TestStaleUntilAReadSucceeds(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		fill(t, w.ConnectNext(), 1, 1)
		o := &observed{t: t, view: w.View}
		k := synced(t, w.Connect("reader", cache.WithObserver(o.observer())), recipes.WithLabel("settings"))
		o.want(">syncing", "first +3 ~0 -0", "syncing>synced")
		net := w.ClientNet("reader")
		net.Cut()
		await(t, k, cache.Stale)
		stop := net.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpGetData || r.Op == testutil.OpMultiRead {
				return testutil.Fail(testutil.CodeNoAuth)
			}
			return testutil.Pass()
		})
		net.Heal()
		time.Sleep(time.Minute)
		stop()
		await(t, k, cache.Synced)
		synctest.Wait()
		o.mu.Lock()
		defer o.mu.Unlock()
		var states []string
		for _, e := range o.events {
			if strings.Contains(e, ">") {
				states = append(states, e)
			}
		}
		if !slices.Equal(states, []string{"synced>stale", "stale>synced"}) || !slices.Contains(o.events, "reconnect +0 ~0 -0 failed") {
			t.Errorf("%q", o.events)
		}
	})
}
