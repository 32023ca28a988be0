package cache_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/hidden"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// yesterday keeps a snapshot of root, and returns its text.
func yesterday(t bubble.T, w *bubble.World, file string, opts ...cache.Option) string {
	t.Helper()
	c := w.ConnectNext()
	k := synced(t, c, append(opts, cache.WithSnapshot(file))...)
	k.Close()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return text(k.View())
}

// without returns a client that reaches no server until heal is called.
func without(t bubble.T, w *bubble.World, opts ...framework.Option) (c *framework.Client, heal func()) {
	t.Helper()
	net := w.ClientNet("without")
	net.Cut()
	c, err := w.Open("without", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, net.Heal
}

// A program starts without an ensemble, and has what the one before it has
// seen. That satisfies nobody who asks for what is there now. Once the ensemble
// answers only differences are told.
func TestStartFromASnapshot(t *testing.T) {
	for name, opts := range map[string][]cache.Option{"a recursive watch": nil, "one-shot watches": {cache.WithOneShotWatches()}} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				other := w.Connect("other")
				fill(t, other, 3, 2)
				create(t, other, root+"/large", strings.Repeat("x", 5000))
				file := filepath.Join(t.TempDir(), "snapshot")
				before, ended := yesterday(t, w, file, opts...), time.Now()
				if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
					t.Fatalf("the file is %v, %v", info, err)
				}
				time.Sleep(time.Hour)
				set(t, other, root+"/dir-000", "another")
				remove(t, other, root+"/dir-001")
				create(t, other, root+"/dir-003", "")
				removeLeaf(t, other, root+"/dir-002/znode-000000")
				last := set(t, other, root+"/dir-002", "later")
				create(t, other, root+"/dir-002/znode-000000", "again")

				c, heal := without(t, w)
				k := start(t, c, append(opts, cache.WithSnapshot(file))...)
				v, err := k.Known(t.Context())
				if got := text(v); got != before || text(k.View()) != before || err != nil {
					t.Fatalf("the view is\n%s, %v\nwant\n%s", got, err, before)
				}
				m := follow(t, k)
				if got := m.took(); len(got) != v.Len() {
					t.Errorf("the first batch has %d changes, want %d", len(got), v.Len())
				}
				asText := func(data []byte) (string, error) { return string(data), nil }
				value, dir := cache.NewValue(k, root+"/dir-000", asText), cache.NewDir(k, root+"/dir-002", asText)
				var values []string
				value.Listen(func(now string, _ error) { values = append(values, now) })
				if got, err := value.Get(); err != nil || got != "data of "+root+"/dir-000" {
					t.Errorf("the Value is %q, %v", got, err)
				}
				if all := dir.All(); len(all) != 2 || all[0].Value != "data of "+root+"/dir-002/znode-000000" {
					t.Errorf("the Dir has %+v", all)
				}
				time.Sleep(time.Hour)
				s := k.Status()
				if s.State != cache.Stale || !errors.Is(s.Err, cache.ErrSnapshot) || s.Since.Sub(ended).Abs() > time.Second || s.Zxid != 0 || v.Zxid() != 0 || s.Znodes != v.Len() {
					t.Errorf("the status is %+v, want STALE since %v", s, ended)
				}
				for name, ask := range map[string]func(context.Context) (cache.View, error){
					"Synced":     k.Synced,
					"Fresh":      k.Fresh,
					"Reach(0)":   func(ctx context.Context) (cache.View, error) { return k.Reach(ctx, 0) },
					"Reach(one)": func(ctx context.Context) (cache.View, error) { return k.Reach(ctx, last.Mzxid) },
				} {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if v, err := ask(ctx); err == nil {
						t.Errorf("%s has returned a view at %x", name, v.Zxid())
					}
					cancel()
				}

				heal()
				wantSynced := await(t, k, cache.Synced)
				if wantSynced.Err != nil {
					t.Error(wantSynced.Err)
				}
				shows(t, w, k)
				wantLog(t, m,
					"removed /config/dir-002/znode-000000", "removed /config/dir-001/znode-000001", "removed /config/dir-001/znode-000000", "removed /config/dir-001",
					"changed /config/dir-000", "changed /config/dir-002", "added /config/dir-002/znode-000000", "added /config/dir-003")
				if v := view(t, func(ctx context.Context) (cache.View, error) { return k.Reach(ctx, last.Mzxid) }); v.Zxid() < last.Mzxid {
					t.Errorf("Reach has returned %x, want %x", v.Zxid(), last.Mzxid)
				}
				if got, err := value.Get(); got != "another" || err != nil || !slices.Equal(values, []string{"data of " + root + "/dir-000", "another"}) {
					t.Errorf("the Value is %q, %v, after %q", got, err, values)
				}
				if all := dir.All(); len(all) != 2 || all[0].Value != "again" {
					t.Errorf("the Dir has %+v", all)
				}
				k.Close()
				noWatches(t, w)
			})
		})
	}
}

