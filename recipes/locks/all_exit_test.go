package locks_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/bubble"
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
				exit := func(here string, a framework.Acquire) {
					if here == at && a.Path == "/b" {
						runtime.Goexit()
					}
				}
				c := w.Connect("a", framework.WithObserver(framework.Observer{
					AcquireEnd: func(_ context.Context, a framework.Acquire, r framework.AcquireResult) {
						if r.Err == nil {
							count(a.Path, 1)
						}
					},
					Released: func(_ context.Context, r framework.Release) { count(r.Acquire.Path, -1) },
				}), framework.WithObserver(framework.Observer{
					AcquireStart: func(ctx context.Context, a framework.Acquire) context.Context {
						exit("start", a)
						return ctx
					},
					AcquireEnd: func(_ context.Context, a framework.Acquire, _ framework.AcquireResult) { exit("end", a) },
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
