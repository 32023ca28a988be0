package semaphore_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// A contender serves whoever waits in its process: it reserves room for the
// most permits that anybody there waits for. If there is no room for so many,
// only that waiter fails.
func TestRoomIsReservedForTheMostPermits(t *testing.T) {
	bubble.Usual(t, bubble.SmallRequest, bubble.OneShot) // makes large requests; such servers have no limit
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		const all, many = 300, 20
		of := func(c *framework.Client) *semaphore.Semaphore {
			s, err := semaphore.New(c, path, all)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		holder := bubble.Acquire(t, t.Context(), of(w.Connect("holder")).Permits(all))
		c := w.Connect("a", bubble.Narrow)
		s := of(c)
		ctx, cancel := context.WithCancel(t.Context())
		one := bubble.Acquiring(ctx, s.Permits(1))
		w.InLine(path+"/locks", 1)
		some, most := bubble.Acquiring(t.Context(), s.Permits(many)), bubble.Acquiring(t.Context(), s.Permits(all))
		synctest.Wait()
		before := w.Session(c)
		w.Expire(c)
		bubble.Await(t, "the end of the session", before.Done())
		bubble.WantErr(t, bubble.Await(t, "the refusal", most).Err, framework.ErrTooLarge)
		w.InLine(path+"/locks", 1)
		bubble.Fill(t, c)
		cancel()
		bubble.WantErr(t, bubble.Await(t, "its end", one).Err, context.Canceled)
		bubble.Release(t, holder)
		bubble.Release(t, bubble.Granted(t, some).Lease)
		w.Empty(path+"/locks", path+"/leases")
	})
}

// Who waits for permits gets them, although by then the session has as many
// ephemeral znodes as it may have: the contender has reserved room for them
// when it joined the line. One for which there is no room fails before that.
func TestPermitsAreNotRefusedInLineForTheSessionsSize(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // such servers have no limit
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
