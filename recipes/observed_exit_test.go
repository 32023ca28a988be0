package recipes_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// unruly is observers of which some panic, end the goroutine or take their time
// at any event, and one counts.
type unruly struct {
	mu            sync.Mutex // guards what follows
	random        *rand.Rand
	waiting, held int
}

func (u *unruly) draw(n int) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.random.IntN(n)
}

func (u *unruly) count(waiting, held int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waiting += waiting
	u.held += held
}

func (u *unruly) misbehave() {
	switch u.draw(12) {
	case 0:
		runtime.Goexit()
	case 1:
		panic("an observer's")
	case 2:
		time.Sleep(time.Second)
	}
}

func (u *unruly) observers() []framework.Option {
	bad := framework.Together(
		framework.WithObserver(framework.Observer{
			StateChanged: func(framework.StateChange) { u.misbehave() },
			RequestStart: func(ctx context.Context, _ framework.Request) context.Context { u.misbehave(); return ctx },
			RequestEnd:   func(context.Context, framework.Request, framework.RequestResult) { u.misbehave() },
		}),
		recipes.WithObserver(recipes.Observer{
			AcquireStart: func(ctx context.Context, _ recipes.Acquire) context.Context { u.misbehave(); return ctx },
			AcquireEnd:   func(context.Context, recipes.Acquire, recipes.AcquireResult) { u.misbehave() },
			Released:     func(context.Context, recipes.Release) { u.misbehave() },
			Lost:         func(context.Context, recipes.Loss) { u.misbehave() },
			LostReleased: func(context.Context, recipes.Loss) { u.misbehave() },
			Overran:      func(context.Context, recipes.Overrun) { u.misbehave() },
		}),
	)
	counts := recipes.WithObserver(recipes.Observer{
		AcquireStart: func(ctx context.Context, _ recipes.Acquire) context.Context { u.count(1, 0); return ctx },
		AcquireEnd: func(_ context.Context, _ recipes.Acquire, r recipes.AcquireResult) {
			u.count(-1, 0)
			if r.Err == nil {
				u.count(0, 1)
			}
		},
		Released: func(context.Context, recipes.Release) { u.count(0, -1) },
		Lost:     func(context.Context, recipes.Loss) { u.count(0, -1) },
	})
	return []framework.Option{bad, counts, bad}
}

// work holds one lock for a while, re-enters it now and then, and may end its
// goroutine.
func (u *unruly) work(ctx context.Context, a recipes.Acquirer) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_ = recipes.Do(ctx, a, func(ctx context.Context, _ *recipes.Lease) error {
		time.Sleep(time.Duration(u.draw(1500)) * time.Millisecond)
		switch u.draw(10) {
		case 0:
			runtime.Goexit()
		case 1, 2:
			if inner, err := a.Acquire(ctx); err == nil {
				return inner.Release(ctx)
			}
		}
		return nil
	})
}

// Whatever some observers do, another one counts exactly, and no lock stays
// held without a lease. A lock of locks.All did if an observer ended the
// goroutine. The game of the counts cannot have such observers, since it
// compares times to the nanosecond.
func TestUnrulyObservers(t *testing.T) {
	for seed := range bubble.Few[uint64](6, 30) {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			u := &unruly{random: rand.New(rand.NewPCG(seed, 0))}
			c := w.Connect("a", u.observers()...)
			ensure := func(err error) {
				if err != nil {
					t.Fatal(err)
				}
			}
			lingering, err := locks.NewMutex(c, "/m1", recipes.WithLinger(3*time.Second))
			ensure(err)
			async, err := locks.NewMutex(c, "/m2", recipes.WithAsyncRelease())
			ensure(err)
			rw, err := rwlock.New(c, "/rw")
			ensure(err)
			permits, err := semaphore.New(c, "/s", 3)
			ensure(err)
			all, err := locks.All(lingering, async, rw.Writer())
			ensure(err)
			kinds := []recipes.Acquirer{lingering, async, rw.Reader(), rw.Writer(), permits, permits.Permits(2), all}
			var users sync.WaitGroup
			for range 12 {
				users.Go(func() {
					for range 6 {
						var one sync.WaitGroup // its goroutine may end
						one.Go(func() { u.work(t.Context(), kinds[u.draw(len(kinds))]) })
						one.Wait()
					}
				})
			}
			time.Sleep(9 * time.Second)
			w.Expire(c)
			users.Wait()
			time.Sleep(time.Hour) // until the slow ones have heard of everything
			u.mu.Lock()
			defer u.mu.Unlock()
			if u.waiting != 0 || u.held != 0 {
				t.Errorf("seed %d: %d waiting and %d held by the events", seed, u.waiting, u.held)
			}
			w.Empty("/m1", "/m2", "/rw", "/s/leases", "/s/locks")
		})
	}
}
