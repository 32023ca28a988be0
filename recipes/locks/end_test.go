package locks_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// Work that outlives the stop margin keeps its znode in line until the deadline
// that was known at the loss, and no longer, if the session survives.
func TestALostLeaseWhoseSessionSurvives(t *testing.T) {
	for _, released := range []bool{true, false} {
		inEachView(t, func(t *testing.T, w *world) {
			a, b := w.client("a"), w.client("b")
			l := acquire(t, t.Context(), w.mutex(a, locks.WithMaxHold(30*time.Second)))
			start := time.Now()
			waiting := acquiring(t.Context(), w.mutex(b))
			w.line(2)
			at := lost(t, l)
			if got := at.Sub(start); got != 30*time.Second {
				t.Errorf("lost after %v", got)
			}
			wantErr(t, l.Err(), recipes.ErrMaxHold)
			deadline := l.Deadline()
			time.Sleep(deadline.Sub(at) / 2)
			pending(t, waiting)
			want := deadline
			if released {
				want = time.Now()
				wantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, recipes.ErrMaxHold)
			}
			next := granted(t, waiting)
			if !next.at.Equal(want) {
				t.Errorf("released %v: the next was granted %v after the loss, want %v", released, next.at.Sub(at), want.Sub(at))
			}
			wantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
			release(t, next.lease)
			w.empty()
		})
	}
}

func TestMaxHoldCountsFromTheOutermost(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		m := w.mutex(w.client("a"), locks.WithMaxHold(time.Minute))
		outer := acquire(t, t.Context(), m)
		time.Sleep(40 * time.Second)
		inner := acquire(t, outer.Context(), m)
		release(t, outer)
		start := time.Now()
		if got := lost(t, inner).Sub(start); got != 20*time.Second {
			t.Errorf("lost after %v more", got)
		}
		wantErr(t, inner.Release(t.Context()), recipes.ErrMaxHold)
		// A hold that ended in time leaves nothing that could end the next.
		l := acquire(t, t.Context(), m)
		time.Sleep(50 * time.Second)
		release(t, l)
		l = acquire(t, t.Context(), m)
		time.Sleep(50 * time.Second)
		release(t, l)
		w.empty()
	})
}

// An operator deletes the znode.
func TestTheZnodeIsDeletedBySomebodyElse(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		l := acquire(t, t.Context(), w.mutex(a))
		time.Sleep(time.Second)
		if err := b.Delete(t.Context(), l.Path(), -1); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if got := lost(t, l).Sub(start); got != 0 {
			t.Errorf("lost after %v", got)
		}
		wantErr(t, l.Err(), zk.ErrNoNode)
		next := acquire(t, t.Context(), w.mutex(b))
		wantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, zk.ErrNoNode)
		if !w.Exists(next.Path()) {
			t.Error("the release removed another's znode")
		}
		release(t, next)
		w.empty()
	})
}

// Before it is watched, the release finds out.
func TestTheZnodeIsDeletedBySomebodyElseBeforeItIsWatched(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		l := acquire(t, t.Context(), w.mutex(w.client("a")))
		if err := w.client("b").Delete(t.Context(), l.Path(), -1); err != nil {
			t.Fatal(err)
		}
		wantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, zk.ErrNoNode)
		wantErr(t, l.Err(), zk.ErrNoNode)
		w.empty()
	})
}

// Who waits and is deleted joins again, when it looks the next time.
func TestAWaitersZnodeIsDeletedBySomebodyElse(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		held := acquire(t, t.Context(), w.mutex(a))
		waiting := acquiring(t.Context(), w.mutex(b))
		names := w.line(2)
		for _, name := range names {
			if path := lockPath + "/" + name; path != held.Path() {
				if err := a.Delete(t.Context(), path, -1); err != nil {
					t.Fatal(err)
				}
			}
		}
		release(t, held)
		release(t, granted(t, waiting).lease)
		w.empty()
	})
}

func TestCloseEndsLeasesAndWaits(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		held := acquire(t, t.Context(), w.mutex(a))
		home := acquiring(t.Context(), w.mutex(a)) // at home, behind its own holder
		away := acquiring(t.Context(), w.mutex(b)) // in line
		w.line(2)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		wantErr(t, (<-away).err, framework.ErrClosed)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		wantErr(t, (<-home).err, framework.ErrClosed)
		lost(t, held)
		wantErr(t, held.Err(), framework.ErrClosed)
		wantErr(t, held.Release(t.Context()), recipes.ErrNotHeld, framework.ErrClosed)
		_, err := w.mutex(a).Acquire(t.Context())
		wantErr(t, err, framework.ErrClosed)
		w.empty()
	})
}

// The observer hears of each lease, a nested one too, and of its end once. Work
// after an expiry overruns from the expiry on: others may be let in by then.
func TestTheObserverFollowsLeases(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var heard []string
		note := func(what, path string) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, what+" "+path)
		}
		a := w.client("a", framework.WithObserver(framework.Observer{
			Granted:  func(path string, _ time.Duration) { note("granted", path) },
			Released: func(path string, held time.Duration) { note("released after "+held.String(), path) },
			Lost:     func(path string, held time.Duration, _ error) { note("lost after "+held.String(), path) },
			Overran:  func(path string, by time.Duration) { note("overran by "+by.String(), path) },
		}))
		m := w.mutex(a)
		l := acquire(t, t.Context(), m)
		release(t, acquire(t, l.Context(), m))
		time.Sleep(3 * time.Second)
		release(t, l)
		err := recipes.Do(t.Context(), m, func(ctx context.Context, l *recipes.Lease) error {
			time.Sleep(2 * time.Second)
			if err := w.ExpireSession(w.session(a)); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil
		})
		wantErr(t, err, recipes.ErrNotHeld)
		want := []string{
			"granted /app/lock", "granted /app/lock", "released after 0s /app/lock", "released after 3s /app/lock",
			"granted /app/lock", "lost after 2s /app/lock", "overran by 1s /app/lock",
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(heard) != len(want) {
			t.Fatalf("heard %q, want %q", heard, want)
		}
		for i := range want {
			if heard[i] != want[i] {
				t.Errorf("heard %q, want %q", heard[i], want[i])
			}
		}
	})
}
