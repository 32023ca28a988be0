package inspect_test

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// ensure returns a recipe without the error of its constructor.
func ensure[T any](recipe T, err error) func(t bubble.T) T {
	return func(t bubble.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return recipe
	}
}

func mutex(t bubble.T, c *framework.Client, path string) recipes.Acquirer {
	t.Helper()
	return ensure(locks.NewMutex(c, path, recipes.WithData([]byte("owner of "+path))))(t)
}

func shared(t bubble.T, c *framework.Client, path string) *rwlock.RWLock {
	t.Helper()
	return ensure(rwlock.New(c, path))(t)
}

func permits(t bubble.T, c *framework.Client, path string, n int) *semaphore.Semaphore {
	t.Helper()
	return ensure(semaphore.New(c, path, n))(t)
}

// waiter starts an Acquire, which is canceled when the test ends, and waits
// until it stands in line, as the n-th contender.
func waiter(t *testing.T, w *bubble.World, a recipes.Acquirer, dir string, n int) (cancel func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	granted := bubble.Acquiring(ctx, a)
	w.InLine(dir, n)
	bubble.Pending(t, granted)
	end := sync.OnceFunc(func() {
		stop()
		if g := <-granted; g.Err == nil {
			_ = g.Lease.Release(context.Background()) // it may have been lost meanwhile
		}
	})
	t.Cleanup(end)
	return end
}

// plant creates znodes of any client, with everything above them. A znode whose
// name ends in a digit is ephemeral.
func plant(t *testing.T, c *framework.Client, paths ...string) {
	t.Helper()
	for _, at := range paths {
		at, data, _ := strings.Cut(at, "=")
		for i := range at {
			if i > 0 && at[i] == '/' {
				_, _ = c.Create(t.Context(), at[:i], nil, 0) // it may exist
			}
		}
		flags := int32(0)
		if last := at[len(at)-1]; last >= '0' && last <= '9' {
			flags = zk.FlagEphemeral
		}
		if _, err := c.Create(t.Context(), at, []byte(data), flags); err != nil {
			t.Fatal(at, err)
		}
	}
}

// id returns a protection for a znode's name.
func id(n int) string { return fmt.Sprintf("_c_2f1b6a5e-9c0d-4e4f-8a39-%012d-", n) }

// fake is a tree of znodes in memory. It counts requests.
type fake struct {
	mu       sync.Mutex
	nodes    map[string]fakeNode
	requests int
	under    int // way
	most     int
	before   func(op, path string) error // called before each request
}

type fakeNode struct {
	data  string
	owner int64
	czxid int64
}

func (f *fake) enter(op, path string) error {
	f.mu.Lock()
	f.requests++
	f.under++
	f.most = max(f.most, f.under)
	before := f.before
	f.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(op, path)
}

func (f *fake) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.under--
}

func (f *fake) Get(_ context.Context, at string) ([]byte, *zk.Stat, error) {
	defer f.leave()
	if err := f.enter("get", at); err != nil {
		return nil, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.nodes[at]
	if !ok {
		return nil, nil, zk.ErrNoNode
	}
	return []byte(n.data), &zk.Stat{EphemeralOwner: n.owner, Czxid: n.czxid}, nil
}

func (f *fake) Children(_ context.Context, at string) ([]string, *zk.Stat, error) {
	defer f.leave()
	if err := f.enter("list", at); err != nil {
		return nil, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.nodes[at]; !ok && at != "/" {
		return nil, nil, zk.ErrNoNode
	}
	var names []string
	for other := range f.nodes {
		if path.Dir(other) == at && other != "/" {
			names = append(names, path.Base(other))
		}
	}
	slices.Sort(names)
	return names, &zk.Stat{}, nil
}

// add creates a znode and everything above it.
func (f *fake) add(at, data string, owner int64) {
	if f.nodes == nil {
		f.nodes = map[string]fakeNode{}
	}
	for dir := path.Dir(at); dir != "/"; dir = path.Dir(dir) {
		if _, ok := f.nodes[dir]; !ok {
			f.nodes[dir] = fakeNode{}
		}
	}
	f.nodes[at] = fakeNode{data, owner, int64(len(f.nodes)) + 1}
}

// plantMany creates n mutexes below /locks, each held by c.
func plantMany(t *testing.T, c *framework.Client, n int) {
	t.Helper()
	plant(t, c, "/locks/x")
	const together = 500
	for i := 0; i < n; i += together {
		var ops []any
		for j := i; j < min(i+together, n); j++ {
			at := fmt.Sprintf("/locks/%05d", j)
			ops = append(ops, &zk.CreateRequest{Path: at}, &zk.CreateRequest{Path: at + "/" + id(j) + "lock-0000000000", Flags: zk.FlagEphemeral})
		}
		if _, err := c.Multi(t.Context(), ops...); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Delete(t.Context(), "/locks/x", -1); err != nil {
		t.Fatal(err)
	}
}