// The file has another root than the ensemble, or a znode above it is another
// one: a batch removes all that came from the file, and says why. Then comes
// what is there.
func TestASnapshotOfAnotherRoot(t *testing.T) {
	const below = "/above/root"
	for name, again := range map[string]struct {
		change  func(t bubble.T, w *bubble.World, c *framework.Client)
		another bool
		want    []string
	}{
		"the ensemble is restored": {func(_ bubble.T, w *bubble.World, _ *framework.Client) { w.Restore(w.Snapshot()) }, false, nil},
		"another ensemble has the same transactions": {
			func(_ bubble.T, w *bubble.World, _ *framework.Client) { w.Restore(hidden.Provisioned(w.Snapshot(), 0)) },
			true,
			[]string{"removed " + below + "/a", "removed " + below, "added " + below, "added " + below + "/a"},
		},
		"it is the same":    {func(bubble.T, *bubble.World, *framework.Client) {}, false, nil},
		"its data were set": {func(t bubble.T, _ *bubble.World, c *framework.Client) { set(t, c, below, "new") }, false, []string{"changed " + below}},
		"it is gone":        {func(t bubble.T, _ *bubble.World, c *framework.Client) { remove(t, c, below) }, false, []string{"removed " + below + "/a", "removed " + below}},
		"it is another one": {func(t bubble.T, _ *bubble.World, c *framework.Client) {
			remove(t, c, below)
			create(t, c, below, "")
		}, true, []string{"removed " + below + "/a", "removed " + below, "added " + below}},
		"what is above it is another one, and it is gone": {func(t bubble.T, _ *bubble.World, c *framework.Client) {
			remove(t, c, "/above")
			create(t, c, "/above", "")
		}, true, []string{"removed " + below + "/a", "removed " + below}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				other := w.Connect("other")
				for _, path := range []string{"/above", below, below + "/a"} {
					create(t, other, path, "")
				}
				file := filepath.Join(t.TempDir(), "snapshot")
				startAt(t, w.ConnectNext(), below, cache.WithSnapshot(file))
				time.Sleep(time.Second) // it is written
				again.change(t, w, other)

				c, heal := without(t, w)
				k := startAt(t, c, below, cache.WithSnapshot(file))
				m := follow(t, k)
				if got := m.took(); len(got) != 2 {
					t.Fatalf("the first batch has %q", got)
				}
				var emptied []cache.Status
				var panicked []string // what a function that always panics is told
				k.Listen(func(b cache.Batch) {
					panicked = append(panicked, fmt.Sprint(b.Status.State, b.View.Len()))
					panic("a listener")
				})
				begun := false
				k.Listen(func(b cache.Batch) {
					if begun && b.View.Len() == 0 && !b.View.Known() {
						emptied = append(emptied, b.Status)
					}
					begun = true
					time.Sleep(time.Second) // it is slow, and is told all the same
				})
				synctest.Wait()
				heal()
				await(t, k, cache.Synced)
				time.Sleep(10 * time.Second)
				wantLog(t, m, again.want...)
				if got, want := panicked[len(panicked)-1], fmt.Sprint(cache.Synced, k.View().Len()); got != want {
					t.Errorf("the function that panics was told %q, want %q last", panicked, want)
				}
				if again.another != (len(emptied) == 1) {
					t.Errorf("it was emptied with %+v", emptied)
				}
				for _, s := range emptied {
					if s.State != cache.Syncing || s.Err == nil || !strings.Contains(s.Err.Error(), "another root") {
						t.Errorf("it was emptied with %+v", s)
					}
				}
				k.Close()
				time.Sleep(10 * time.Second) // the slow one gets the last batch
			})
		})
	}
}

