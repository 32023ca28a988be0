package leader_test

import (
	"context"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// While nobody leads, the server removes the election's directory, a container.
// This must wake those that watch its children: otherwise Observe never reports
// a later leader.
func TestObserveOutlivesTheDirectory(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		e := w.candidate(w.Connect("a"), "a")
		l := bubble.Acquire(t, ctx, e)
		leaders := w.candidate(w.Connect("watcher"), "x").Observe(ctx)
		if now := bubble.Await(t, "the first leader", leaders); string(now.Data) != "a" {
			t.Errorf("leader: %q, want a", now.Data)
		}
		for range 3 {
			bubble.Release(t, l)
			if now := bubble.Await(t, "the report that nobody leads", leaders); now.Path != "" {
				t.Errorf("leader: %+v, want none", now)
			}
			bubble.AwaitTrue(t, "the directory to be removed", func() bool { return !w.Exists(path) })
			l = bubble.Acquire(t, ctx, e)
			if now := bubble.Await(t, "the next leader", leaders); now.Path != l.Path() {
				t.Errorf("leader: %s, want %s", now.Path, l.Path())
			}
		}
		bubble.Release(t, l)
	}, testutil.WithContainerInterval(10*time.Second))
}

// Observe compared sessions, so it did not report a new term of the same client
// in the same session.
func TestObserveReportsNextTermOfSameClient(t *testing.T) {
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
			bubble.AwaitTrue(t, "the report of the next term", func() bool {
				select {
				case now = <-leaders: // may be the moment without a leader
				default:
				}
				return now.Path == l.Path()
			})
		}
		bubble.Release(t, l)
	})
}
