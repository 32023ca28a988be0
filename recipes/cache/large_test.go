package cache_test

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const large = 10_000 // bytes: a walk asks first whether such data have changed

// counted counts the bytes that a connection receives.
type counted struct {
	net.Conn
	bytes *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// fillLarge creates znodes below root with large data, and returns their paths.
func fillLarge(t *testing.T, c *framework.Client, n int) (paths []string) {
	t.Helper()
	create(t, c, root, strings.Repeat("r", large))
	for i := range n {
		paths = append(paths, fmt.Sprintf("%s/%04d", root, i))
		create(t, c, paths[i], strings.Repeat("a", large))
	}
	return paths
}

// A reconnect asks for the stat of large data, and for the data of what has
// changed.
func TestAReconnectReadsLargeDataOnlyIfTheyHaveChanged(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var bytes atomic.Int64
		network := w.ClientNet("reader")
		c := w.Connect("reader", framework.WithDialer(func(kind, address string, limit time.Duration) (net.Conn, error) {
			conn, err := network.Dial(kind, address, limit)
			if err != nil {
				return nil, err
			}
			return counted{conn, &bytes}, nil
		}))
		other := w.Connect("writer")
		n, changed := bubble.Few(200, 1000), 10
		paths := fillLarge(t, other, n)
		k := synced(t, c, cache.WithRecheck(0))
		if got := bytes.Load(); got < int64(n*large) {
			t.Errorf("%d bytes for the first view", got)
		}
		for _, end := range []func(){network.Drop, func() { w.Expire(c) }} {
			network.Cut()
			await(t, k, cache.Stale)
			for _, path := range paths[:changed] {
				set(t, other, path, strings.Repeat("b", large))
			}
			asked(w)
			bytes.Store(0)
			network.Heal()
			end()
			await(t, k, cache.Synced)
			got, requests := bytes.Load(), asked(w)
			t.Logf("a reconnect: %d bytes, %v", got, requests)
			if most := int64(changed*large + (n+1)*150); got > most {
				t.Errorf("%d bytes for a reconnect, want at most %d", got, most)
			}
			delete(requests, testutil.OpAddWatch)
			if requests[testutil.OpExists] != n+1 || requests[testutil.OpMultiRead] > 10 || len(requests) != 2 {
				t.Errorf("asked: %v", requests)
			}
			shows(t, w, k)
		}
	})
}

// Whatever has happened meanwhile to a znode with large data, the view is the
// truth in the end, and each change is told once.
func TestLargeDataAfterAReconnect(t *testing.T) {
	same, another, little := strings.Repeat("a", large), strings.Repeat("b", large), "c"
	znode := root + "/0001"
	for name, tt := range map[string]struct {
		away func(t *testing.T, other *framework.Client)
		want string
	}{
		"nothing":     {func(*testing.T, *framework.Client) {}, ""},
		"changed":     {func(t *testing.T, other *framework.Client) { set(t, other, znode, another) }, "changed " + znode},
		"set to same": {func(t *testing.T, other *framework.Client) { set(t, other, znode, same) }, "changed " + znode},
		"smaller":     {func(t *testing.T, other *framework.Client) { set(t, other, znode, little) }, "changed " + znode},
		"deleted":     {func(t *testing.T, other *framework.Client) { remove(t, other, znode) }, "removed " + znode},
		"made again": {func(t *testing.T, other *framework.Client) {
			remove(t, other, znode)
			create(t, other, znode, same)
		}, "removed " + znode + " added " + znode},
		"made again, with other data": {func(t *testing.T, other *framework.Client) {
			remove(t, other, znode)
			create(t, other, znode, another)
		}, "removed " + znode + " added " + znode},
		"a child": {func(t *testing.T, other *framework.Client) {
			create(t, other, znode+"/below", another)
			create(t, other, znode+"/below/it", little)
		}, "added " + znode + "/below added " + znode + "/below/it"},
		"another root": {func(t *testing.T, other *framework.Client) {
			remove(t, other, root)
			create(t, other, root, same)
		}, "removed " + root + "/0002 removed " + znode + " removed " + root + "/0000 removed " + root + " added " + root},
		"no root": {
			func(t *testing.T, other *framework.Client) { remove(t, other, root) },
			"removed " + root + "/0002 removed " + znode + " removed " + root + "/0000 removed " + root,
		},
	} {
		for _, expires := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", the session expires: ", expires), func(t *testing.T) {
				bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
					c, other := w.Connect("reader"), w.Connect("writer")
					fillLarge(t, other, 3)
					k := synced(t, c, cache.WithRecheck(0))
					m := follow(t, k)
					m.took()
					w.ClientNet("reader").Cut()
					await(t, k, cache.Stale)
					tt.away(t, other)
					if expires {
						w.Expire(c)
					}
					w.ClientNet("reader").Heal()
					await(t, k, cache.Synced)
					if got := strings.Join(m.took(), " "); got != tt.want {
						t.Errorf("told %q, want %q", got, tt.want)
					}
					shows(t, w, k)
				})
			})
		}
	}
}

