package recipes_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

type callerKey struct{}

// Before Do returns after a loss, LostReleased has been called once for each
// lock, with what Lost is told, though Lost is slow.
func TestLostReleasedIsCalledBeforeDoReturns(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		free := make(chan struct{})
		var mu sync.Mutex
		var released, lost []recipes.Loss
		a := w.Connect("a", recipes.WithObserver(recipes.Observer{
			Lost: func(_ context.Context, l recipes.Loss) {
				<-free
				mu.Lock()
				defer mu.Unlock()
				lost = append(lost, l)
			},
			LostReleased: func(ctx context.Context, l recipes.Loss) {
				if ctx.Value(callerKey{}) != "caller" || ctx.Err() != nil {
					t.Errorf("the context has the value %v and the error %v", ctx.Value(callerKey{}), ctx.Err())
				}
				released = append(released, l)
			},
		}))
		var held *recipes.Lease
		ctx := context.WithValue(t.Context(), callerKey{}, "caller")
		err := recipes.Do(ctx, allOf(t, a), func(ctx context.Context, l *recipes.Lease) error {
			held = l
			time.Sleep(time.Second)
			w.Expire(a)
			<-ctx.Done()
			return nil
		})
		bubble.WantErr(t, err, recipes.ErrNotHeld)
		var paths []string
		for _, l := range released {
			paths = append(paths, w.View.Path(l.Acquire.Path))
			if l.Reason != recipes.LostSession || !errors.Is(l.Err, framework.ErrSessionLost) || time.Since(l.At) > time.Second || l.Held < time.Second {
				t.Errorf("told: %+v", l)
			}
		}
		slices.Sort(paths)
		if want := []string{"/lock/1", "/lock/2", "/lock/3"}; !slices.Equal(paths, want) {
			t.Errorf("told of %v, want %v", paths, want)
		}
		_ = held.Release(ctx)
		if len(released) != 3 {
			t.Errorf("told %d times after a second release, want 3", len(released))
		}
		close(free)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for _, l := range released {
			if !slices.Contains(lost, l) {
				t.Errorf("LostReleased was told %+v, which Lost was not: %+v", l, lost)
			}
		}
	})
}

// A lease that is held until its release is not told as a lost one.
func TestLostReleasedIsNotCalledForAHeldLease(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a", recipes.WithObserver(recipes.Observer{
			LostReleased: func(_ context.Context, l recipes.Loss) { t.Errorf("told of %+v", l) },
		}))
		lease := bubble.Acquire(t, t.Context(), allOf(t, a))
		bubble.Release(t, lease)
		w.Expire(a)
		time.Sleep(time.Minute)
		_ = lease.Release(t.Context())
	})
}

// Requests of a call whose context never ends had a context without its values.
func TestRequestsHaveTheValuesOfAContextThatNeverEnds(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		seen := map[string]any{} // by operation
		a := w.Connect("a", framework.WithObserver(framework.Observer{
			RequestEnd: func(ctx context.Context, r framework.Request, _ framework.RequestResult) {
				seen[r.Op] = ctx.Value(callerKey{})
			},
		}))
		m, err := locks.NewMutex(a, "/lock")
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.WithValue(context.Background(), callerKey{}, "caller")
		lease := bubble.Acquire(t, ctx, m)
		if err := lease.Release(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, op := range []string{"create", "list", "delete"} {
			if seen[op] != "caller" {
				t.Errorf("the context of %s has the value %v", op, seen[op])
			}
		}
	})
}

// Retries of an Acquire had a context without its values, if the observer did
// not hear of requests.
func TestRetriesHaveTheValuesOfTheCallersContext(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		retried := map[string]any{} // by operation
		a := w.Connect("a", framework.WithObserver(framework.Observer{
			Retried: func(ctx context.Context, r framework.Retry) { retried[r.Op] = ctx.Value(callerKey{}) },
		}))
		m, err := locks.NewMutex(a, "/lock")
		if err != nil {
			t.Fatal(err)
		}
		bubble.Release(t, bubble.Acquire(t, t.Context(), m)) // creates the directory
		w.Once(testutil.OpCreate, "/lock", testutil.DropBefore())
		ctx := context.WithValue(context.Background(), callerKey{}, "caller")
		bubble.Release(t, bubble.Acquire(t, ctx, m))
		synctest.Wait()
		if retried["create"] != "caller" {
			t.Errorf("the contexts of retries have %v", retried)
		}
	})
}
