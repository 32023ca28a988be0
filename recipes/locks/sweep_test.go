package locks_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A client sweeps the directories of locks that it has used, also those that
// others have made. Kazoo's clients do not make theirs again, and an ACL of
// somebody else's would not come again: these stay.
func TestSweepOfLocks(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		plain := framework.WithContainers(false)
		maker := w.ConnectNext(plain)
		guard := w.ConnectNext(plain, framework.WithACL(zk.DigestACL(zk.PermAll, "a", "b")[0], zk.WorldACL(zk.PermAll)[0]))
		must(t, maker.MakeContainerPath(t.Context(), "/app/made"))
		must(t, maker.MakeContainerPath(t.Context(), "/app/other"))
		must(t, guard.MakeContainerPath(t.Context(), "/app/guarded"))
		c := w.ConnectNext(plain, framework.WithSweep(time.Minute))
		for path, opts := range map[string][]locks.Option{
			"/app/made": nil, "/app/guarded": nil, "/app/own": nil, "/app/kazoo": {locks.WithLayout(locks.LayoutKazoo)},
		} {
			l, err := mutexAt(t, c, path, opts...).Acquire(t.Context())
			must(t, err)
			time.Sleep(5 * time.Minute)
			if !l.Held() || len(w.Children(path)) != 1 {
				t.Errorf("%s: held %v", path, l.Held())
			}
			must(t, l.Release(t.Context()))
		}
		time.Sleep(3 * time.Minute)
		if got := w.Children("/app"); !slices.Equal(got, []string{"guarded", "kazoo", "other"}) {
			t.Errorf("left: %v", got)
		}
	})
}

// Clients contend for locks whose directories are swept again and again, over
// lost connections and sessions: one holder at a time, tokens that grow, no
// error but the loss, and in the end nothing is left.
func TestContentionWhileSweeping(t *testing.T) {
	const idle, paths, rounds = time.Second, 3, 60
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var holders [paths]atomic.Int32
		var tokens [paths]recipes.Token
		var grants, gone int
		var mu sync.Mutex // guards tokens, grants and gone
		var all sync.WaitGroup
		for i := range 4 {
			name := fmt.Sprint("client ", i)
			c := w.Connect(name, framework.WithContainers(false), framework.WithSweep(idle))
			network := w.ClientNet(name)
			all.Go(func() {
				for r := range rounds {
					n := (i + r*(i+1)) % paths
					path := fmt.Sprint("/locks/", n)
					l, err := mutexAt(t, c, path).Acquire(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if holders[n].Add(1) != 1 {
						t.Error("two holders")
					}
					mu.Lock()
					if l.Token().Compare(tokens[n]) <= 0 {
						t.Errorf("token %v after %v", l.Token(), tokens[n])
					}
					tokens[n] = l.Token()
					grants++
					mu.Unlock()
					time.Sleep(time.Duration(r%20) * time.Millisecond)
					holders[n].Add(-1)
					_ = l.Release(t.Context())
					switch sess, err := c.Session(); (r + 5*i) % 20 {
					case 0:
						network.Drop()
					case 1:
						if err == nil {
							_ = w.ExpireSession(sess.ID()) // it may be over already
						}
					}
					time.Sleep(idle*time.Duration((r*(i+3))%10) + time.Duration(r*i)*time.Microsecond)
					mu.Lock()
					if !w.Exists(path) {
						gone++
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if grants != 4*rounds || gone < rounds/4 {
			t.Errorf("%d grants, %d times the directory was gone", grants, gone)
		}
		time.Sleep(20 * idle)
		if slices.ContainsFunc(w.Children("/"), func(name string) bool { return name != "zookeeper" }) {
			t.Errorf("left:\n%s", w.Tree())
		}
	}, testutil.WithMembers(3))
}

func must(t bubble.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
