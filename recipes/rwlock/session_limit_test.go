package rwlock_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// A writer may downgrade, again and again, although by then the session has as
// many ephemeral znodes as it may have: it has reserved room for that when it
// joined the line.
func TestADowngradeIsNeverRefusedForTheSessionsSize(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // such servers have no limit
	for _, layout := range []rwlock.Layout{rwlock.LayoutPlain, rwlock.LayoutCurator, rwlock.LayoutKazoo} {
		bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
			c := w.Connect("a", bubble.Narrow)
			rw, err := rwlock.New(c, path, rwlock.WithLayout(layout))
			if err != nil {
				t.Fatal(err)
			}
			writing := bubble.Acquire(t, t.Context(), rw.Writer())
			bubble.Fill(t, c)
			for range 3 {
				bubble.Release(t, bubble.Acquire(t, writing.Context(), rw.Reader()))
			}
			reading := bubble.Acquire(t, writing.Context(), rw.Reader())
			bubble.Release(t, writing)
			if !reading.Held() {
				t.Error(reading.Err())
			}
			bubble.Release(t, reading)
			bubble.Fill(t, c)
			_, err = rw.Writer().Acquire(t.Context())
			bubble.WantErr(t, err, framework.ErrTooLarge)
		})
	}
}
