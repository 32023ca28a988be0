package rwlock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A release that does not wait keeps neither side of the lock from the next
// Acquire, or try, of its client, whatever happens to the delete. The two sides
// have local queues of their own.
func TestAsyncReleaseLetsTheOtherSideIn(t *testing.T) {
	faults := map[string]testutil.Action{
		"none":       testutil.Pass(),
		"lost":       testutil.DropBefore(),
		"reply lost": testutil.DropAfter(),
		"late":       testutil.Delay(time.Second),
		"reply late": testutil.DelayReply(time.Second),
	}
	for name, fault := range faults {
		for _, try := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", try ", try), func(t *testing.T) {
				bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
					rw := clients(w, 1, recipes.WithAsyncRelease())[0]
					bubble.Release(t, bubble.Acquire(t, t.Context(), rw.Writer()))
					sides := []recipes.Acquirer{rw.Reader(), rw.Writer()}
					for i, first := range sides {
						second := sides[1-i]
						l := bubble.Acquire(t, t.Context(), first)
						w.Once(testutil.OpDelete, path, fault)
						start := time.Now()
						bubble.Release(t, l)
						if took := time.Since(start); took != 0 {
							t.Errorf("Release took %v", took)
						}
						if try {
							next, err := second.TryAcquire(t.Context())
							if err != nil {
								t.Errorf("side %d after side %d: %v", 1-i, i, err)
								continue
							}
							bubble.Release(t, next)
							continue
						}
						bubble.Release(t, bubble.Acquire(t, t.Context(), second))
					}
					w.NothingLeft(path)
				})
			})
		}
	}
}

// Readers of a client share a znode, which goes with the last of them; then a
// waiting writer of another client is granted.
func TestAsyncReleaseOfSharedLeases(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		rw := clients(w, 2, recipes.WithAsyncRelease())
		one, two := bubble.Acquire(t, t.Context(), rw[0].Reader()), bubble.Acquire(t, t.Context(), rw[0].Reader())
		w.InLine(path, 1)
		writer := bubble.Acquiring(t.Context(), rw[1].Writer())
		w.InLine(path, 2)
		bubble.Release(t, one)
		bubble.Pending(t, writer)
		bubble.Release(t, two)
		again := bubble.Acquiring(t.Context(), rw[0].Reader())
		writing := bubble.Granted(t, writer).Lease
		bubble.Pending(t, again)
		bubble.Release(t, writing)
		bubble.Release(t, bubble.Granted(t, again).Lease)
		w.NothingLeft(path)
	})
}

// A downgraded read stays granted when the write is released so, and the other
// way round.
func TestAsyncReleaseOfADowngrade(t *testing.T) {
	for _, readFirst := range []bool{true, false} {
		bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
			rw := clients(w, 2, recipes.WithAsyncRelease())
			w.Latency(10 * time.Millisecond)
			writing := bubble.Acquire(t, t.Context(), rw[0].Writer())
			reading := bubble.Acquire(t, writing.Context(), rw[0].Reader())
			if reading.Token() != writing.Token() {
				t.Errorf("token %v under %v", reading.Token(), writing.Token())
			}
			first, last := writing, reading
			if readFirst {
				first, last = reading, writing
			}
			writer := bubble.Acquiring(t.Context(), rw[1].Writer())
			w.InLine(path, 3)
			bubble.Release(t, first)
			time.Sleep(time.Second)
			bubble.Pending(t, writer)
			if !last.Held() {
				t.Errorf("the other lease is not held: %v", last.Err())
			}
			bubble.Release(t, last)
			again := bubble.Acquiring(t.Context(), rw[0].Writer())
			other := bubble.Granted(t, writer).Lease
			bubble.Pending(t, again)
			bubble.Release(t, other)
			bubble.Release(t, bubble.Granted(t, again).Lease)
			if err := first.Err(); !errors.Is(err, recipes.ErrReleased) {
				t.Errorf("Err is %v", err)
			}
			w.NothingLeft(path)
		})
	}
}
