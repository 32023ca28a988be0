package locks_test

import (
	"testing"
	"testing/synctest"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestTryAcquire(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.mutex(w.client("a")), w.mutex(w.client("b"))
		l, err := a.TryAcquire(t.Context()) // where there is no directory yet
		if err != nil {
			t.Fatal(err)
		}
		again, err := a.TryAcquire(l.Context())
		if err != nil {
			t.Fatal(err)
		}
		release(t, again)

		_, err = a.TryAcquire(t.Context()) // busy at home
		wantErr(t, err, recipes.ErrBusy)
		w.recount()
		for range 10 {
			_, err = b.TryAcquire(t.Context()) // busy elsewhere
			wantErr(t, err, recipes.ErrBusy)
		}
		if want := "locks: acquire /app/lock: it would have to wait"; err == nil || err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
		// It looks before it joins: a list each time, and nothing else.
		got := without(w.Requests(), testutil.OpSync)
		if got[testutil.OpGetChildren2] != 10 || len(got) != 1 {
			t.Errorf("requests of 10 tries: %v", got)
		}
		waiting := acquiring(t.Context(), b)
		w.line(2)
		_, err = b.TryAcquire(t.Context()) // somebody waits at home
		wantErr(t, err, recipes.ErrBusy)
		release(t, l)
		release(t, granted(t, waiting).lease)

		w.recount()
		l, err = b.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := w.total(); n > 4 {
			t.Errorf("requests of one that got it: %v", w.Requests())
		}
		release(t, l)
		w.empty()
	})
}

// Somebody else joins between the look and the create: the try withdraws.
func TestATryThatComesSecond(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.mutex(w.client("a")), w.mutex(w.client("b"))
		release(t, acquire(t, t.Context(), a))
		var first *recipes.Lease
		free := make(chan struct{})
		hits := w.once(testutil.OpCreate, testutil.Hold(free))
		tried := make(chan error)
		go func() {
			_, err := b.TryAcquire(t.Context())
			tried <- err
		}()
		synctest.Wait()
		if hits.Load() != 1 {
			t.Fatal("the create was not held back")
		}
		// Who waits at home behind a try goes on in its place.
		home := acquiring(t.Context(), b)
		first = acquire(t, t.Context(), a)
		close(free)
		wantErr(t, <-tried, recipes.ErrBusy)
		w.line(2)
		pending(t, home)
		release(t, first)
		release(t, granted(t, home).lease)
		w.empty()
	})
}