// The znode above the root is another one, and the root cannot be read yet:
// what the file has is shown until it can.
func TestASnapshotOfAnotherRootIsShownUntilThatIsRead(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		const below = root + "/dir-000"
		other := w.Connect("other")
		fill(t, other, 1, 1)
		file := filepath.Join(t.TempDir(), "snapshot")
		startAt(t, w.ConnectNext(), below, cache.WithSnapshot(file))
		time.Sleep(time.Second) // it is written
		remove(t, other, root)
		create(t, other, root, "")
		create(t, other, below, "")
		setACL := func(perms int32) {
			if _, err := other.SetACL(t.Context(), below, zk.WorldACL(perms), -1); err != nil {
				t.Fatal(err)
			}
		}
		setACL(zk.PermAdmin)
		c, heal := without(t, w)
		k := startAt(t, c, below, cache.WithSnapshot(file), cache.WithOneShotWatches()) // a recursive one is refused before anything is read
		m := follow(t, k)
		m.took()
		heal()
		time.Sleep(time.Minute)
		if v, err := k.Known(t.Context()); err != nil || v.Len() != 2 || !errors.Is(k.Status().Err, zk.ErrNoAuth) {
			t.Errorf("it shows\n%s, %v, %+v", text(v), err, k.Status())
		}
		wantLog(t, m)
		setACL(zk.PermAll)
		await(t, k, cache.Synced)
		wantLog(t, m, "removed "+below+"/znode-000000", "removed "+below, "added "+below)
	})
}

// A file that is not what a cache needs is ignored, with a line in the log, and
// replaced, unless it is something else altogether.
func TestASnapshotIsIgnored(t *testing.T) {
	bubble.Usual(t, bubble.Below) // reads full paths in the log
	write := func(data string) func(bubble.T, string) {
		return func(t bubble.T, file string) {
			if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		spoil  func(t bubble.T, file string) // nil: the file is a good one
		opts   []cache.Option
		path   string // default: root
		age    time.Duration
		reason string // empty: it is not ignored
		stays  bool
	}{
		"a good one":           {},
		"one that is young":    {age: 59 * time.Minute, opts: []cache.Option{cache.WithMaxSnapshotAge(time.Hour)}},
		"old":                  {age: 61 * time.Minute, opts: []cache.Option{cache.WithMaxSnapshotAge(time.Hour)}, reason: "WithMaxSnapshotAge"},
		"torn":                 {spoil: func(t bubble.T, file string) { _ = os.Truncate(file, 100) }, reason: "damaged"},
		"empty":                {spoil: write(""), reason: "damaged"},
		"not ours":             {spoil: write("[Unit]\nDescription=a service\n"), reason: "something else", stays: true},
		"a directory":          {spoil: func(t bubble.T, file string) { _, _ = os.Remove(file), os.Mkdir(file, 0o700) }, reason: "something else", stays: true},
		"of a later version":   {spoil: write("zkrecipes cache 7\nand more of it"), reason: "damaged"},
		"of another path":      {path: "/another", reason: "of the path " + root},
		"too large":            {opts: []cache.Option{cache.WithMaxBytes(1000)}, reason: "WithMaxBytes"},
		"made larger":          {spoil: func(t bubble.T, file string) { _ = os.Truncate(file, 1<<40) }, reason: "damaged"},
		"much too large":       {spoil: func(t bubble.T, file string) { _ = os.Truncate(file, 1<<40) }, opts: []cache.Option{cache.WithMaxBytes(1 << 20)}, reason: "WithMaxBytes"},
		"of another depth":     {opts: []cache.Option{cache.WithDepth(1)}, reason: "WithDepth"},
		"with data":            {opts: []cache.Option{cache.WithoutData()}, reason: "WithoutData"},
		"with a failed filter": {opts: []cache.Option{cache.WithFilter(func(string) bool { panic("filter") })}, reason: "filter"},
		"missing":              {spoil: func(t bubble.T, file string) { _ = os.Remove(file) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				other := w.Connect("other")
				fill(t, other, 4, 4)
				create(t, other, "/another", "")
				file := filepath.Join(t.TempDir(), "snapshot")
				yesterday(t, w, file)
				if tt.spoil != nil {
					tt.spoil(t, file)
				}
				time.Sleep(tt.age)
				core, logged := observer.New(zap.DebugLevel)
				c, _ := without(t, w, framework.WithLogger(zap.New(core)))
				if tt.path == "" {
					tt.path = root
				}
				k := startAt(t, c, tt.path, append(tt.opts, cache.WithSnapshot(file))...)
				time.Sleep(time.Second)
				lines := logged.FilterMessage("a snapshot is ignored").All()
				if known := k.View().Known(); known != (tt.reason == "" && name != "missing") || len(lines) > 0 != (tt.reason != "") {
					t.Errorf("shown: %t, log: %v", known, lines)
				}
				if len(lines) > 0 {
					if m := lines[0].ContextMap(); !strings.Contains(m["error"].(string), tt.reason) || m["file"] != file || m["path"] != c.Resolve(tt.path) {
						t.Errorf("the line has %v, want %q", m, tt.reason)
					}
				}
				k.Close()

				// The next one, with the ensemble, keeps a snapshot.
				before, _ := os.Stat(file)
				again := startAt(t, w.ConnectNext(), tt.path, cache.WithSnapshot(file))
				view(t, again.Synced)
				again.Close()
				if after, err := os.Stat(file); err != nil || os.SameFile(before, after) != tt.stays {
					t.Errorf("it is %v, %v, after %v", after, err, before)
				}
			})
		})
	}
}

