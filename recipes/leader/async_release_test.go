package leader_test

import (
	"context"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
)

// A term's release that does not wait lets Run campaign again at once, at the
// end of the line.
func TestAsyncReleaseOfATerm(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		e := w.candidate(w.Connect("a"), "a", recipes.WithAsyncRelease())
		w.Latency(10 * time.Millisecond)
		const most = 5
		terms := 0
		err := e.Run(t.Context(), func(ctx context.Context, l *recipes.Lease) error {
			if terms++; terms == most {
				return leader.ErrStop
			}
			return w.serve(ctx, l, "a", time.Second, nil)
		})
		if err != nil || terms != most {
			t.Errorf("%d terms, then %v", terms, err)
		}
		l := bubble.Acquire(t, t.Context(), e)
		other := bubble.Acquiring(t.Context(), w.candidate(w.Connect("b"), "b"))
		w.InLine(path, 2)
		start := time.Now()
		bubble.Release(t, l)
		if took := time.Since(start); took != 0 {
			t.Errorf("Release took %v", took)
		}
		again := bubble.Acquiring(t.Context(), e)
		next := bubble.Granted(t, other).Lease
		bubble.Pending(t, again)
		if next.Token().Compare(l.Token()) <= 0 {
			t.Errorf("token %v after %v", next.Token(), l.Token())
		}
		bubble.Release(t, next)
		bubble.Release(t, bubble.Granted(t, again).Lease)
		w.NothingLeft(path)
	})
}
