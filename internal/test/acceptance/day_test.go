package acceptance_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
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
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

var (
	dayHours    = flag.Int("day.hours", 1, "how long TestADay lasts, in hours of virtual time")
	daySessions = flag.Int("day.sessions", 8, "how many sessions TestADay has, an even number")
)

// use is one use of a recipe by client i in round n.
type use func(ctx context.Context, c *framework.Client, i, n int) error

// uses are all recipes.
func uses(t *testing.T) map[string]use {
	enter := func(ctx context.Context, a recipes.Acquirer) error {
		return recipes.Do(ctx, a, func(ctx context.Context, l *recipes.Lease) error { return pause(ctx, time.Second) })
	}
	return map[string]use{
		"mutex": func(ctx context.Context, c *framework.Client, i, _ int) error {
			return enter(ctx, made[*locks.Mutex](t)(locks.NewMutex(c, fmt.Sprint("/day/mutex/", i%3))))
		},
		"key": func(ctx context.Context, c *framework.Client, i, n int) error {
			return enter(ctx, made[*locks.Keyed](t)(locks.NewKeyed(c, "/day/keyed")).Key(fmt.Sprint(i, " ", n)))
		},
		"reader": func(ctx context.Context, c *framework.Client, _, _ int) error {
			return enter(ctx, made[*rwlock.RWLock](t)(rwlock.New(c, "/day/rw")).Reader())
		},
		"writer": func(ctx context.Context, c *framework.Client, _, _ int) error {
			return enter(ctx, made[*rwlock.RWLock](t)(rwlock.New(c, "/day/rw")).Writer())
		},
		"permits": func(ctx context.Context, c *framework.Client, i, _ int) error {
			return enter(ctx, made[*semaphore.Semaphore](t)(semaphore.New(c, "/day/semaphore", 3)).Permits(1+i%2))
		},
		"line": func(ctx context.Context, c *framework.Client, _, _ int) error {
			return enter(ctx, made[*recipes.Line](t)(recipes.NewLine(c, "/day/line", "day", "", func(_, _ string) bool { return true })))
		},
		"term": func(ctx context.Context, c *framework.Client, _, _ int) error {
			return made[*leader.Election](t)(leader.New(c, "/day/election")).Run(ctx, func(ctx context.Context, _ *recipes.Lease) error {
				_ = pause(ctx, time.Second)
				return leader.ErrStop
			})
		},
		"presence and cache": func(ctx context.Context, c *framework.Client, i, _ int) error {
			node := made[*presence.Node](t)(presence.New(c, fmt.Sprint("/day/members/", i), nil))
			defer node.Close(context.WithoutCancel(ctx))
			if err := node.Start(); err != nil {
				return err
			}
			if err := node.Standing(ctx); err != nil {
				return err
			}
			copied := made[*cache.Cache](t)(cache.New(c, "/day/members"))
			defer copied.Close()
			copied.Start()
			_, err := copied.Fresh(ctx)
			return err
		},
		"service": func(ctx context.Context, c *framework.Client, i, _ int) error {
			d := made[*discovery.Discovery[string]](t)(discovery.New(c, "/day/services", discovery.JSON[string]("String")))
			defer d.Close()
			reg, err := d.Register(ctx, discovery.Instance[string]{Name: "s", ID: fmt.Sprint(i)})
			if err != nil {
				return err
			}
			defer reg.Close(context.WithoutCancel(ctx))
			_, err = made[*discovery.Service[string]](t)(d.Service("s")).Pick(ctx)
			return err
		},
		"counter": func(ctx context.Context, c *framework.Client, _, _ int) error {
			_, err := made[*counter.Counter](t)(counter.New(c, "/day/counter")).Add(ctx, 1)
			return err
		},
		"double barrier": func(ctx context.Context, c *framework.Client, i, _ int) error {
			in, err := made[*barrier.Double](t)(barrier.NewDouble(c, fmt.Sprint("/day/double/", i/2), 2)).Enter(ctx)
			if err != nil {
				return err
			}
			return in.Leave(ctx)
		},
		"barrier": func(ctx context.Context, c *framework.Client, i, _ int) error {
			b := made[*barrier.Barrier](t)(barrier.New(c, fmt.Sprint("/day/barrier/", i/2)))
			if i%2 == 1 {
				return b.Wait(ctx)
			}
			if err := b.Set(ctx); err != nil {
				return err
			}
			_ = pause(ctx, time.Second)
			return b.Remove(ctx)
		},
		"watch": func(ctx context.Context, c *framework.Client, _, _ int) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			values, err := c.WatchChildren(ctx, "/day")
			if err != nil {
				return err
			}
			for range values { //nolint:revive // until it is closed
			}
			return nil
		},
	}
}

