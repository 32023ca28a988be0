package semaphore_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// Who waits for permits gets them, although by then the session has as many
// ephemeral znodes as it may have: the contender has reserved room for them
// when it joined the line. One for which there is no room fails before that.
func TestPermitsAreNotRefusedInLineForTheSessionsSize(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		const all = 20
		of := func(c *framework.Client) *semaphore.Semaphore {
			s, err := semaphore.New(c, path, all)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		holder := bubble.Acquire(t, t.Context(), of(w.Connect("holder")).Permits(all))
		c := w.Connect("a", bubble.Narrow)
		waiting := bubble.Acquiring(t.Context(), of(c).Permits(all))
		w.InLine(path+"/locks", 1)
		bubble.Fill(t, c)
		bubble.Release(t, holder)
		held := bubble.Granted(t, waiting).Lease
		bubble.Release(t, held)
		bubble.Fill(t, c)
		_, err := of(c).Acquire(t.Context())
		bubble.WantErr(t, err, framework.ErrTooLarge)
		w.Empty(path+"/locks", path+"/leases")
	})
}
