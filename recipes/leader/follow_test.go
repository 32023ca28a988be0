package leader_test

import (
	"context"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Nobody leads, and the directory of the election, a container, is removed by the
// server. That has to wake those who watch its children: an observer who was left
// with that watch never heard of any later leader.
func TestObserveOutlivesTheDirectory(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		e := w.candidate(w.Connect("a"), "a")
		l := bubble.Acquire(t, ctx, e)
		leaders := w.candidate(w.Connect("watcher"), "x").Observe(ctx)
		if now := bubble.Await(t, "the first leader", leaders); string(now.Data) != "a" {
			t.Errorf("leads: %q, want a", now.Data)
		}
		for range 3 {
			bubble.Release(t, l)
			if now := bubble.Await(t, "the news that nobody leads", leaders); now.Path != "" {
				t.Errorf("leads: %+v, want nobody", now)
			}
			bubble.AwaitTrue(t, "the directory to be removed", func() bool { return !w.Exists(path) })
			l = bubble.Acquire(t, ctx, e)
			if now := bubble.Await(t, "the next leader", leaders); now.Path != l.Path() {
				t.Errorf("leads: %s, want %s", now.Path, l.Path())
			}
		}
		bubble.Release(t, l)
	}, testutil.WithContainerInterval(10*time.Second))
}

// A term that follows another one of the same client, in the same session, is another
// term all the same: an observer who compared sessions was not told.
func TestObserveTellsOfTheNextTermOfTheSameClient(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		c := w.Connect("a")
		l := bubble.Acquire(t, ctx, w.candidate(c, "a"))
		leaders := w.candidate(w.Connect("watcher"), "x").Observe(ctx)
		bubble.Await(t, "the first leader", leaders)
		for range 5 {
			next := bubble.Acquiring(context.Background(), w.candidate(c, "a"))
			bubble.Pending(t, next)
			bubble.Release(t, l)
			l = bubble.Granted(t, next).Lease
			var now recipes.Participant
			bubble.AwaitTrue(t, "the news of the next term", func() bool {
				select {
				case now = <-leaders: // nobody may have led for a moment
				default:
				}
				return now.Path == l.Path()
			})
		}
		bubble.Release(t, l)
	})
}
