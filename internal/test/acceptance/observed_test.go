package acceptance_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// gauge counts the observer's calls about leases, by path.
type gauge struct {
	mu                      sync.Mutex // guards what follows
	granted, released, lost map[string]int
	wrong                   []string
}

func newGauge() *gauge {
	return &gauge{granted: map[string]int{}, released: map[string]int{}, lost: map[string]int{}}
}

func (g *gauge) observer() framework.Option {
	count := func(of map[string]int, path string, held time.Duration) {
		g.mu.Lock()
		defer g.mu.Unlock()
		of[path]++
		if held < 0 || held > time.Hour {
			g.wrong = append(g.wrong, fmt.Sprint(path, " was held for ", held))
		}
	}
	return recipes.WithObserver(recipes.Observer{
		AcquireEnd: func(_ context.Context, a recipes.Acquire, r recipes.AcquireResult) {
			count(g.granted, a.Path, r.Waited)
		},
		Released: func(_ context.Context, r recipes.Release) { count(g.released, r.Acquire.Path, r.Held) },
		Lost:     func(_ context.Context, l recipes.Loss) { count(g.lost, l.Acquire.Path, l.Held) },
	})
}

// want fails the test unless each path was granted n times and each grant ended
// once, with so many losses.
func (g *gauge) want(t *testing.T, n, losses int, paths ...string) {
	t.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.granted) != len(paths) || len(g.wrong) > 0 {
		t.Errorf("granted %v, want %v; %v", g.granted, paths, g.wrong)
	}
	for _, path := range paths {
		if granted, released, lost := g.granted[path], g.released[path], g.lost[path]; granted != n || lost != losses || granted != released+lost {
			t.Errorf("%s: granted %d, released %d, lost %d; want %d grants and %d losses", path, granted, released, lost, n, losses)
		}
	}
}

// Three goroutines that read together gave three grants and one release, and a
// lease of three permits gave one grant and three ends. A gauge of held locks
// drifted forever.
func TestEachGrantHasOneEnd(t *testing.T) {
	ends := []struct {
		name   string
		losses int
		end    func(t *testing.T, w *bubble.World, c *framework.Client, l *recipes.Lease)
	}{
		{"released", 0, func(t *testing.T, _ *bubble.World, _ *framework.Client, l *recipes.Lease) {
			bubble.Release(t, l)
			bubble.Release(t, l)
		}},
		{"released with a context that has ended", 0, func(t *testing.T, _ *bubble.World, _ *framework.Client, l *recipes.Lease) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = l.Release(ctx)
			bubble.Release(t, l)
		}},
		{"expired", 1, func(t *testing.T, w *bubble.World, c *framework.Client, l *recipes.Lease) {
			w.Expire(c)
			bubble.Lost(t, l)
			_ = l.Release(t.Context())
		}},
		{"cut off", 1, func(t *testing.T, w *bubble.World, _ *framework.Client, l *recipes.Lease) {
			w.ClientNet("a").Cut()
			bubble.Lost(t, l)
			w.ClientNet("a").Heal()
			_ = l.Release(t.Context())
		}},
		{"found lost by its release", 1, func(t *testing.T, w *bubble.World, c *framework.Client, l *recipes.Lease) {
			w.ClientNet("a").Cut()
			bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
			w.ClientNet("a").Heal()
		}},
		{"closed", 1, func(t *testing.T, _ *bubble.World, c *framework.Client, l *recipes.Lease) {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			_ = l.Release(t.Context())
		}},
	}
	for _, recipe := range everyRecipe {
		for _, end := range ends {
			if recipe.name == "lingering mutex" && end.name == "found lost by its release" {
				continue // its release sends no request, so it finds nothing
			}
			t.Run(recipe.name+"/"+end.name, func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					g := newGauge()
					c := w.Connect("a", g.observer())
					r, err := recipe.make(c, "/lock")
					if err != nil {
						t.Fatal(err)
					}
					l := bubble.Acquire(t, t.Context(), r)
					time.Sleep(time.Second)
					end.end(t, w, c, l)
					paths := []string{"/lock"}
					switch recipe.name {
					case "all":
						paths = []string{"/lock/a", "/lock/b"}
					case "key":
						paths = []string{"/lock/key"}
					}
					g.want(t, 1, end.losses, paths...)
				})
			})
		}
	}
}

// Leases on one znode are counted one by one: readers that share it, a lease
// that re-enters another, and a downgraded one.
func TestEachLeaseOfOneZnodeIsCounted(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		g := newGauge()
		c := w.Connect("a", g.observer())
		rw, err := rwlock.New(c, "/rw")
		if err != nil {
			t.Fatal(err)
		}
		var readers []*recipes.Lease
		for range 3 {
			readers = append(readers, bubble.Acquire(t, t.Context(), rw.Reader()))
		}
		bubble.Release(t, readers...)
		writer := bubble.Acquire(t, t.Context(), rw.Writer())
		again := bubble.Acquire(t, writer.Context(), rw.Writer())
		reader := bubble.Acquire(t, writer.Context(), rw.Reader())
		bubble.Release(t, writer, again)
		w.Expire(c)
		bubble.Lost(t, reader)
		g.want(t, 6, 1, "/rw")
	})
}

// A panic in an observer left the lock held without a lease to release it.
func TestAnObserverThatPanics(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a", framework.Together(
			framework.WithObserver(framework.Observer{
				StateChanged: func(framework.StateChange) { panic("StateChanged") },
				RequestStart: func(context.Context, framework.Request) context.Context { panic("RequestStart") },
				RequestEnd:   func(context.Context, framework.Request, framework.RequestResult) { panic("RequestEnd") },
				Retried:      func(context.Context, framework.Retry) { panic("Retried") },
				Batched:      func(framework.Batch) { panic("Batched") },
				Abandoned:    func(framework.Abandonment) { panic("Abandoned") },
				Moved:        func(framework.Move) { panic("Moved") },
			}),
			recipes.WithObserver(recipes.Observer{
				AcquireStart: func(context.Context, recipes.Acquire) context.Context { panic("AcquireStart") },
				AcquireEnd:   func(context.Context, recipes.Acquire, recipes.AcquireResult) { panic("AcquireEnd") },
				Released:     func(context.Context, recipes.Release) { panic("Released") },
				Lost:         func(context.Context, recipes.Loss) { panic("Lost") },
				Overran:      func(context.Context, recipes.Overrun) { panic("Overran") },
				Revoked:      func(context.Context, recipes.Revocation) { panic("Revoked") },
			}),
		))
		m, err := locks.NewMutex(a, "/lock")
		if err != nil {
			t.Fatal(err)
		}
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		err = recipes.Do(t.Context(), m, func(ctx context.Context, _ *recipes.Lease) error {
			w.ClientNet("a").Cut()
			<-ctx.Done()
			time.Sleep(bubble.Timeout)
			return nil
		})
		bubble.WantErr(t, err, recipes.ErrNotHeld)
		w.ClientNet("a").Heal()
		other, err := locks.NewMutex(w.Connect("b"), "/lock")
		if err != nil {
			t.Fatal(err)
		}
		bubble.Release(t, bubble.Acquire(t, t.Context(), other))
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		w.Empty("/lock")
	})
}