// What another filter does not let through, or what may not be read, is not
// shown after a start, either.
func TestASnapshotIsFiltered(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		other := w.Connect("other")
		fill(t, other, 3, 2)
		if _, err := other.SetACL(t.Context(), root+"/dir-002", []zk.ACL{{Perms: zk.PermAdmin | zk.PermDelete, Scheme: "world", ID: "anyone"}}, -1); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "snapshot")
		yesterday(t, w, file)
		c, _ := without(t, w)
		k := start(t, c, cache.WithSnapshot(file), cache.WithFilter(func(path string) bool { return path != root+"/dir-000" }))
		if v := k.View(); v.Len() != 4 || !slices.Equal(slices.Collect(v.Unreadable(root)), []string{root + "/dir-002"}) {
			t.Errorf("the view is\n%s, unreadable %q", text(v), slices.Collect(v.Unreadable(root)))
		}
	})
}

// How often the file is written: once when the tree was read, after each
// change, but at the earliest after five seconds, and once an hour without a
// change. Never while the cache is Stale, except for what was shown before.
func TestHowOftenASnapshotIsWritten(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		other := w.Connect("other")
		create(t, other, root, "")
		file := filepath.Join(t.TempDir(), "snapshot")
		var last fs.FileInfo
		writes := func(want int, during func()) {
			t.Helper()
			n := 0
			look := func() {
				if info, err := os.Stat(file); err == nil && (last == nil || !os.SameFile(info, last)) {
					last, n = info, n+1
				}
			}
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Second):
						look()
					}
				}
			}()
			during()
			close(stop)
			<-done
			look()
			if n != want {
				t.Errorf("it was written %d times, want %d", n, want)
			}
		}
		k := start(t, w.Connect("program"), cache.WithSnapshot(file))
		writes(1, func() { time.Sleep(30 * time.Minute) })
		writes(1, func() { time.Sleep(time.Hour) })
		writes(1, func() { // a reconnect does not begin the hour anew
			w.ClientNet("program").Cut()
			time.Sleep(10 * time.Minute)
			w.ClientNet("program").Heal()
			time.Sleep(25 * time.Minute)
		})
		writes(11, func() {
			for range 500 {
				time.Sleep(100 * time.Millisecond)
				set(t, other, root, "again")
			}
			time.Sleep(time.Minute)
		})
		writes(0, func() {
			w.ClientNet("program").Cut()
			time.Sleep(3 * time.Hour)
		})
		writes(1, func() {
			set(t, other, root, "later")
			w.ClientNet("program").Heal()
			await(t, k, cache.Synced)
			time.Sleep(10 * time.Second)
		})
		writes(1, func() {
			time.Sleep(time.Minute)
			k.Close()
		})
	})
}

