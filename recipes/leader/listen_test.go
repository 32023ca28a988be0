package leader_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// A listener is called with the current state, and then at the beginning and at
// the end of each term of its candidate: a release, a loss or a resignation. A
// known failure elsewhere: Curator's LeaderLatchListener.
func TestListen(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.Connect("a")
		e := w.candidate(c, "a")
		heard := make(chan *recipes.Lease, 10)
		stop := e.Listen(func(term *recipes.Lease) { heard <- term })
		next := func() *recipes.Lease { return bubble.Await(t, "the listener to be called", heard) }
		if term := next(); term != nil {
			t.Errorf("called with %v before any term", term)
		}
		term := bubble.Acquire(t, t.Context(), e)
		if got := next(); got != term {
			t.Errorf("called with %v, want %v", got, term)
		}
		if held, ok := e.Held(term.Context()); !ok || held != term {
			t.Errorf("Held: %v, %v", held, ok)
		}
		if _, ok := w.candidate(c, "b").Held(term.Context()); ok {
			t.Error("another candidate holds this term")
		}
		late := make(chan *recipes.Lease, 10)
		stopLate := e.Listen(func(term *recipes.Lease) { late <- term })
		if got := bubble.Await(t, "the late listener to be called", late); got != term {
			t.Errorf("late listener: called with %v, want %v", got, term)
		}
		stopLate()
		stopLate() // again: no effect
		bubble.Release(t, term)
		if got := next(); got != nil {
			t.Errorf("called with %v after the release", got)
		}
		if _, ok := e.Held(term.Context()); ok {
			t.Error("held after the release")
		}

		term = bubble.Acquire(t, t.Context(), e)
		if got := next(); got != term {
			t.Errorf("called with %v, want %v", got, term)
		}
		w.Expire(c)
		if got := next(); got != nil {
			t.Errorf("called with %v after the loss", got)
		}

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- e.Run(ctx, func(ctx context.Context, _ *recipes.Lease) error {
				<-ctx.Done()
				return nil
			})
		}()
		for range 3 {
			if got := next(); got == nil || !got.Held() {
				t.Errorf("Run: called with %v", got)
			}
			synctest.Wait()
			e.Resign()
			if got := next(); got != nil {
				t.Errorf("Run: called with %v after Resign", got)
			}
		}
		cancel()
		bubble.Await(t, "Run to end", ended)
		stop()
		time.Sleep(time.Minute)
		if len(late) != 0 {
			t.Error("called after stop")
		}
		w.Empty(path)
	})
}

// A listener that blocks or panics delays neither a term nor another listener,
// and its goroutine ends with the client.
func TestStuckListener(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.Connect("a")
		e := w.candidate(c, "a")
		stuck := make(chan struct{})
		e.Listen(func(*recipes.Lease) { <-stuck })
		e.Listen(func(*recipes.Lease) { panic("no") })
		var exits atomic.Int32
		e.Listen(func(*recipes.Lease) {
			exits.Add(1)
			runtime.Goexit()
		})
		var leads []bool
		e.Listen(func(term *recipes.Lease) { leads = append(leads, term != nil) })
		for range 3 {
			bubble.Release(t, bubble.Acquire(t, t.Context(), e))
		}
		synctest.Wait()
		if got := exits.Load(); got != 7 {
			t.Errorf("the one that ends its goroutine was called %d times, want 7", got)
		}
		for i, lead := range leads {
			if lead != (i%2 == 1) {
				t.Errorf("called with %v", leads)
				break
			}
		}
		if len(leads) != 7 {
			t.Errorf("called with %v", leads)
		}
		close(stuck)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		w.Empty(path)
	})
}

// Close ends the term after it has closed Done: a listener that stopped at Done
// believed forever that it leads.
func TestListenHearsOfClose(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for range 50 {
			c := w.ConnectNext()
			e := w.candidate(c, "a")
			var last atomic.Pointer[recipes.Lease]
			stop := e.Listen(func(term *recipes.Lease) { last.Store(term) })
			term := bubble.Acquire(t, t.Context(), e)
			synctest.Wait()
			if last.Load() != term {
				t.Fatal("the listener has not heard of the term")
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			if last.Load() != nil {
				t.Fatal("closed, and the listener believes that it leads")
			}
			stop()
		}
	})
}