// A znode changes, or goes, after its stat was read, and connections end
// between the two reads.
func TestLargeDataThatChangeWhileTheyAreRead(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	znode := root + "/0001"
	for name, change := range map[string]func(t *testing.T, w *bubble.World, other *framework.Client){
		"changed": func(t *testing.T, _ *bubble.World, other *framework.Client) {
			set(t, other, znode, strings.Repeat("d", large))
		},
		"deleted": func(t *testing.T, _ *bubble.World, other *framework.Client) { remove(t, other, znode) },
		"made again": func(t *testing.T, _ *bubble.World, other *framework.Client) {
			remove(t, other, znode)
			create(t, other, znode, strings.Repeat("a", large))
		},
		"cut off": func(_ *testing.T, w *bubble.World, _ *framework.Client) { w.ClientNet("reader").Drop() },
	} {
		for op, nth := range map[testutil.Op]int32{testutil.OpExists: 3, testutil.OpMultiRead: 2} { // the root has an exists and a list
			t.Run(fmt.Sprint(name, " before the ", op), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					c, other := w.Connect("reader"), w.Connect("writer")
					fillLarge(t, other, 3)
					k := synced(t, c, cache.WithRecheck(0))
					w.ClientNet("reader").Cut()
					await(t, k, cache.Stale)
					set(t, other, znode, strings.Repeat("b", large)) // so it is read
					held, release := make(chan struct{}), make(chan struct{})
					var requests atomic.Int32
					stop := w.ClientNet("reader").Control(func(r testutil.Request) testutil.Action {
						if r.Op != op || requests.Add(1) != nth {
							return testutil.Pass()
						}
						close(held)
						return testutil.Hold(release)
					})
					defer stop()
					w.ClientNet("reader").Heal()
					bubble.Await(t, "the request", held)
					change(t, w, other)
					close(release)
					shows(t, w, k)
				})
			})
		}
	}
}

// A stat can be read without the right to read the znode: the recheck finds
// that the right is lost.
func TestLargeDataThatMayNotBeReadAnyLonger(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("writer", framework.WithAuth("digest", []byte("owner:secret")))
		paths := fillLarge(t, other, 3)
		k := synced(t, c, cache.WithRecheck(time.Minute))
		w.ClientNet("reader").Cut()
		await(t, k, cache.Stale)
		if _, err := other.SetACL(t.Context(), paths[1], zk.DigestACL(zk.PermAll, "owner", "secret"), -1); err != nil {
			t.Fatal(err)
		}
		w.ClientNet("reader").Heal()
		await(t, k, cache.Synced)
		time.Sleep(2 * time.Minute)
		if _, ok := k.View().Get(paths[1]); ok || len(k.Status().Unreadable) != 1 {
			t.Errorf("shown: %t, %+v", ok, k.Status())
		}
	})
}
