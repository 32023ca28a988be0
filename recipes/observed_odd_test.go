package recipes_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// oddObserver does something odd in one of its functions, for the lock at one
// path.
type oddObserver struct {
	where string // the function
	odd   func()
	calls atomic.Int32
	tasks sync.WaitGroup  // of the test
	until context.Context // they end with it
}

func (o *oddObserver) at(where, path string) {
	if where == o.where && (strings.HasSuffix(path, "/odd") || path == "") {
		o.calls.Add(1)
		o.odd()
	}
}

// inPlace are the functions that are called by whoever acquires, releases or
// works.
var inPlace = []string{"AcquireStart", "AcquireEnd", "Released", "LostReleased", "Overran"}

// elsewhere are all others but Revoked, Retried, Batched and Dropped.
var elsewhere = []string{"Lost", "RequestStart", "RequestEnd", "StateChanged", "Abandoned"}

func (o *oddObserver) observer() framework.Option {
	return framework.Together(
		framework.WithObserver(framework.Observer{
			RequestStart: func(ctx context.Context, _ framework.Request) context.Context {
				o.at("RequestStart", "")
				return ctx
			},
			RequestEnd:   func(context.Context, framework.Request, framework.RequestResult) { o.at("RequestEnd", "") },
			StateChanged: func(framework.StateChange) { o.at("StateChanged", "") },
			Abandoned:    func(framework.Abandonment) { o.at("Abandoned", "") },
		}),
		recipes.WithObserver(recipes.Observer{
			AcquireStart: func(ctx context.Context, a recipes.Acquire) context.Context {
				o.at("AcquireStart", a.Path)
				return ctx
			},
			AcquireEnd: func(_ context.Context, a recipes.Acquire, _ recipes.AcquireResult) {
				o.at("AcquireEnd", a.Path)
			},
			Released:     func(_ context.Context, r recipes.Release) { o.at("Released", r.Acquire.Path) },
			LostReleased: func(_ context.Context, l recipes.Loss) { o.at("LostReleased", l.Acquire.Path) },
			Overran:      func(_ context.Context, r recipes.Overrun) { o.at("Overran", r.Acquire.Path) },
			Lost:         func(_ context.Context, l recipes.Loss) { o.at("Lost", l.Acquire.Path) },
		}),
	)
}

// eachOdd runs a scenario with each function that blocks, panics or ends its
// goroutine.
func eachOdd(t *testing.T, scenario func(t *testing.T, w *bubble.World, o *oddObserver)) {
	t.Helper()
	for _, kind := range []string{"blocks", "panics", "ends its goroutine"} {
		for _, where := range append(append([]string{}, inPlace...), elsewhere...) {
			t.Run(where+" "+kind, func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					free := make(chan struct{})
					o := &oddObserver{where: where, odd: func() {
						switch kind {
						case "blocks":
							<-free
						case "panics":
							panic("an observer")
						default:
							runtime.Goexit()
						}
					}}
					ctx, stop := context.WithCancel(t.Context())
					o.until = context.WithValue(ctx, callKey{}, new(call))
					defer o.tasks.Wait()
					defer stop()
					defer close(free)
					scenario(t, w, o)
				})
			})
		}
	}
}

const lockPath = "/app/lock"

// mutexOf returns a client's mutex at lockPath.
func mutexOf(t bubble.T, c *framework.Client, opts ...locks.Option) *locks.Mutex {
	t.Helper()
	return mutexAt(t, c, lockPath, opts...)
}

func mutexAt(t bubble.T, c *framework.Client, path string, opts ...locks.Option) *locks.Mutex {
	t.Helper()
	m, err := locks.NewMutex(c, path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A function that blocks, panics or ends its goroutine keeps nothing but its
// own caller: the lock goes to another process, the client's other locks work,
// another observer is told, and Close returns. Only AcquireEnd keeps the lock,
// until Close.
func TestAnOddObserverKeepsNothing(t *testing.T) {
	eachOdd(t, func(t *testing.T, w *bubble.World, o *oddObserver) {
		heard := newTally()
		a := w.Connect("a", o.observer(), heard.observer())
		b := w.Connect("b")
		o.tasks.Go(func() {
			if l, err := mutexAt(t, a, "/odd").Acquire(o.until); err == nil {
				_ = l.Release(t.Context())
			}
		})
		time.Sleep(time.Second)
		synctest.Wait()
		kept := o.where == "AcquireEnd" && len(w.Children("/odd")) > 0

		began := time.Now()
		bubble.Release(t, bubble.Acquire(t, o.until, mutexAt(t, a, "/fine")))
		waiting := bubble.Acquiring(t.Context(), mutexAt(t, b, "/odd"))
		if !kept {
			bubble.Release(t, bubble.Granted(t, waiting).Lease)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the locks took %v", took)
		}
		synctest.Wait()
		if waits, held, _ := heard.counts(w.View.Full("/fine")); waits != 0 || held != 0 || heard.events["released"] == 0 {
			t.Errorf("the other observer has heard of %v", heard.events)
		}
		closed := make(chan error, 1)
		go func() { closed <- a.Close() }()
		if err := bubble.Await(t, "Close", closed); err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("Close took %v: %v", time.Since(began), err)
		}
		if kept {
			bubble.Release(t, bubble.Granted(t, waiting).Lease)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the lock was kept for %v", took)
			}
		}
	})
}

// A function that blocks, panics or ends its goroutine delays no loss, and no
// grant to another process after one. The lease is lost before its deadline,
// and the other client is granted after it.
func TestAnOddObserverDelaysNoLoss(t *testing.T) {
	eachOdd(t, func(t *testing.T, w *bubble.World, o *oddObserver) {
		heard := newTally()
		a := w.Connect("a", o.observer(), heard.observer())
		b := w.Connect("b")
		lost := make(chan time.Time, 1)
		var deadline time.Time
		o.tasks.Go(func() {
			_ = recipes.Do(o.until, mutexAt(t, a, "/odd"), func(ctx context.Context, l *recipes.Lease) error {
				<-ctx.Done()
				deadline = l.Deadline()
				lost <- time.Now()
				time.Sleep(2 * bubble.Timeout)
				return nil
			})
		})
		time.Sleep(time.Second)
		synctest.Wait()
		waiting := bubble.Acquiring(t.Context(), mutexAt(t, b, "/odd"))
		time.Sleep(time.Second)
		w.ClientNet("a").Cut()
		cut := time.Now()
		grant := bubble.Granted(t, waiting)
		if took := grant.At.Sub(cut); took > bubble.Timeout+2*time.Second {
			t.Errorf("the other client was granted %v after the cut", took)
		}
		select {
		case at := <-lost:
			if !at.Before(deadline) || !grant.At.After(at) {
				t.Errorf("lost at %v, deadline %v, granted to another at %v", at, deadline, grant.At)
			}
		default:
			if o.where != "AcquireStart" && o.where != "AcquireEnd" { // then there is no lease
				t.Error("the lease was not lost")
			}
		}
		w.ClientNet("a").Heal()
		time.Sleep(4 * bubble.Timeout)
		bubble.Release(t, grant.Lease)
		bubble.Release(t, bubble.Acquire(t, o.until, mutexAt(t, a, "/fine")))
		if o.calls.Load() == 0 && o.where != "Released" && o.where != "Abandoned" {
			t.Errorf("%s was not called", o.where)
		}
	})
}
