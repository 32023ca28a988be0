package recipes_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// If work goes on past the stop margin and the session survives, its znode
// stays in line until the deadline known at the loss, and no longer. A known
// failure elsewhere: Consul #2371.
func TestLostLeaseWhoseSessionSurvives(t *testing.T) {
	for _, released := range []bool{true, false} {
		bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
			a, b := w.Connect("a"), w.Connect("b")
			l := bubble.Acquire(t, t.Context(), mutexOf(t, a, recipes.WithMaxHold(30*time.Second)))
			start := time.Now()
			waiting := bubble.Acquiring(t.Context(), mutexOf(t, b))
			w.InLine(lockPath, 2)
			at := bubble.Lost(t, l)
			if got := at.Sub(start); got != 30*time.Second {
				t.Errorf("lost after %v", got)
			}
			bubble.WantErr(t, l.Err(), recipes.ErrMaxHold)
			deadline := l.Deadline()
			time.Sleep(deadline.Sub(at) / 2)
			bubble.Pending(t, waiting)
			want := deadline
			if released {
				want = time.Now()
				bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, recipes.ErrMaxHold)
			}
			next := bubble.Granted(t, waiting)
			if !next.At.Equal(want) {
				t.Errorf("released %v: the next was granted %v after the loss, want %v", released, next.At.Sub(at), want.Sub(at))
			}
			bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
			bubble.Release(t, next.Lease)
			w.NothingLeft(lockPath)
		})
	}
}

func TestMaxHoldCountsFromTheOutermostLease(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		m := mutexOf(t, c, recipes.WithMaxHold(time.Minute))
		for _, own := range []time.Duration{time.Minute, 10 * time.Second, 0} { // of the inner one: it does not count
			outer := bubble.Acquire(t, t.Context(), m)
			time.Sleep(40 * time.Second)
			inner := bubble.Acquire(t, outer.Context(), mutexOf(t, c, recipes.WithMaxHold(own)))
			bubble.Release(t, outer)
			start := time.Now()
			if got := bubble.Lost(t, inner).Sub(start); got != 20*time.Second {
				t.Errorf("lost after %v more", got)
			}
			bubble.WantErr(t, inner.Release(t.Context()), recipes.ErrMaxHold)
		}
		// A lease that was released in time leaves no timer that could end the
		// next one.
		l := bubble.Acquire(t, t.Context(), m)
		time.Sleep(50 * time.Second)
		bubble.Release(t, l)
		l = bubble.Acquire(t, t.Context(), m)
		time.Sleep(50 * time.Second)
		bubble.Release(t, l)
		w.NothingLeft(lockPath)
	})
}

// An operator deletes the znode.
func TestZnodeIsDeleted(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		l := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		time.Sleep(time.Second)
		if err := b.Delete(t.Context(), l.Path(), -1); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if got := bubble.Lost(t, l).Sub(start); got != 0 {
			t.Errorf("lost after %v", got)
		}
		bubble.WantErr(t, l.Err(), zk.ErrNoNode)
		next := bubble.Acquire(t, t.Context(), mutexOf(t, b))
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, zk.ErrNoNode)
		if !w.Exists(next.Path()) {
			t.Error("the release removed the znode of another contender")
		}
		bubble.Release(t, next)
		w.NothingLeft(lockPath)
	})
}

// If the znode is deleted before it is watched, the release finds out.
func TestZnodeIsDeletedBeforeItIsWatched(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		l := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
		if err := w.Connect("b").Delete(t.Context(), l.Path(), -1); err != nil {
			t.Fatal(err)
		}
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, zk.ErrNoNode)
		bubble.WantErr(t, l.Err(), zk.ErrNoNode)
		w.NothingLeft(lockPath)
	})
}

// A waiter whose znode was deleted joins again at its next look. Known failures
// elsewhere: CURATOR-307, -211.
func TestZnodeOfAWaiterIsDeleted(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		held := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		waiting := bubble.Acquiring(t.Context(), mutexOf(t, b))
		names := w.InLine(lockPath, 2)
		for _, name := range names {
			if path := lockPath + "/" + name; path != held.Path() {
				if err := a.Delete(t.Context(), path, -1); err != nil {
					t.Fatal(err)
				}
			}
		}
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, waiting).Lease)
		w.NothingLeft(lockPath)
	})
}

