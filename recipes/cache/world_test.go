package cache_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
)

const root = "/config"

// Bubbles check their goroutines. This checks those of the examples.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a cache of root, which is closed with the test.
func start(t bubble.T, c *framework.Client, opts ...cache.Option) *cache.Cache {
	t.Helper()
	return startAt(t, c, root, opts...)
}

func startAt(t bubble.T, c *framework.Client, path string, opts ...cache.Option) *cache.Cache {
	t.Helper()
	k, err := cache.New(c, path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	k.Start()
	return k
}

// synced starts a cache and waits for its first view.
func synced(t bubble.T, c *framework.Client, opts ...cache.Option) *cache.Cache {
	t.Helper()
	k := start(t, c, opts...)
	view(t, k.Synced)
	return k
}

// view returns what Synced or Fresh return.
func view(t bubble.T, get func(context.Context) (cache.View, error)) cache.View {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bubble.Patience)
	defer cancel()
	v, err := get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func create(t bubble.T, c *framework.Client, path, data string) {
	t.Helper()
	if _, err := c.Create(context.Background(), path, []byte(data), zk.FlagPersistent); err != nil {
		t.Fatal(err)
	}
}

func set(t bubble.T, c *framework.Client, path, data string) *zk.Stat {
	t.Helper()
	stat, err := c.Set(context.Background(), path, []byte(data), -1)
	if err != nil {
		t.Fatal(err)
	}
	return stat
}

// remove removes a znode with all that is below it.
func remove(t bubble.T, c *framework.Client, path string) {
	t.Helper()
	names, _, err := c.Children(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		remove(t, c, path+"/"+name)
	}
	removeLeaf(t, c, path)
}

// removeLeaf removes a znode without children. It lists nothing.
func removeLeaf(t bubble.T, c *framework.Client, path string) {
	t.Helper()
	if err := c.Delete(context.Background(), path, -1); err != nil {
		t.Fatal(err)
	}
}

// fill creates a tree: dirs directories below root, with n znodes each.
func fill(t bubble.T, c *framework.Client, dirs, n int) {
	t.Helper()
	var ops []any
	flush := func() {
		if _, err := c.Multi(context.Background(), ops...); err != nil {
			t.Fatal(err)
		}
		ops = nil
	}
	put := func(path string) {
		ops = append(ops, &zk.CreateRequest{Path: path, Data: []byte("data of " + path), Acl: zk.WorldACL(zk.PermAll)})
		if len(ops) == 100 {
			flush()
		}
	}
	put(root)
	for i := range dirs {
		dir := fmt.Sprintf("%s/dir-%03d", root, i)
		put(dir)
		for j := range n {
			put(fmt.Sprintf("%s/znode-%06d", dir, j))
		}
	}
	if len(ops) > 0 {
		flush()
	}
}

// text shows a view, one znode a line.
func text(v cache.View) string {
	var b strings.Builder
	for n := range v.All() {
		fmt.Fprintf(&b, "%s=%s czxid=%d mzxid=%d version=%d\n", n.Path, n.Data, n.Stat.Czxid, n.Stat.Mzxid, n.Stat.Version)
	}
	return b.String()
}

// truth shows what is at the ensemble as text does.
func truth(w *bubble.World, path string) string {
	var b strings.Builder
	var walk func(path string)
	walk = func(path string) {
		stat, ok := w.Stat(path)
		if !ok {
			return
		}
		data, _ := w.Data(path)
		fmt.Fprintf(&b, "%s=%s czxid=%d mzxid=%d version=%d\n", path, data, stat.Czxid, stat.Mzxid, stat.Version)
		names := w.Children(path)
		slices.Sort(names)
		for _, name := range names {
			walk(strings.TrimSuffix(path, "/") + "/" + name)
		}
	}
	walk(path)
	return b.String()
}

// shows fails the test unless a fresh view of the cache shows the truth.
func shows(t bubble.T, w *bubble.World, k *cache.Cache) cache.View {
	t.Helper()
	v := view(t, k.Fresh)
	if got, want := text(v), truth(w, root); got != want {
		t.Fatalf("the view is\n%s\nand the truth\n%s", got, want)
	}
	return v
}

// mirror applies batches to a copy of the tree, and checks each of them.
type mirror struct {
	t      bubble.T
	nodes  map[string]cache.Node
	view   cache.View
	status cache.Status
	log    []string
}

// follow makes a mirror of a cache. It must be read when all is quiet.
func follow(t bubble.T, k *cache.Cache) *mirror {
	m := &mirror{t: t, nodes: map[string]cache.Node{}}
	t.Cleanup(k.Listen(m.take))
	return m
}

func (m *mirror) take(b cache.Batch) {
	if b.View.Zxid() < m.view.Zxid() {
		m.t.Errorf("zxid %x after %x", b.View.Zxid(), m.view.Zxid())
	}
	for _, c := range b.Changes {
		m.log = append(m.log, fmt.Sprintf("%v %s", c.Kind, c.Path()))
		at, held := m.nodes[c.Path()]
		switch {
		case held != (c.Old != nil) || held && at.Stat != c.Old.Stat:
			m.t.Errorf("%v %s: old %v, held %v", c.Kind, c.Path(), c.Old, at)
		case c.Kind == cache.Changed && (c.New.Stat.Czxid != at.Stat.Czxid || c.New.Stat.Mzxid <= at.Stat.Mzxid):
			m.t.Errorf("%s goes back, from %+v to %+v", c.Path(), at.Stat, c.New.Stat)
		}
		if c.New == nil {
			delete(m.nodes, c.Path())
		} else {
			m.nodes[c.Path()] = *c.New
		}
	}
	m.view, m.status = b.View, b.Status
	if want := maps.Collect(func(yield func(string, cache.Node) bool) {
		for n := range b.View.All() {
			if !yield(n.Path, n) {
				return
			}
		}
	}); !maps.EqualFunc(want, m.nodes, func(a, b cache.Node) bool { return a.Stat == b.Stat }) {
		m.t.Errorf("after the changes there is %v, want %v", m.nodes, want)
	}
}

// took returns what has changed since it was called before.
func (m *mirror) took() []string {
	synctest.Wait()
	log := m.log
	m.log = nil
	return log
}

func wantLog(t bubble.T, m *mirror, want ...string) {
	t.Helper()
	if got := m.took(); !slices.Equal(got, want) {
		t.Errorf("changes %q, want %q", got, want)
	}
}

func await(t bubble.T, k *cache.Cache, want cache.State) cache.Status {
	t.Helper()
	bubble.AwaitTrue(t, want.String(), func() bool { return k.Status().State == want })
	return k.Status()
}

// noWatches fails the test unless the server has no watch of the cache. Those
// of a single event are removed after a session timeout.
func noWatches(t bubble.T, w *bubble.World) {
	t.Helper()
	time.Sleep(2 * bubble.Timeout)
	synctest.Wait()
	if left := w.Watches(); len(left) > 0 {
		t.Errorf("watches are left: %v", left)
	}
}

func wantErr(t bubble.T, err error, is error, words ...string) {
	t.Helper()
	if err == nil || is != nil && !errors.Is(err, is) {
		t.Fatalf("error %v, want %v", err, is)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
}
