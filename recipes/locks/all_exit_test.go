package locks_test

import (
	"context"
	"maps"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// exiting is an acquirer whose Acquire does not return.
type exiting struct {
	path string
	exit func()
}

func (e exiting) Path() string { return e.path }

func (e exiting) Acquire(context.Context) (*recipes.Lease, error) {
	e.exit()
	return nil, nil
}

func (e exiting) TryAcquire(ctx context.Context) (*recipes.Lease, error) { return e.Acquire(ctx) }

// If the Acquire of one part panics or ends its goroutine, All releases those
// before it. They used to stay held, with nobody who could release them.
func TestAllReleasesWhatItHasWhenAPartExits(t *testing.T) {
	for name, exit := range map[string]func(){
		"panic":  func() { panic("a part's") },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.Connect("a")
				joined := all(t, mutexAt(t, c, "/a"), mutexAt(t, c, "/b"), exiting{"/c", exit})
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					defer func() { _ = recover() }()
					_, _ = joined.Acquire(t.Context())
					t.Error("it has returned")
				}()
				bubble.Await(t, "the goroutine's end", gone)
				w.Empty("/a", "/b")
			})
		})
	}
}

// The same where an observer ends the goroutine, at the second of two locks.
func TestAllReleasesWhatItHasWhenAnObserverExits(t *testing.T) {
	for _, at := range []string{"start", "end"} {
		t.Run(at, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				var mu sync.Mutex
				held := map[string]int{}
				count := func(path string, change int) {
					mu.Lock()
					defer mu.Unlock()
					held[path] += change
				}
				exit := func(here string, a recipes.Acquire) {
					if here == at && a.Path == w.View.Full("/b") {
						runtime.Goexit()
					}
				}
				c := w.Connect("a", recipes.WithObserver(recipes.Observer{
					AcquireEnd: func(_ context.Context, a recipes.Acquire, r recipes.AcquireResult) {
						if r.Err == nil {
							count(w.View.Path(a.Path), 1)
						}
					},
					Released: func(_ context.Context, r recipes.Release) { count(w.View.Path(r.Acquire.Path), -1) },
				}), recipes.WithObserver(recipes.Observer{
					AcquireStart: func(ctx context.Context, a recipes.Acquire) context.Context {
						exit("start", a)
						return ctx
					},
					AcquireEnd: func(_ context.Context, a recipes.Acquire, _ recipes.AcquireResult) { exit("end", a) },
				}))
				joined := all(t, mutexAt(t, c, "/a"), mutexAt(t, c, "/b"))
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					_, _ = joined.Acquire(t.Context())
					t.Error("it has returned")
				}()
				bubble.Await(t, "the goroutine's end", gone)
				w.Empty("/a", "/b")
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if held["/a"] != 0 || held["/b"] != 0 {
					t.Errorf("held by the events: %v", held)
				}
			})
		})
	}
}

// If an observer ends the goroutine at the end of one part, the other observers
// hear of the ends, and of the overruns, of all parts.
func TestEachPartEndsForObserversWhenOneExits(t *testing.T) {
	for name, lost := range map[string]bool{"released": false, "overran": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				var mu sync.Mutex
				ends := map[string]int{}
				count := func(what string, path string) {
					mu.Lock()
					defer mu.Unlock()
					ends[what+" "+w.View.Path(path)]++
				}
				c := w.Connect("a", recipes.WithObserver(recipes.Observer{
					Released:     func(_ context.Context, r recipes.Release) { count("released", r.Acquire.Path) },
					LostReleased: func(_ context.Context, l recipes.Loss) { count("released", l.Acquire.Path) },
					Overran:      func(_ context.Context, o recipes.Overrun) { count("overran", o.Acquire.Path) },
				}), recipes.WithObserver(recipes.Observer{
					Released:     func(context.Context, recipes.Release) { runtime.Goexit() },
					LostReleased: func(context.Context, recipes.Loss) { runtime.Goexit() },
					Overran:      func(context.Context, recipes.Overrun) { runtime.Goexit() },
				}))
				joined := all(t, mutexAt(t, c, "/a"), mutexAt(t, c, "/b"))
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					_ = recipes.Do(t.Context(), joined, func(context.Context, *recipes.Lease) error {
						if lost {
							w.Expire(c)
							time.Sleep(time.Minute)
						}
						return nil
					})
					t.Error("it has returned")
				}()
				bubble.Await(t, "the goroutine's end", gone)
				mu.Lock()
				defer mu.Unlock()
				want := map[string]int{"released /a": 1, "released /b": 1}
				if lost {
					want["overran /a"], want["overran /b"] = 1, 1
				}
				if !maps.Equal(ends, want) {
					t.Errorf("told %v, want %v", ends, want)
				}
			})
		})
	}
}

// Close of a Keyed does not say that a lost lease was held, although an
// observer ends the goroutine of its release. It returned nil.
func TestCloseOfKeyedWhenAnObserverExits(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a", recipes.WithObserver(recipes.Observer{
			LostReleased: func(context.Context, recipes.Loss) { runtime.Goexit() },
		}))
		k := keyedOf(t, c)
		bubble.Acquire(t, t.Context(), k.Key("1"))
		w.ClientNet("a").Cut()
		bubble.WantErr(t, k.Close(t.Context()), recipes.ErrNotHeld) // it is lost meanwhile
	})
}
