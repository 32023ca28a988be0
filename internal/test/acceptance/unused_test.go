package acceptance_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// makers are the calls that make directories for what they create.
var makers = map[string]func(t *testing.T, ctx context.Context, c *framework.Client){
	"mutex": func(t *testing.T, ctx context.Context, c *framework.Client) {
		enterOnce(t, ctx, made[*locks.Mutex](t)(locks.NewMutex(c, "/deep/mutex")))
	},
	"mutex of Kazoo": func(t *testing.T, ctx context.Context, c *framework.Client) {
		enterOnce(t, ctx, made[*locks.Mutex](t)(locks.NewMutex(c, "/deep/mutex", locks.WithLayout(locks.LayoutKazoo))))
	},
	"writer": func(t *testing.T, ctx context.Context, c *framework.Client) {
		enterOnce(t, ctx, made[*rwlock.RWLock](t)(rwlock.New(c, "/deep/rw")).Writer())
	},
	"semaphore": func(t *testing.T, ctx context.Context, c *framework.Client) {
		enterOnce(t, ctx, made[*semaphore.Semaphore](t)(semaphore.New(c, "/deep/semaphore", 2)))
	},
	"limit": func(t *testing.T, ctx context.Context, c *framework.Client) {
		_ = made[*semaphore.Semaphore](t)(semaphore.New(c, "/deep/limit", 2)).SetMax(ctx, 3)
	},
	"election": func(t *testing.T, ctx context.Context, c *framework.Client) {
		enterOnce(t, ctx, made[*leader.Election](t)(leader.New(c, "/deep/election")))
	},
	"node": func(t *testing.T, ctx context.Context, c *framework.Client) {
		if n, err := presence.Announce(ctx, c, "/deep/members/a", nil); err == nil {
			_ = n.Close(ctx)
		}
	},
	"barrier": func(t *testing.T, ctx context.Context, c *framework.Client) {
		b := made[*barrier.Barrier](t)(barrier.New(c, "/deep/dir/barrier"))
		_ = b.Set(ctx)
		_ = b.Remove(t.Context())
	},
	"double barrier": func(t *testing.T, ctx context.Context, c *framework.Client) {
		d := made[*barrier.Double](t)(barrier.NewDouble(c, "/deep/double", 1))
		if m, err := d.Enter(ctx); err == nil {
			_ = m.Leave(t.Context())
		}
	},
	"static instance": func(t *testing.T, ctx context.Context, c *framework.Client) {
		d := made[*discovery.Discovery[string]](t)(discovery.New[string](c, "/deep/services", discovery.JSON[string]("")))
		i := discovery.Instance[string]{Name: "s", ID: "a", Type: discovery.Static}
		if r, err := d.Register(ctx, i); err == nil {
			_ = r.Close(t.Context())
		}
	},
	"counter": func(t *testing.T, ctx context.Context, c *framework.Client) {
		_, _ = made[*counter.Counter](t)(counter.New(c, "/deep/counter")).Add(ctx, 1)
	},
}

func enterOnce(t *testing.T, ctx context.Context, a recipes.Acquirer) {
	if l, err := a.Acquire(ctx); err == nil {
		_ = l.Release(t.Context())
	}
}

// A caller gives up at any request, or its answer is lost and he gives up then,
// or the client is closed as well. The servers do not remove a container that
// never had a child: none stays.
func TestNoUnusedContainerStays(t *testing.T) {
	for name, call := range makers {
		stays := 0
		for how, action := range map[string]testutil.Action{"given up": testutil.Pass(), "answer lost": testutil.DropAfter(), "closed": testutil.Pass()} {
			t.Run(name+", "+how, func(t *testing.T) {
				for at := int32(1); ; at++ {
					struck := false
					bubble.Run(t, func(t *testing.T, w *bubble.World) {
						c := w.Connect("ours")
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						var n atomic.Int32
						stop := w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
							if n.Add(1) != at {
								return testutil.Pass()
							}
							cancel()
							return action
						})
						call(t, ctx, c)
						stop()
						synctest.Wait()
						struck = n.Load() >= at
						if len(bubble.Unused(w.Embedded)) > 0 {
							stays++
						}
						if how == "closed" {
							if err := c.Close(); err != nil {
								t.Error(err)
							}
						} else {
							time.Sleep(3 * bubble.Timeout)
						}
						for _, path := range bubble.Unused(w.Embedded) {
							t.Errorf("at request %d: %s stays", at, path)
						}
					})
					if !struck {
						break
					}
				}
			})
		}
		if stays == 0 {
			t.Errorf("%s: nothing unused was ever made", name)
		}
	}
}

// A request for a directory is not answered, and is executed after another one
// has made it, it was used, and the servers have removed it.
func TestADirectoryThatIsMadeLate(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, net := w.Connect("ours"), w.ClientNet("ours")
		late := testutil.NewFault(testutil.Match{Op: testutil.OpCreateContainer, Path: "/mutex"}, testutil.Delay(bubble.Timeout/2))
		defer w.Control(late.Control)()
		time.AfterFunc(bubble.Timeout/10, net.Drop)
		enterOnce(t, t.Context(), made[*locks.Mutex](t)(locks.NewMutex(c, "/mutex")))
		time.Sleep(bubble.Timeout / 2)
		if len(bubble.Unused(w.Embedded)) == 0 || late.Count() != 1 {
			t.Fatalf("it was not made late: %d requests, %s", late.Count(), w.Tree())
		}
		time.Sleep(2 * bubble.Timeout)
		for _, path := range bubble.Unused(w.Embedded) {
			t.Errorf("%s stays", path)
		}
	}, testutil.WithContainerInterval(bubble.Timeout/20))
}

// A container that the user has made stays, although nothing is created in it.
func TestAContainerOfTheUserStays(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		if err := c.MakeContainerPath(t.Context(), "/theirs"); err != nil {
			t.Fatal(err)
		}
		enterOnce(t, t.Context(), made[*locks.Mutex](t)(locks.NewMutex(c, "/theirs/mutex")))
		if err := c.MakeContainerPath(t.Context(), "/deep/theirs"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if !w.Exists("/deep/theirs") {
			t.Error("it was deleted")
		}
	})
}
