package locks_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Two that have two locks in common, and name them in opposite orders, never wait
// for each other; also where one of them sees them in a namespace, where the order
// of their paths is another one.
func TestTwoAllsInOppositeOrdersDoNotDeadlock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		b1, err := b.Namespace("ns")
		if err != nil {
			t.Fatal(err)
		}
		// By their paths alone the second would take /m before /ns/z, as "/z".
		one := all(t, w.at(a, "/ns/b"), w.at(a, "/m"))
		two := all(t, w.at(b, "/m"), w.at(b1, "/b"))
		in := exclusion{t: t}
		var wg sync.WaitGroup
		for _, whole := range []recipes.Acquirer{one, two, one, two} {
			wg.Go(func() {
				for range 25 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					l, err := whole.Acquire(ctx)
					cancel()
					if err != nil {
						t.Error(err)
						return
					}
					in.enter()
					time.Sleep(time.Millisecond)
					in.leave()
					release(t, l)
				}
			})
		}
		wg.Wait()
		if n := in.entered.Load(); n != 100 {
			t.Errorf("%d of 100", n)
		}
		w.clean("/m", "/ns/b")
	})
}

// The test above is able to fail: without an order they do wait for each other.
func TestLocksInOppositeOrdersDeadlock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		one, two := acquire(t, ctx, w.at(a, "/app/a")), acquire(t, ctx, w.at(b, "/app/b"))
		waiting := acquiring(ctx, w.at(a, "/app/b"))
		_, err := w.at(b, "/app/a").Acquire(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		wantErr(t, (<-waiting).err, context.DeadlineExceeded)
		release(t, one)
		release(t, two)
		w.clean()
	})
}

// Nobody is let into any of the locks of another, whatever is cancelled, lost and
// cut off, and nothing is left behind.
func TestAllUnderRandomFaults(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		rng := random(t)
		w.Latency(2 * time.Millisecond)
		paths := []string{"/app/a", "/app/b", "/app/c", "/app/d"}
		var inside [4]struct {
			sync.Mutex
			*recipes.Lease
		}
		names := []string{"a", "b", "c"}
		var wg sync.WaitGroup
		var total atomic.Int32
		for _, name := range names {
			c := w.client(name)
			for range 2 {
				rng := rand.New(rand.NewPCG(rng.Uint64(), 2))
				wg.Go(func() {
					for range 60 {
						some := rng.Perm(len(paths))[:1+rng.IntN(len(paths))]
						var parts []recipes.Acquirer
						for _, i := range some {
							parts = append(parts, w.at(c, paths[i]))
						}
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(20_000))*time.Millisecond)
						l, err := all(t, parts...).Acquire(ctx)
						cancel()
						if err != nil {
							continue
						}
						for _, i := range some {
							inside[i].Lock()
							if other := inside[i].Lease; other != nil && other.Held() {
								t.Errorf("%s: two hold it", paths[i])
							}
							inside[i].Lease = l
							total.Add(1)
							inside[i].Unlock()
						}
						select {
						case <-l.Lost():
						case <-time.After(time.Duration(rng.IntN(3000)) * time.Millisecond):
						}
						if err := l.Release(t.Context()); err != nil && !errors.Is(err, recipes.ErrNotHeld) {
							t.Error(err)
						}
					}
				})
			}
		}
		done := make(chan struct{})
		go func() {
			wg.Wait()
			close(done)
		}()
		for faults := 0; ; faults++ {
			select {
			case <-done:
				for _, name := range names {
					w.ClientNet(name).Heal()
				}
				t.Logf("%d grants of a lock, %d faults", total.Load(), faults)
				time.Sleep(time.Minute)
				w.clean()
				return
			case <-time.After(time.Duration(rng.IntN(10_000)) * time.Millisecond):
			}
			i := rng.IntN(len(names))
			switch rng.IntN(3) { // sessions expire by themselves: only then can their holders know in time
			case 0:
				w.ClientNet(names[i]).Drop()
			case 1:
				w.ClientNet(names[i]).Cut()
			case 2:
				w.ClientNet(names[i]).Heal()
			}
		}
	}, testutil.WithMembers(3))
}