// Two goroutines use one Election. The first is granted a term, and is held up
// by the Observer until that is lost and the second leads. It then told the
// listeners of its own term, and of its end: they believed that nobody leads.
func TestListenWithTwoGoroutines(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		block := make(chan struct{})
		var grants atomic.Int32
		c := w.Connect("a", recipes.WithObserver(recipes.Observer{AcquireEnd: func(context.Context, recipes.Acquire, recipes.AcquireResult) {
			if grants.Add(1) == 1 {
				<-block
			}
		}}))
		e := w.candidate(c, "a")
		var last atomic.Pointer[recipes.Lease]
		stop := e.Listen(func(term *recipes.Lease) { last.Store(term) })
		first := bubble.Acquiring(t.Context(), e)
		synctest.Wait()
		w.Expire(c)
		time.Sleep(time.Second)
		second := bubble.Acquire(t, t.Context(), e)
		close(block)
		lost := bubble.Granted(t, first).Lease
		time.Sleep(time.Second)
		if !second.Held() || last.Load() != second {
			t.Errorf("held %v, and the listener heard %v", second.Held(), last.Load())
		}
		err := lost.Release(t.Context())
		bubble.WantErr(t, err, recipes.ErrNotHeld)
		bubble.Release(t, second)
		stop()
		w.Empty(path)
	})
}

// A listener that ends its goroutine is called with all changes. Those that
// waited together with the one at which it did were lost: it believed forever
// that it leads.
func TestListenerThatExitsMissesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.Connect("a")
		e := w.candidate(c, "a")
		free := make(chan struct{})
		var leads []bool
		e.Listen(func(term *recipes.Lease) {
			<-free
			leads = append(leads, term != nil)
			runtime.Goexit()
		})
		synctest.Wait()
		for range 2 {
			bubble.Release(t, bubble.Acquire(t, t.Context(), e))
			synctest.Wait()
		}
		close(free)
		synctest.Wait()
		if want := []bool{false, true, false, true, false}; !slices.Equal(leads, want) {
			t.Errorf("called with %v, want %v", leads, want)
		}
	})
}

// A term that is over before Acquire returns is not told. The terms of two
// goroutines that use one Election follow each other, and each end is told
// before the next beginning.
func TestListenHearsOfEachTermAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		hold := make(chan struct{})
		c := w.Connect("a", recipes.WithObserver(recipes.Observer{AcquireEnd: func(context.Context, recipes.Acquire, recipes.AcquireResult) { <-hold }}))
		e := w.candidate(c, "a")
		before := w.Count()["goroutines"]
		var heard []bool
		stop := e.Listen(func(term *recipes.Lease) { heard = append(heard, term != nil) })
		first := bubble.Acquiring(t.Context(), e)
		synctest.Wait()
		w.Expire(c)
		time.Sleep(time.Second)
		close(hold)
		bubble.WantErr(t, bubble.Granted(t, first).Lease.Release(t.Context()), recipes.ErrNotHeld)
		synctest.Wait()
		if !slices.Equal(heard, []bool{false}) {
			t.Errorf("called with %v for a term that was lost before it was known", heard)
		}
		const terms = 200
		var done sync.WaitGroup
		for range 2 {
			done.Go(func() {
				for range terms / 2 {
					bubble.Release(t, bubble.Acquire(t, t.Context(), e))
				}
			})
		}
		done.Wait()
		synctest.Wait()
		for i, lead := range heard {
			if lead != (i%2 == 1) {
				t.Fatalf("call %d is with %v", i, lead)
			}
		}
		if len(heard) != 1+2*terms {
			t.Errorf("called %d times for %d terms", len(heard), terms)
		}
		stop()
		if now := w.Count()["goroutines"]; now != before {
			t.Errorf("%d goroutines after stop, %d before Listen", now, before)
		}
		w.Empty(path)
		must(t, c.Close()) // so that nothing runs that Count looks at
		n := w.Count(e)
		kept, counted := n["supplied.Audience[*github.com/zkrecipes/zkrecipes/recipes.Lease].listeners"]
		if !counted || kept != 0 || n["*leader.Election"] != 1 {
			t.Errorf("%d listeners are kept, of %d elections", kept, n["*leader.Election"])
		}
	})
}

func TestAListenerStopsBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		e := w.candidate(w.Connect("a"), "a")
		bubble.StoppedBehind(t, func(hear func()) func() { return e.Listen(func(*recipes.Lease) { hear() }) }, func() {
			bubble.Release(t, bubble.Acquire(t, t.Context(), e))
		})
	})
}
