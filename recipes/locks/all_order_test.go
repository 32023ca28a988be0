package locks_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Two Alls of the same two locks, given in opposite orders, do not deadlock.
// This also holds if one sees the locks in a namespace, where their paths sort
// differently.
func TestTwoAllsInOppositeOrdersDoNotDeadlock(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		b1, err := b.Namespace("ns")
		if err != nil {
			t.Fatal(err)
		}
		// Sorted by path alone, the two would acquire their locks in opposite
		// orders.
		one := all(t, mutexAt(t, a, "/ns/b"), mutexAt(t, a, "/m"))
		two := all(t, mutexAt(t, b, "/m"), mutexAt(t, b1, "/b"))
		in := bubble.Exclusion{T: t}
		var wg sync.WaitGroup
		for _, joined := range []recipes.Acquirer{one, two, one, two} {
			wg.Go(func() {
				for range 25 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					l, err := joined.Acquire(ctx)
					cancel()
					if err != nil {
						t.Error(err)
						return
					}
					in.Enter()
					time.Sleep(time.Millisecond)
					in.Leave()
					bubble.Release(t, l)
				}
			})
		}
		wg.Wait()
		if n := in.Entered.Load(); n != 100 {
			t.Errorf("%d of 100 acquired", n)
		}
		w.NothingLeft()
	})
}

// The test above can fail: without a common order the two deadlock.
func TestLocksInOppositeOrdersDeadlock(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		one, two := bubble.Acquire(t, ctx, mutexAt(t, a, "/app/a")), bubble.Acquire(t, ctx, mutexAt(t, b, "/app/b"))
		waiting := bubble.Acquiring(ctx, mutexAt(t, a, "/app/b"))
		_, err := mutexAt(t, b, "/app/a").Acquire(ctx)
		bubble.WantErr(t, err, context.DeadlineExceeded)
		bubble.WantErr(t, (<-waiting).Err, context.DeadlineExceeded)
		bubble.Release(t, one)
		bubble.Release(t, two)
		w.NothingLeft()
	})
}

// Under random cancels, losses and disconnects no lock of an All is held by
// two, and nothing is left behind. The simulator's All has always the same two
// locks; here it has any of four, in any order.
func TestAllUnderRandomFaults(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		rng := bubble.Random(t)
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
			c := w.Connect(name)
			for range 2 {
				rng := rand.New(rand.NewPCG(rng.Uint64(), 2))
				wg.Go(func() {
					for range bubble.Few(15, 60) {
						some := rng.Perm(len(paths))[:1+rng.IntN(len(paths))]
						var parts []recipes.Acquirer
						for _, i := range some {
							parts = append(parts, mutexAt(t, c, paths[i]))
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
								t.Errorf("%s: held by two", paths[i])
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
				w.NothingLeft()
				return
			case <-time.After(time.Duration(rng.IntN(10_000)) * time.Millisecond):
			}
			i := rng.IntN(len(names))
			switch rng.IntN(3) { // sessions expire only by themselves: only then can their holders know in time
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
