package counter_test

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
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const label = "orders"

// Each call whose write began is told once, with its result and with how many
// shared the write; so is each write that was refused, and each removal of
// markers.
func TestWhatObserversAreTold(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries)
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var mu sync.Mutex // guards what follows
		var events []string
		removed := 0
		note := func(of counter.Info, format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			if w.View.Path(of.Path) != path || of.Label != label {
				t.Errorf("told of %+v", of)
			}
			events = append(events, fmt.Sprintf(format, args...))
		}
		c := w.Connect("a", counter.WithObserver(counter.Observer{
			Added: func(a counter.Addition) {
				if a.Began.Add(a.Took).After(time.Now()) || (a.Failed > 0) != (a.Err != nil) {
					t.Errorf("%+v", a)
				}
				text := fmt.Sprintf("%d added", a.Calls-a.Failed)
				if a.Failed > 0 {
					text += fmt.Sprintf(", %d failed", a.Failed)
				}
				if a.Repeated {
					text += " before"
				}
				note(a.Counter, "%s", text)
			},
			Conflicted: func(c counter.Conflict) { note(c.Counter, "conflict %d", c.InARow) },
			MarkersRemoved: func(r counter.Removal) {
				mu.Lock()
				defer mu.Unlock()
				if removed += r.Removed; r.Err != nil || r.Counter.Label != label {
					t.Errorf("%+v", r)
				}
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
		n := newCounter(t, c, recipes.WithLabel(label), counter.WithLayout(counter.LayoutCount), counter.WithMarkerAge(time.Minute))
		other := newCounter(t, w.Connect("b"), counter.WithLayout(counter.LayoutCount))
		add(t, n, 1, 1)
		want("1 added")
		add(t, other, 1, 2)
		add(t, n, 1, 3)
		want("conflict 1", "1 added")
		_, err := n.Add(t.Context(), 1<<40)
		bubble.WantErr(t, err, counter.ErrOverflow)
		want("0 added, 1 failed")
		addOnce(t, n, "a", false)
		addOnce(t, n, "a", true)
		want("1 added", "1 added before")

		stop := w.Control(func(testutil.Request) testutil.Action { return testutil.Delay(time.Second) })
		var calls sync.WaitGroup
		for i, delta := range []int64{1, 1, 1 << 40} { // the last two wait for the first, and share a write
			calls.Go(func() {
				if _, err := n.Add(t.Context(), delta); (err != nil) != (i == 2) {
					t.Errorf("%d more: %v", delta, err)
				}
			})
			synctest.Wait()
		}
		calls.Wait()
		stop()
		want("1 added", "1 added, 1 failed")

		w.ClientNet("a").Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = n.Add(ctx, 1)
		bubble.WantErr(t, err, context.DeadlineExceeded)
		w.ClientNet("a").Heal()
		want("0 added, 1 failed")

		tries := 0
		for id := range together(n) { // a removal begins by chance
			if tries++; tries > 300 {
				t.Fatal("no removal is told")
			}
			addOnce(t, n, id, false)
			must(t, n.AwaitRemoval(t.Context()))
			time.Sleep(2 * time.Minute) // the marker is old then
			synctest.Wait()
			mu.Lock()
			told := removed > 0
			mu.Unlock()
			if told {
				break
			}
		}
	})
}