// Without its directory no snapshot is kept, and the cache works. The log says
// so about once a minute. With the directory one is kept.
func TestASnapshotThatCannotBeWritten(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		other := w.Connect("other")
		create(t, other, root, "")
		dir := filepath.Join(t.TempDir(), "later")
		core, logged := observer.New(zap.DebugLevel)
		k := synced(t, w.ConnectNext(framework.WithLogger(zap.New(core))), cache.WithSnapshot(filepath.Join(dir, "snapshot")))
		for range 600 {
			set(t, other, root, "again")
			time.Sleep(time.Second)
		}
		if n := logged.FilterMessage("a snapshot was not written").Len(); n < 9 || n > 11 {
			t.Errorf("%d lines", n)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
			t.Errorf("the directory has %v, %v", files, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		k.Close() // tries once more
		if s := k.Status().State; s != cache.Closed {
			t.Error(s)
		}
	})
}

// What a client of another namespace has kept is found, as long as the path at
// the ensemble is the same.
func TestASnapshotOfANamespace(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		if w.View != (bubble.View{}) {
			t.Skip("the view has a namespace already")
		}
		other := w.Connect("other")
		create(t, other, "/ns", "")
		create(t, other, "/ns/config", "")
		create(t, other, "/ns/config/a", "1")
		file := filepath.Join(t.TempDir(), "snapshot")
		startAt(t, w.ConnectNext(), "/ns/config", cache.WithSnapshot(file))
		time.Sleep(time.Second)
		c, heal := without(t, w)
		inside, err := c.Namespace("ns")
		if err != nil {
			t.Fatal(err)
		}
		k := start(t, inside, cache.WithSnapshot(file))
		if n, ok := k.View().Get("/config/a"); !ok || string(n.Data) != "1" {
			t.Errorf("it shows %+v, %t", n, ok)
		}
		m := follow(t, k)
		m.took()
		heal()
		await(t, k, cache.Synced)
		wantLog(t, m)
	})
}

// What a killed process has left beside the file is removed, and what another
// one may be writing stays.
func TestWhatIsLeftOfASnapshotIsRemoved(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		file := filepath.Join(t.TempDir(), "snapshot")
		for name, age := range map[string]time.Duration{"~1": 2 * time.Minute, "~2": 30 * time.Second, "~x": time.Hour} {
			at := time.Now().Add(-age)
			if err := errors.Join(os.WriteFile(file+name, nil, 0o600), os.Chtimes(file+name, at, at)); err != nil {
				t.Fatal(err)
			}
		}
		start(t, w.ConnectNext(), cache.WithSnapshot(file)).Close()
		left, err := filepath.Glob(file + "~*")
		if err != nil || !slices.Equal(left, []string{file + "~2", file + "~x"}) {
			t.Errorf("left: %q, %v", left, err)
		}
	})
}

// Bad values are errors of New.
func TestSnapshotOptions(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		for want, opt := range map[string]cache.Option{
			"no name of a file":    cache.WithSnapshot(""),
			"maximum snapshot age": cache.WithMaxSnapshotAge(7),
		} {
			_, err := cache.New(c, root, opt)
			wantErr(t, err, nil, want)
		}
	})
}

// Large data of a snapshot are not read again if they are as they were.
func TestLargeDataOfASnapshotAreNotReadAgain(t *testing.T) {
	bubble.Usual(t, bubble.SmallRequest, bubble.OneShot) // counts reads, of several in one request
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		other := w.Connect("other")
		create(t, other, root, "")
		for _, name := range []string{"/a", "/b", "/c"} {
			create(t, other, root+name, strings.Repeat("x", 500_000))
		}
		file := filepath.Join(t.TempDir(), "snapshot")
		yesterday(t, w, file)
		set(t, other, root+"/b", strings.Repeat("y", 500_000))
		c, heal := without(t, w)
		k := start(t, c, cache.WithSnapshot(file), cache.WithRecheck(0))
		w.ResetRequests()
		heal()
		await(t, k, cache.Synced)
		shows(t, w, k)
		if n := w.Cost()[testutil.OpExists]; n != 5 { // two for the identity, and the three large ones
			t.Errorf("%d stats were read", n)
		}
	})
}
