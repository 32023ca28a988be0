package line_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestTryAcquire(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := mutexOf(t, w.Connect("a")), mutexOf(t, w.Connect("b"))
		l, err := a.TryAcquire(t.Context()) // without a directory
		if err != nil {
			t.Fatal(err)
		}
		again, err := a.TryAcquire(l.Context())
		if err != nil {
			t.Fatal(err)
		}
		bubble.Release(t, again)

		_, err = a.TryAcquire(t.Context()) // busy in this process
		bubble.WantErr(t, err, recipes.ErrBusy)
		w.ResetRequests()
		for range 10 {
			_, err = b.TryAcquire(t.Context()) // busy in another process
			bubble.WantErr(t, err, recipes.ErrBusy)
		}
		if want := "locks: acquire /app/lock: lock is busy"; err == nil || err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
		// TryAcquire looks before it joins: each costs one list.
		got := bubble.Without(w.Requests(), testutil.OpSync)
		if got[testutil.OpGetChildren2] != 10 || len(got) != 1 {
			t.Errorf("requests of 10 tries: %v", got)
		}
		waiting := bubble.Acquiring(t.Context(), b)
		w.InLine(lockPath, 2)
		_, err = b.TryAcquire(t.Context()) // another waits in this process
		bubble.WantErr(t, err, recipes.ErrBusy)
		bubble.Release(t, l)
		bubble.Release(t, bubble.Granted(t, waiting).Lease)

		w.ResetRequests()
		l, err = b.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := w.Total(); n > 4 {
			t.Errorf("requests of a granted try: %v", w.Requests())
		}
		bubble.Release(t, l)
		w.NothingLeft(lockPath)
	})
}

// Another contender joins between the look and the create: the try leaves the
// line.
func TestTryThatJoinsSecond(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := mutexOf(t, w.Connect("a")), mutexOf(t, w.Connect("b"))
		bubble.Release(t, bubble.Acquire(t, t.Context(), a))
		var first *recipes.Lease
		free := make(chan struct{})
		hits := w.Once(testutil.OpCreate, lockPath, testutil.Hold(free))
		tried := make(chan error)
		go func() {
			_, err := b.TryAcquire(t.Context())
			tried <- err
		}()
		synctest.Wait()
		if hits.Load() != 1 {
			t.Fatal("the create was not delayed")
		}
		// A local waiter behind the try gets its place in line.
		local := bubble.Acquiring(t.Context(), b)
		first = bubble.Acquire(t, t.Context(), a)
		close(free)
		bubble.WantErr(t, <-tried, recipes.ErrBusy)
		w.InLine(lockPath, 2)
		bubble.Pending(t, local)
		bubble.Release(t, first)
		bubble.Release(t, bubble.Granted(t, local).Lease)
		w.NothingLeft(lockPath)
	})
}

// A try is not busy because of a contender of its own client that has just left
// the line, whichever call has ended it, and by whatever the first requests
// that remove it fail. It used to find that one in the list.
func TestTryBehindAWithdrawnContender(t *testing.T) {
	for _, fault := range deleteFaults {
		t.Run(fault.name, func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				a, b := w.Connect("a"), w.Connect("b")
				m := mutexOf(t, a)
				theirs := bubble.Acquire(t, t.Context(), mutexOf(t, b))
				ctx, cancel := context.WithCancel(t.Context())
				waiting := bubble.Acquiring(ctx, m)
				w.InLine(lockPath, 2)
				w.Latency(time.Millisecond)
				own := slices.DeleteFunc(w.Children(lockPath), func(name string) bool { return lockPath+"/"+name == theirs.Path() })
				hits := w.Once(testutil.OpDelete, lockPath+"/"+own[0], fault.action)
				released := make(chan error, 1)
				go func() { released <- theirs.Release(t.Context()) }()
				time.Sleep(time.Millisecond) // the znode ahead is gone, its waiter has not heard
				synctest.Wait()
				if left := w.Children(lockPath); len(left) != 1 {
					t.Fatalf("in line: %v", left)
				}
				cancel()
				bubble.WantErr(t, (<-waiting).Err, context.Canceled)
				l, err := m.TryAcquire(t.Context())
				switch {
				case err == nil:
					bubble.Release(t, l)
				case fault.gone || !errors.Is(err, recipes.ErrBusy):
					t.Errorf("try: %v", err)
				}
				if hits.Load() == 0 {
					t.Error("no request met the fault")
				}
				if err := <-released; err != nil {
					t.Error(err)
				}
				w.NothingLeft(lockPath)
			})
		})
	}
}

// The same where the Acquire has ended on its way to the front of a free line,
// at whichever instant: its contender may just be on its way to the ensemble.
func TestTryAfterAnAcquireThatWasGivenUp(t *testing.T) {
	for _, batching := range []bool{true, false} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			m := mutexOf(t, w.Connect("a", framework.WithBatching(batching)))
			bubble.Release(t, bubble.Acquire(t, t.Context(), m))
			w.Latency(time.Millisecond)
			for after := time.Duration(0); after < 10*time.Millisecond; after += 50 * time.Microsecond {
				ctx, cancel := context.WithTimeout(t.Context(), after)
				l, err := m.Acquire(ctx)
				cancel()
				if err == nil {
					bubble.Release(t, l)
				}
				if l, err = m.TryAcquire(t.Context()); err != nil {
					t.Fatalf("after an Acquire that was given up after %v: %v", after, err)
				}
				bubble.Release(t, l)
			}
			w.NothingLeft(lockPath)
		})
	}
}