// pause waits for d, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// All recipes are used by many sessions for a day. In every hour all sessions
// expire, each member restarts, and for a while requests are refused. In the
// end there is as much of everything as there was at the beginning.
func TestADay(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and does the same under the race detector")
	}
	synctest.Test(t, func(t *testing.T) {
		bubble.Bound(t, time.Duration(*dayHours+24)*time.Hour)
		w := bubble.New(t, testutil.WithMembers(3), testutil.WithContainerInterval(time.Minute))
		clients := make([]*framework.Client, *daySessions)
		for i := range clients {
			clients[i] = w.Connect(fmt.Sprint("client ", i), framework.WithSessionTimeout(longest))
		}
		all := uses(t)
		names := slices.Sorted(maps.Keys(all))
		succeeded := make([]atomic.Int64, len(names))
		// pass lets each pair of clients use all recipes, one every five minutes.
		pass := func(rounds int, quiet bool) {
			var working sync.WaitGroup
			for i, c := range clients {
				working.Go(func() {
					for n := range rounds * len(names) {
						use := (i/2 + n) % len(names)
						began := time.Now()
						ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
						err := all[names[use]](ctx, c, i, n)
						cancel()
						if err == nil {
							succeeded[use].Add(1)
						} else if quiet {
							t.Errorf("%s: %v", names[use], err)
						}
						time.Sleep(time.Until(began.Add(5 * time.Minute)))
					}
				})
			}
			working.Wait()
		}
		count := func() bubble.Census {
			time.Sleep(3 * time.Hour) // searches for strays and pauses have ended
			kept := w.Count()
			for _, c := range clients {
				if c.State() != framework.Connected {
					t.Errorf("a client is %v", c.State())
				}
			}
			return kept
		}
		made[*counter.Counter](t)(counter.New(clients[0], "/day/counter")) // its znode stays
		pass(1, true)
		before := count()
		stop := make(chan struct{})
		var weather sync.WaitGroup
		weather.Go(func() { storms(w, clients, stop) })
		pass(*dayHours, false)
		close(stop)
		weather.Wait()
		for use, name := range names {
			got, tried := int(succeeded[use].Load())-len(clients), *dayHours*len(clients)
			t.Logf("%s: %d of %d", name, got, tried)
			if got < tried/2 {
				t.Errorf("%s: %d of %d", name, got, tried)
			}
		}
		pass(1, true) // it also removes what those who crashed have left to the next one
		// The directory of a key of which an acquire was refused has never had a
		// child. It stays until its next use.
		unused, _, err := clients[0].Children(t.Context(), "/day/keyed")
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Fatal(err)
		}
		for _, key := range unused {
			bubble.Release(t, bubble.Acquire(t, t.Context(), made[*locks.Mutex](t)(locks.NewMutex(clients[0], "/day/keyed/"+key))))
		}
		after := count()
		for _, what := range append(after.Grown(before, 0), before.Grown(after, 0)...) {
			t.Error(what)
		}
		t.Logf("%v\n%s", after, w.Tree())
	})
}

// storms strikes, in each hour: all sessions expire, the members restart one
// after the other, and a part of the requests of recipes is refused.
func storms(w *bubble.World, clients []*framework.Client, stop <-chan struct{}) {
	rest := func(d time.Duration) (over bool) {
		select {
		case <-time.After(d):
			return false
		case <-stop:
			return true
		}
	}
	for !rest(15 * time.Minute) {
		for _, c := range clients {
			if s, err := c.Session(); err == nil {
				_ = w.ExpireSession(s.ID()) // it may be over
			}
		}
		if rest(20 * time.Minute) {
			return
		}
		for i := range w.Members() {
			_ = w.Stop(i)
			time.Sleep(20 * time.Second)
			_ = w.Restart(i)
			time.Sleep(time.Minute)
		}
		if rest(10 * time.Minute) {
			return
		}
		var n atomic.Int64
		calm := w.Control(func(r testutil.Request) testutil.Action {
			if !strings.HasPrefix(r.Path, "/day") || n.Add(1)%3 != 0 {
				return testutil.Pass()
			}
			return testutil.Fail([]testutil.Code{testutil.CodeThrottled, testutil.CodeNoAuth, testutil.CodeSystemError}[n.Load()/3%3])
		})
		rest(2 * time.Minute)
		calm()
	}
}
