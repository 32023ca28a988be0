package locks_test

import (
	"testing"
	"testing/synctest"

	"github.com/zkrecipes/zkrecipes/internal/bubble"
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
		got := without(w.Requests(), testutil.OpSync)
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