func TestCloseEndsLeasesAndWaits(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		held := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		local := bubble.Acquiring(t.Context(), mutexOf(t, a))  // in the local queue, behind a holder of the same process
		inLine := bubble.Acquiring(t.Context(), mutexOf(t, b)) // in line
		w.InLine(lockPath, 2)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		bubble.WantErr(t, (<-inLine).Err, framework.ErrClosed)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		bubble.WantErr(t, (<-local).Err, framework.ErrClosed)
		bubble.Lost(t, held)
		bubble.WantErr(t, held.Err(), framework.ErrClosed)
		bubble.WantErr(t, held.Release(t.Context()), recipes.ErrNotHeld, framework.ErrClosed)
		_, err := mutexOf(t, a).Acquire(t.Context())
		bubble.WantErr(t, err, framework.ErrClosed)
		w.NothingLeft(lockPath)
	})
}

// The observer reports each lease, nested ones too, and its end once. Work
// after an expiry overruns from the expiry on, since others may be granted
// then.
func TestObserverReportsLeases(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		var mu sync.Mutex
		var heard []string
		note := func(what, path string) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, what+" "+path)
		}
		a := w.Connect("a", recipes.WithObserver(recipes.Observer{
			AcquireEnd: func(_ context.Context, a recipes.Acquire, r recipes.AcquireResult) {
				note("granted by "+string(r.Grant.How), a.Path)
			},
			Released: func(_ context.Context, r recipes.Release) { note("released after "+r.Held.String(), r.Acquire.Path) },
			Lost:     func(_ context.Context, l recipes.Loss) { note("lost after "+l.Held.String(), l.Acquire.Path) },
			Overran:  func(_ context.Context, o recipes.Overrun) { note("overran by "+o.By.String(), o.Acquire.Path) },
		}))
		m := mutexOf(t, a)
		l := bubble.Acquire(t, t.Context(), m)
		bubble.Release(t, bubble.Acquire(t, l.Context(), m))
		time.Sleep(3 * time.Second)
		bubble.Release(t, l)
		err := recipes.Do(t.Context(), m, func(ctx context.Context, l *recipes.Lease) error {
			time.Sleep(2 * time.Second)
			w.Expire(a)
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil
		})
		bubble.WantErr(t, err, recipes.ErrNotHeld)
		at := " " + a.Resolve("/app/lock")
		want := []string{
			"granted by ensemble" + at, "granted by reentry" + at, "released after 0s" + at, "released after 3s" + at,
			"granted by ensemble" + at, "lost after 2s" + at, "overran by 1s" + at,
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(heard) != len(want) {
			t.Fatalf("reported %q, want %q", heard, want)
		}
		for i := range want {
			if heard[i] != want[i] {
				t.Errorf("reported %q, want %q", heard[i], want[i])
			}
		}
	})
}

// Do waits for the release for one session timeout, the longest of the parts,
// if no server answers.
func TestDoWithoutAServer(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		long := lineOf(t, w.Connect("a", framework.WithSessionTimeout(2*bubble.Timeout)), "a")
		short, err := locks.NewMutex(w.Connect("b"), "/a")
		if err != nil {
			t.Fatal(err)
		}
		both, err := locks.All(long, short)
		if err != nil {
			t.Fatal(err)
		}
		var began time.Time
		err = recipes.Do(t.Context(), both, func(context.Context, *recipes.Lease) error {
			w.ClientNet("a").Cut()
			w.ClientNet("b").Cut()
			began = time.Now()
			return nil
		})
		bubble.WantErr(t, err, recipes.ErrNotHeld)
		if took := time.Since(began); took != 2*bubble.Timeout {
			t.Errorf("Do returned after %v", took)
		}
		// The session lives on, only the release gets no answer, and its tries do not
		// end before.
		w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpDelete || r.Op == testutil.OpMulti {
				return testutil.Fail(testutil.CodeOperationTimeout)
			}
			return testutil.Pass()
		})
		err = recipes.Do(t.Context(), lineOf(t, w.Connect("c", framework.WithRetry(retry.Forever(70*time.Millisecond))), "c"), func(context.Context, *recipes.Lease) error {
			began = time.Now()
			return nil
		})
		if took := time.Since(began); took != bubble.Timeout || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Do returned after %v: %v", took, err)
		}
	})
}
