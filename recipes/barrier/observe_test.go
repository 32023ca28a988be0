package barrier_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
)

// Each Enter is told once, and each member that leaves.
func TestWhatObserversAreTold(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var mu sync.Mutex
		var events []string
		note := func(of barrier.Info, session int64, err error, format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			if w.View.Path(of.Path) != path || of.Label != "nightly" || of.Members != 2 || (session == 0) != (err != nil) {
				t.Errorf("told of %+v, session %#x, %v", of, session, err)
			}
			events = append(events, fmt.Sprintf(format, args...))
		}
		c := w.Connect("a", barrier.WithObserver(barrier.Observer{
			Entered: func(e barrier.Entry) {
				note(e.Barrier, e.Session, e.Err, "entered after %v, late %v, failed %v", e.Waited.Round(time.Second), e.Late, e.Err != nil)
			},
			Left: func(e barrier.Exit) {
				note(e.Barrier, e.Session, e.Err, "left after %v inside and %v", e.Inside.Round(time.Second), e.Waited.Round(time.Second))
			},
		}))
		want := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(events, want) {
				t.Errorf("told %q, want %q", events, want)
			}
			events = nil
		}
		d, other := double(t, c, 2, recipes.WithLabel("nightly")), double(t, w.Connect("b"), 2)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := d.Enter(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		want("entered after 2s, late false, failed true")
		first := entering(t.Context(), d)
		pending(t, first)
		second := enter(t, entering(t.Context(), other))
		in := enter(t, first)
		want("entered after 1s, late false, failed false")
		late := enter(t, entering(t.Context(), d))
		want("entered after 0s, late true, failed false")
		time.Sleep(4 * time.Second)
		all := []<-chan error{leaving(t.Context(), in), leaving(t.Context(), late)}
		pending(t, all...)
		leave(t, append(all, leaving(t.Context(), second))...)
		_ = in.Leave(t.Context()) // once
		want("left after 4s inside and 1s", "left after 4s inside and 1s")
	})
}
